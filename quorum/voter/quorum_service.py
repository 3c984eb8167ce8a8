"""The gRPC service of one voter, for brokers and administrators.

Any voter takes sessions and reads, and forwards once to the leader what only the leader can do.
Transactions and keep-alives go to the leader directly; another voter answers with the leader's id.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import grpc

from quorate.common.configuration import ConfigError, parse_endpoint
from quorate.common.grpc_support.checked_calls import CheckedCalls, Context, principal_of
from quorate.common.grpc_support.refusal_log import RefusalLog, peer_host
from quorate.common.tls.identity import broker_of, may_call
from quorate.common.tls.tls_config import PLAINTEXT, VOTER_SECURITY, require_loopback
from quorate.common.types import BrokerId, MetadataOffset, SessionId, VoterId
from quorate.metadata_log.features import why_unreadable
from quorate.metadata_log.records import QuorumVoter, SessionClosed, SessionOpened
from quorate.metadata_log.rules.membership import why_not_use
from quorate.metadata_log.snapshot.snapshot import encode_snapshot
from quorate.quorum.quorum_config import SESSION_TIMEOUT_MAX_MS, SESSION_TIMEOUT_MIN_MS
from quorate.quorum.voter.leader_forwarding import (
    FORWARDED_ONCE,
    LeaderForwarder,
    calling_broker,
    forwarded_for,
    unavailable,
)
from quorate.quorum.voter.session_owners import session_owner, why_not_describe
from quorate.quorum.voter.sessions import KeepAlive
from quorate.quorum.voter.transact_stream import TransactStream
from quorate.quorum.voter.voter import NotLeader, OutcomeLost, Voter
from quorate.quorum.voter.voter_changes import (
    ChangeNotYet,
    ChangeRefused,
    NoSuchMember,
    VoterChanges,
)
from quorate.quorum.voter.voter_status import quorum_status
from quorate.quorum.voter.watch_stream import NOTHING, VoterCutOff, watch
from quorate.quorum.voter_channels import Peers
from quorate_proto.v1 import quorum_pb2 as pb
from quorate_proto.v1.quorum_pb2_grpc import QuorumServicer

if TYPE_CHECKING:  # A name of the type stubs alone.
    from quorate_proto.v1.quorum_pb2_grpc import QuorumAsyncStub

T = TypeVar("T")

log = logging.getLogger(__name__)


class QuorumService(QuorumServicer):
    """The service; there is one instance per voter."""

    def __init__(self, voter: Voter, peers: Peers, refusals: RefusalLog) -> None:
        self._voter = voter
        self._refusals = refusals
        self._at_leader = LeaderForwarder(voter, peers)
        self._changes = VoterChanges(voter)
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
        broker_id = calling_broker(context)
        await self._refuse(context, why_not_describe(request.description, broker_id))

        async def here() -> pb.OpenSessionResponse:
            session_id = self._voter.new_session_id()
            offset, result = await self._voter.propose(
                SessionOpened(
                    session_id=session_id,
                    timeout_ms=timeout_ms,
                    description=request.description,
                    broker_id=session_owner(broker_id, self._voter.image.metadata_version),
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

        async def there(stub: "QuorumAsyncStub", timeout_s: float) -> pb.OpenSessionResponse:
            metadata = forwarded_for(broker_id)
            return await stub.OpenSession(request, timeout=timeout_s, metadata=metadata)

        return await self._at_leader(context, here, there)

    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Context
    ) -> pb.CloseSessionResponse:
        broker_id = calling_broker(context)
        session_id = SessionId(request.session_id)

        async def here() -> pb.CloseSessionResponse:
            await self._refuse(context, self._why_not_use(session_id, broker_id))
            if broker_id is not None and session_id not in self._voter.image.sessions:
                return pb.CloseSessionResponse(offset=self._voter.image.offset)  # It is gone.
            record = SessionClosed(session_id=session_id, reason=request.reason or "closed")
            offset, _ = await self._voter.propose(record)
            return pb.CloseSessionResponse(offset=offset)

        async def there(stub: "QuorumAsyncStub", timeout_s: float) -> pb.CloseSessionResponse:
            metadata = forwarded_for(broker_id)
            return await stub.CloseSession(request, timeout=timeout_s, metadata=metadata)

        return await self._at_leader(context, here, there)

    async def KeepAlive(
        self, request_iterator: AsyncIterator[pb.KeepAliveRequest], context: Context
    ) -> AsyncIterator[pb.KeepAliveResponse]:
        stream = object()
        session_id = SessionId(b"")
        broker_id = calling_broker(context)
        try:
            async for ping in request_iterator:
                await self._refuse(
                    context, self._why_not_use(SessionId(ping.session_id), broker_id)
                )
                session_id = SessionId(ping.session_id)
                answer = self._voter.keep_alive(session_id, stream, ping.mark)
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
                        interval_ms=self._voter.keep_alive_interval_ms(session_id),
                    )
        finally:
            self._voter.keep_alive_stream_closed(session_id, stream)

    def _why_not_use(self, session_id: SessionId, broker_id: BrokerId | None) -> str | None:
        """Return why that broker may not use the session, or None if it may."""
        if broker_id is None:
            return None
        return why_not_use(self._voter.image.sessions.get(session_id), broker_id)

    async def _refuse(self, context: Context, why: str | None) -> None:
        """End the call if there is a reason."""
        if why is not None:
            self._refusals.refused(f"{principal_of(context)} at {peer_host(context.peer())}", why)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)

    def _granted(self, wanted_ms: int) -> int:
        least = self._config.values[SESSION_TIMEOUT_MIN_MS]
        return max(least, min(wanted_ms, self._config.values[SESSION_TIMEOUT_MAX_MS]))

    # -- transactions and reads ------------------------------------------------------------------

    async def Transact(  # type: ignore[override]
        self, request_iterator: AsyncIterator[pb.TransactFrame], context: Context
    ) -> None:
        stream = TransactStream(self._voter, broker_of(principal_of(context)))
        await stream.serve(context, request_iterator)

    async def Read(self, request: pb.ReadRequest, context: Context) -> pb.ReadResponse:
        if request.linearizable:
            await self._everything_acknowledged(context)
        image = self._voter.image
        snapshot = b"".join(encode_snapshot(image)) if request.include_image else b""
        offset = image.offset if request.include_image else self._voter.applied_offset
        return pb.ReadResponse(offset=offset, snapshot=snapshot)

    async def _everything_acknowledged(self, context: Context) -> MetadataOffset:
        """Wait until everything acknowledged is applied here; return the offset up to which that
        is.
        """
        offset = await self._linearizable_offset(context)
        await self._voter.applied(offset)
        return offset

    async def _linearizable_offset(self, context: Context) -> MetadataOffset:
        async def there(stub: "QuorumAsyncStub", timeout_s: float) -> MetadataOffset:
            request = pb.ReadRequest(linearizable=True)
            answer = await stub.Read(request, timeout=timeout_s, metadata=FORWARDED_ONCE)
            return MetadataOffset(answer.offset)

        return await self._at_leader(context, self._voter.barrier, there)

    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WatchEvent]:
        if why := why_unreadable(self._voter.image, request.metadata_version_max):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        start = None if request.from_oldest else MetadataOffset(request.from_offset)
        at_least = NOTHING
        if request.linearizable:
            at_least = await self._everything_acknowledged(context)
        try:
            kinds = frozenset(request.record_kinds)
            events = watch(self._voter, start, kinds, at_least, request.heartbeat_max_ms / 1000)
            async with contextlib.aclosing(events):
                async for event in events:
                    yield event
        except VoterCutOff:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"voter {self._config.voter_id} has no leader: watch another voter",
            )

    async def QuorumStatus(
        self, request: pb.QuorumStatusRequest, context: Context
    ) -> pb.QuorumStatusResponse:
        return await quorum_status(self._voter)

    # -- membership ------------------------------------------------------------------------------

    async def AddVoter(
        self, request: pb.AddVoterRequest, context: Context
    ) -> AsyncIterator[pb.AddVoterProgress]:
        try:
            new = self._new_member(request)
            async with contextlib.aclosing(self._changes.add_voter(new)) as steps:
                async for step in steps:
                    yield step
        except (ChangeRefused, ConfigError) as refusal:
            await context.abort(_code_of(refusal), str(refusal))
        except (NotLeader, OutcomeLost):
            await unavailable(context, f"voter {self._config.voter_id} does not lead: try again")

    def _new_member(self, request: pb.AddVoterRequest) -> QuorumVoter:
        raft = parse_endpoint("raft_address", request.raft_address)
        grpc_endpoint = parse_endpoint("grpc_address", request.grpc_address)
        if request.voter_id < 1:
            raise ConfigError(f"voter id {request.voter_id} must be at least 1")
        if self._config.values[VOTER_SECURITY.protocol] == PLAINTEXT:
            require_loopback(VOTER_SECURITY, "the new voter's address", (raft, grpc_endpoint))
        return QuorumVoter(voter_id=VoterId(request.voter_id), raft=raft, grpc=grpc_endpoint)

    async def _changed_at_leader(
        self,
        context: Context,
        here: Callable[[], Awaitable[T]],
        there: Callable[["QuorumAsyncStub", float], Awaitable[T]],
    ) -> T:
        """Run a change as ``LeaderForwarder`` does. A refused change ends the call with
        its reason.
        """
        try:
            return await self._at_leader(context, here, there)
        except ChangeRefused as refusal:
            await context.abort(_code_of(refusal), str(refusal))
            raise

    async def RemoveVoter(
        self, request: pb.RemoveVoterRequest, context: Context
    ) -> pb.RemoveVoterResponse:
        async def here() -> pb.RemoveVoterResponse:
            offset = await self._changes.remove_voter(request.voter_id)
            return pb.RemoveVoterResponse(offset=offset)

        async def there(stub: "QuorumAsyncStub", timeout_s: float) -> pb.RemoveVoterResponse:
            return await stub.RemoveVoter(request, timeout=timeout_s, metadata=FORWARDED_ONCE)

        return await self._changed_at_leader(context, here, there)

    async def TransferLeadership(
        self, request: pb.TransferLeadershipRequest, context: Context
    ) -> pb.TransferLeadershipResponse:
        async def here() -> pb.TransferLeadershipResponse:
            await self._changes.transfer(request.voter_id)
            leadership = self._voter.leadership
            return pb.TransferLeadershipResponse(
                leader_id=leadership.leader_id, term=leadership.term
            )

        async def there(stub: "QuorumAsyncStub", timeout_s: float) -> pb.TransferLeadershipResponse:
            return await stub.TransferLeadership(
                request, timeout=timeout_s, metadata=FORWARDED_ONCE
            )

        return await self._changed_at_leader(context, here, there)


def _code_of(refusal: ChangeRefused | ConfigError) -> grpc.StatusCode:
    """Return the status code: ``quorate.quorum.operations.admin`` tries again only
    after ABORTED.
    """
    match refusal:
        case ChangeNotYet():
            return grpc.StatusCode.ABORTED
        case NoSuchMember():
            return grpc.StatusCode.NOT_FOUND
        case _:
            return grpc.StatusCode.FAILED_PRECONDITION


class Authorization(CheckedCalls):
    """Refuses calls that the caller's certificate does not allow.

    It checks every method: one that is added later is closed to brokers until ``CLIENT_METHODS``
    names it.
    """

    def __init__(self, refusals: RefusalLog) -> None:
        self._refusals = refusals

    async def check(self, method: str, _request: object, context: Context) -> None:
        name = method.rpartition("/")[2]
        principal = principal_of(context)
        if may_call(principal, name):
            return
        self._refusals.refused(
            f"{principal} at {peer_host(context.peer())}", f"it may not call {name}"
        )
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED,
            f"the certificate of {principal} does not allow {name}",
        )
