"""The gRPC service of one voter: what brokers see of the quorum.

Any voter takes sessions and reads, and passes to the leader what only the leader can do, once.
Transactions and keep-alives go to the leader directly; elsewhere they are told who that is.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn, TypeVar

import grpc

from metadata_log.records import SessionClosed, SessionOpened
from metadata_log.snapshot import encode_snapshot
from metadata_log.types import MetadataOffset, SessionId
from quorate_proto.v1 import quorum_pb2 as pb
from quorate_proto.v1.quorum_pb2_grpc import QuorumServicer
from quorum.config import SESSION_TIMEOUT_MAX_MS, SESSION_TIMEOUT_MIN_MS
from quorum.peers import Peers
from quorum.raft.node import RaftNode
from quorum.sessions import KeepAlive
from quorum.transact_stream import TransactStream
from quorum.voter import NotLeader, OutcomeLost, Voter
from quorum.watch_stream import VoterCutOff, watch

T = TypeVar("T")
Context = Any
"""``grpc.aio.ServicerContext``; the stubs' own type mixes in the synchronous one."""

log = logging.getLogger(__name__)

FORWARDED: Final = "x-quorate-forwarded"
WAIT_FOR_LEADER_S: Final = 5.0


class QuorumService(QuorumServicer):
    """One instance per voter."""

    def __init__(self, voter: Voter, peers: Peers) -> None:
        self._voter = voter
        self._peers = peers
        self._config = voter.config

    # -- sessions --------------------------------------------------------------------------------

    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Context
    ) -> pb.OpenSessionResponse:
        if request.cluster_id not in ("", self._config.cluster_id):
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"this quorum is cluster {self._config.cluster_id!r}, not {request.cluster_id!r}",
            )
        timeout_ms = self._granted(request.timeout_ms)

        async def here() -> pb.OpenSessionResponse:
            session_id = self._voter.new_session_id()
            offset, result = await self._voter.propose(
                SessionOpened(
                    session_id=session_id, timeout_ms=timeout_ms, description=request.description
                )
            )
            if not result.ok:
                await context.abort(grpc.StatusCode.INTERNAL, result.results[0].detail)
            log.info("session %s opened for %s", session_id.hex(), request.description or "?")
            return pb.OpenSessionResponse(
                session_id=session_id,
                timeout_ms=timeout_ms,
                cluster_id=self._config.cluster_id,
                offset=offset,
            )

        async def there(leader_id: int, timeout_s: float) -> pb.OpenSessionResponse:
            stub = self._peers.stub(leader_id)
            return await stub.OpenSession(request, timeout=timeout_s, metadata=_FORWARDED_ONCE)

        return await self._at_leader(context, here, there)

    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Context
    ) -> pb.CloseSessionResponse:
        async def here() -> pb.CloseSessionResponse:
            record = SessionClosed(
                session_id=SessionId(request.session_id), reason=request.reason or "closed"
            )
            offset, _ = await self._voter.propose(record)
            return pb.CloseSessionResponse(offset=offset)

        async def there(leader_id: int, timeout_s: float) -> pb.CloseSessionResponse:
            stub = self._peers.stub(leader_id)
            return await stub.CloseSession(request, timeout=timeout_s, metadata=_FORWARDED_ONCE)

        return await self._at_leader(context, here, there)

    async def KeepAlive(
        self, request_iterator: AsyncIterator[pb.KeepAliveRequest], context: Context
    ) -> AsyncIterator[pb.KeepAliveResponse]:
        stream = object()
        session_id = SessionId(b"")
        try:
            async for ping in request_iterator:
                session_id = SessionId(ping.session_id)
                answer = self._voter.keep_alive(session_id, stream)
                leader_id = self._voter.leadership.leader_id
                if not self._voter.leadership.leads:
                    yield pb.KeepAliveResponse(
                        sequence=ping.sequence, not_leader=True, leader_id=leader_id
                    )
                elif answer is not KeepAlive.NO_ANSWER:
                    yield pb.KeepAliveResponse(
                        sequence=ping.sequence,
                        alive=answer is KeepAlive.ALIVE,
                        leader_id=leader_id,
                    )
        finally:
            self._voter.keep_alive_stream_closed(session_id, stream)

    def _granted(self, wanted_ms: int) -> int:
        least = self._config.values[SESSION_TIMEOUT_MIN_MS]
        return max(least, min(wanted_ms, self._config.values[SESSION_TIMEOUT_MAX_MS]))

    # -- transactions and reads ------------------------------------------------------------------

    async def Transact(  # type: ignore[override]
        self, request_iterator: AsyncIterator[pb.TransactFrame], context: Context
    ) -> None:
        await TransactStream(self._voter).serve(context, request_iterator)

    async def Read(self, request: pb.ReadRequest, context: Context) -> pb.ReadResponse:
        if request.linearizable:
            await self._voter.applied(await self._linearizable_offset(context))
        image = self._voter.image
        snapshot = b"".join(encode_snapshot(image)) if request.include_image else b""
        offset = image.offset if request.include_image else self._voter.applied_offset
        return pb.ReadResponse(offset=offset, snapshot=snapshot)

    async def _linearizable_offset(self, context: Context) -> MetadataOffset:
        async def there(leader_id: int, timeout_s: float) -> MetadataOffset:
            stub = self._peers.stub(leader_id)
            request = pb.ReadRequest(linearizable=True)
            answer = await stub.Read(request, timeout=timeout_s, metadata=_FORWARDED_ONCE)
            return MetadataOffset(answer.offset)

        return await self._at_leader(context, self._voter.barrier, there)

    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WatchEvent]:
        start = MetadataOffset(request.from_offset)
        try:
            async for event in watch(self._voter, start, frozenset(request.record_kinds)):
                yield event
        except VoterCutOff:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"voter {self._config.voter_id} has no leader: watch another voter",
            )

    async def QuorumStatus(
        self, request: pb.QuorumStatusRequest, context: Context
    ) -> pb.QuorumStatusResponse:
        leadership = self._voter.leadership
        response = await asyncio.wrap_future(self._voter.driver.call(_raft_status))
        response.voter_id = self._config.voter_id
        response.cluster_id = self._config.cluster_id
        response.leader_id = leadership.leader_id
        response.sessions = len(self._voter.image.sessions)
        matches = {voter.voter_id: voter for voter in response.voters}
        del response.voters[:]
        for voter in self._config.voters:
            known = matches.get(voter.voter_id, pb.VoterStatus(match_offset=-1))
            known.voter_id = voter.voter_id
            known.raft_address = str(voter.raft)
            known.grpc_address = str(voter.grpc)
            if voter.voter_id == self._config.voter_id:
                known.connected = True
                known.match_offset = response.applied_offset
            response.voters.append(known)
        return response

    # -- the leader ------------------------------------------------------------------------------

    async def _at_leader(
        self,
        context: Context,
        here: Callable[[], Awaitable[T]],
        there: Callable[[int, float], Awaitable[T]],
    ) -> T:
        """``here`` if this voter leads, else ``there`` at the leader; waits a while for one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(
            WAIT_FOR_LEADER_S, context.time_remaining() or WAIT_FOR_LEADER_S
        )
        forwarded = any(key == FORWARDED for key, _ in context.invocation_metadata() or ())
        while True:
            leadership = self._voter.leadership
            try:
                if leadership.leads:
                    return await here()
                if forwarded:
                    await _unavailable(context, f"voter {self._config.voter_id} does not lead")
                if leadership.leader_id not in (0, self._config.voter_id):
                    return await there(leadership.leader_id, max(0.1, deadline - loop.time()))
            except NotLeader:
                pass
            except OutcomeLost:
                await _unavailable(context, "the leader changed meanwhile: try again")
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    await context.abort(error.code(), error.details())
            if loop.time() >= deadline:
                await _unavailable(context, "the quorum has no leader")
            await self._pause(deadline - loop.time())

    async def _pause(self, at_most_s: float) -> None:
        """Until something changes, but not for long: a leader elsewhere may change unseen."""
        try:
            async with asyncio.timeout(min(0.05, max(0.0, at_most_s))):
                await self._voter.changed()
        except TimeoutError:
            pass


_FORWARDED_ONCE: Final = ((FORWARDED, "1"),)


async def _unavailable(context: Context, why: str) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAVAILABLE, why)
    raise AssertionError("abort returned")


def _raft_status(node: RaftNode) -> pb.QuorumStatusResponse:
    return pb.QuorumStatusResponse(
        term=node.term,
        commit_offset=node.commit_index,
        applied_offset=node.last_applied,
        log_start_offset=node.journal.first_index,
        voters=[
            pb.VoterStatus(
                voter_id=other.voter_id,
                connected=node.transport.is_connected(other.voter_id),
                match_offset=node.match_index.get(other, -1) if node.is_leader else -1,
            )
            for other in node.others
        ],
    )
