"""Calls to the voters' service, from clients and between voters, over links of their own.

The service is the product's (``QuorumService``), but for the stream of transactions: there a call
hands one encoded transaction to the voter, as ``TransactStream`` does.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

import grpc

from quorate.metadata_log.codec import as_of_client
from quorate.metadata_log.records import TransactionResult
from quorate.quorum.raft.driver import ProposalOutcome, ProposalRun, Settled
from quorate.quorum.voter.leader_forwarding import FORWARDED
from quorate_proto.v1 import quorum_pb2 as pb
from tests.sim.host import Host
from tests.sim.process import Process
from tests.sim.world import World

CLIENT: Final = 0
"""Stands for every client in the pairs of cut links."""


class Refused(Exception):
    """The service said no: ``context.abort``."""


class Transacted(NamedTuple):
    """Answer to one transaction."""

    outcome: ProposalOutcome
    result: TransactionResult | None
    leader_id: int


class _Owner:
    def __init__(self, answer: Callable[[Transacted], None]) -> None:
        self._answer = answer

    def completed(self, settled: Settled) -> None:
        self._answer(Transacted(settled.outcome, settled.results[0], 0))


class CallContext:
    """The part of grpc's context that the service uses."""

    def __init__(self, timeout_s: float, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._timeout_s = timeout_s
        self._metadata = metadata

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        raise Refused(f"{code.name}: {details}")

    def time_remaining(self) -> float:
        return self._timeout_s

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}  # As in plain text: nobody proves who he is.


class Services:
    """Carries calls to hosts and answers back. An answer that is lost is never heard of."""

    def __init__(self, world: World, hosts: dict[int, Host]) -> None:
        self._world = world
        self.hosts = hosts
        self.delay_s = 0.0005
        self.loss = 0.0
        self.cuts: set[tuple[int, int]] = set()
        """(caller or ``CLIENT``, voter): neither calls nor answers pass."""
        self.known: Callable[[], list[int]] = lambda: sorted(hosts)
        """The voters that clients and watchers have been told of."""
        for host in hosts.values():
            host.peers = Peers(self, host)

    # -- calls -----------------------------------------------------------------------------------

    def call(
        self,
        caller: int,
        voter_id: int,
        work: Callable[[Process], Coroutine[Any, Any, Any]],
        answered: Callable[[object], None],
    ) -> None:
        """Run a coroutine on the voter; ``answered`` gets its result, or its ``Refused``."""

        def arrive() -> None:
            process = self.hosts[voter_id].process
            if process is None:
                self._back(caller, voter_id, answered, Refused("UNAVAILABLE: connection refused"))
                return
            process.loop.call_soon_threadsafe(partial(start, process))

        def start(process: Process) -> None:
            task = process.loop.create_task(work(process))
            task.add_done_callback(lambda done: finish(process, done))

        def finish(process: Process, task: "asyncio.Task[Any]") -> None:
            if process is not self.hosts[voter_id].process or task.cancelled():
                return
            error = task.exception()
            if error is not None and not isinstance(error, Refused):
                raise error
            self._back(caller, voter_id, answered, error or task.result())

        self._there(caller, voter_id, arrive)

    def transact(self, voter_id: int, command: bytes, answered: Callable[[object], None]) -> None:
        """One encoded transaction, as ``TransactStream`` takes it."""

        def arrive() -> None:
            process = self.hosts[voter_id].process
            if process is None:
                self._back(CLIENT, voter_id, answered, Refused("UNAVAILABLE: connection refused"))
                return
            process.loop.call_soon_threadsafe(partial(submit, process))

        def submit(process: Process) -> None:
            voter = process.voter

            def answer(transacted: Transacted) -> None:
                leader_id = voter.leadership.leader_id
                told = transacted._replace(leader_id=leader_id)
                self._back(CLIENT, voter_id, answered, told)

            run = ProposalRun([as_of_client(command)], _Owner(answer))
            if not voter.accepts_proposals or not voter.submit(run):
                answer(Transacted(ProposalOutcome.NOT_LEADER, None, 0))

        self._there(CLIENT, voter_id, arrive)

    # -- the way there and back ------------------------------------------------------------------

    def is_cut(self, caller: int, voter_id: int) -> bool:
        return (caller, voter_id) in self.cuts

    def _there(self, caller: int, voter_id: int, arrive: Callable[[], None]) -> None:
        if not self.is_cut(caller, voter_id) and not self._world.chance(self.loss):
            self._world.at(self._world.actor_time + self._delay_s(), arrive)

    def _back(
        self, caller: int, voter_id: int, answered: Callable[[object], None], answer: object
    ) -> None:
        if not self.is_cut(caller, voter_id) and not self._world.chance(self.loss):
            when = self._world.actor_time + self._delay_s()
            self._world.at(when, partial(answered, answer))

    def _delay_s(self) -> float:
        return self.delay_s * (0.5 + self._world.random.expovariate(1.5))


class Peers:
    """Takes the place of the product's channels between voters."""

    def __init__(self, services: Services, host: Host) -> None:
        self._services = services
        self._host = host

    def stub(self, voter_id: int) -> "PeerStub | None":
        if voter_id not in self._services.hosts:
            return None
        return PeerStub(self._services, self._host, voter_id)


class PeerStub:
    """The calls that one voter passes on to another."""

    def __init__(self, services: Services, host: Host, voter_id: int) -> None:
        self._services = services
        self._host = host
        self._voter_id = voter_id

    async def Read(self, request: pb.ReadRequest, timeout: float, metadata: Any) -> Any:  # noqa: ANN401
        return await self._call("Read", request, timeout)

    async def OpenSession(
        self,
        request: pb.OpenSessionRequest,
        timeout: float,
        metadata: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        return await self._call("OpenSession", request, timeout)

    async def CloseSession(
        self,
        request: pb.CloseSessionRequest,
        timeout: float,
        metadata: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        return await self._call("CloseSession", request, timeout)

    async def _call(self, method: str, request: Any, timeout_s: float) -> Any:  # noqa: ANN401
        process = self._host.process
        assert process is not None
        answer: asyncio.Future[Any] = process.loop.create_future()
        context = CallContext(timeout_s, ((FORWARDED, "1"),))

        def answered(result: object) -> None:
            if process is self._host.process:
                process.loop.call_soon_threadsafe(partial(_set, answer, result))

        self._services.call(
            self._host.voter_id,
            self._voter_id,
            lambda there: getattr(there.service, method)(request, context),
            answered,
        )
        try:
            async with asyncio.timeout(timeout_s):
                result = await answer
        except TimeoutError:
            raise _rpc_error(grpc.StatusCode.UNAVAILABLE, "no answer") from None
        if isinstance(result, Refused):
            raise _rpc_error(grpc.StatusCode.UNAVAILABLE, str(result))
        return result


def _set(future: "asyncio.Future[Any]", result: object) -> None:
    if not future.done():
        future.set_result(result)


def _rpc_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
