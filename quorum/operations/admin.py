"""Administration of the quorum from outside: its members and its leader."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import grpc

from quorate.quorum.client.directory import VoterDirectory
from quorate.quorum.quorum_config import ConfiguredVoter
from quorate.quorum.quorum_errors import ChangeNotMade, NoSuchVoter, QuorumUnavailable
from quorate.quorum.voter_channels import stub_of
from quorate_proto.v1 import quorum_pb2 as pb

if TYPE_CHECKING:  # A name of the type stubs alone.
    from quorate_proto.v1.quorum_pb2_grpc import QuorumAsyncStub

T = TypeVar("T")

_PAUSE_S: Final = 0.1
_CALL_TIMEOUT_S: Final = 10.0
_PATIENCE_S: Final = 10.0
"""This is longer than a voter takes to start, and than the leader counts on a silent one."""

_TRY_AGAIN: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class QuorumAdmin:
    """Asks the leader; each call tries until ``timeout_s`` is over.

    A change that cannot be made as things are is tried again for ``patience_s``: a voter that was
    restarted, or is slow for a moment, need not fail it. ``on_wait`` is told the reason for
    waiting.

    Every call raises ``QuorumUnavailable`` if no leader answers in time, and ``ChangeNotMade`` if
    the quorum refuses.
    """

    def __init__(
        self,
        directory: VoterDirectory,
        timeout_s: float,
        *,
        patience_s: float = _PATIENCE_S,
        on_wait: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._directory = directory
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._on_wait = on_wait

    async def status(self) -> pb.QuorumStatusResponse:
        """Return the quorum as its leader sees it, or as any voter does if there is no leader."""
        if await self._directory.find_leader() is None:
            for address in self._directory.addresses:
                try:
                    return await self._directory.status(address)
                except grpc.aio.AioRpcError:
                    continue

        async def ask(stub: "QuorumAsyncStub") -> pb.QuorumStatusResponse:
            return await stub.QuorumStatus(pb.QuorumStatusRequest(), timeout=_CALL_TIMEOUT_S)

        return await self._at_leader(ask)

    async def add_voter(
        self, voter: ConfiguredVoter, on_progress: Callable[[pb.AddVoterProgress], None]
    ) -> None:
        """Make a voter of a process that was started with an empty data folder."""
        request = pb.AddVoterRequest(
            voter_id=voter.voter_id, raft_address=str(voter.raft), grpc_address=str(voter.grpc)
        )

        attempts = self._attempts()

        async def ask(stub: "QuorumAsyncStub") -> None:
            async for progress in stub.AddVoter(request):
                attempts.goes_on(progress.detail)
                on_progress(progress)

        await self._at_leader(ask, attempts)

    async def remove_voter(self, voter_id: int) -> int:
        """Remove a voter; return the metadata offset of the change, or one after it."""
        request = pb.RemoveVoterRequest(voter_id=voter_id)
        was_there = any(voter.voter_id == voter_id for voter in (await self.status()).voters)

        async def ask(stub: "QuorumAsyncStub") -> int:
            return (await stub.RemoveVoter(request, timeout=_CALL_TIMEOUT_S)).offset

        try:
            return await self._at_leader(ask)
        except NoSuchVoter:
            if not was_there:
                raise
            # The change was made, and the answer was lost with a leader.
            return (await self.status()).applied_offset

    async def transfer_leadership(self, voter_id: int) -> int:
        """Make a voter the leader; return its term."""
        request = pb.TransferLeadershipRequest(voter_id=voter_id)

        async def ask(stub: "QuorumAsyncStub") -> int:
            return (await stub.TransferLeadership(request, timeout=_CALL_TIMEOUT_S)).term

        return await self._at_leader(ask)

    async def _at_leader(
        self, ask: Callable[["QuorumAsyncStub"], Awaitable[T]], attempts: "_Attempts | None" = None
    ) -> T:
        attempts = attempts or self._attempts()
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    leader = await self._directory.find_leader()
                    if leader is None:
                        attempts.found_no_leader(self._directory.last_error)
                    else:
                        try:
                            return await ask(stub_of(self._directory.channel(leader)))
                        except grpc.aio.AioRpcError as failure:
                            attempts.failed(leader, failure)
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            if attempts.not_yet:
                raise ChangeNotMade(attempts.not_yet) from None
            where = ", ".join(self._directory.addresses)
            raise QuorumUnavailable(
                f"not done within {self._timeout_s:g} s by the quorum at {where}"
                + (f" (last error: {attempts.error})" if attempts.error else "")
            ) from None

    def _attempts(self) -> "_Attempts":
        return _Attempts(self._patience_s, self._on_wait)


class _Attempts:
    """The outcome of the attempts so far, which decides whether to try again."""

    def __init__(self, patience_s: float, on_wait: Callable[[str], None]) -> None:
        self.error = ""
        self.not_yet = ""
        """Note why the last attempt was refused, if that may pass by itself."""
        self._patience_s = patience_s
        self._on_wait = on_wait
        self._give_up_s = math.inf

    def found_no_leader(self, error: str) -> None:
        self.error, self.not_yet = error, ""

    def goes_on(self, detail: str) -> None:
        """Note what the leader does now, for the message if time runs out."""
        self.error = detail

    def failed(self, leader: str, failure: grpc.aio.AioRpcError) -> None:
        """Return if another attempt is worth it.

        Raises:
            ChangeNotMade: else.
        """
        why = failure.details() or failure.code().name
        self.error = f"{leader}: {why}"
        if failure.code() in _TRY_AGAIN:
            self.not_yet = ""
            return
        if failure.code() is grpc.StatusCode.NOT_FOUND:
            raise NoSuchVoter(why) from failure
        now_s = asyncio.get_running_loop().time()
        self._give_up_s = min(self._give_up_s, now_s + self._patience_s)
        if failure.code() is not grpc.StatusCode.ABORTED or now_s >= self._give_up_s:
            raise ChangeNotMade(why) from failure
        if why != self.not_yet:
            self._on_wait(why)
        self.not_yet = why
