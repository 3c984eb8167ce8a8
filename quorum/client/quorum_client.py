"""The client of the quorum: a session, exactly-once transactions, linearizable reads, watches.

One task looks for the leader and works with it until it is lost, then looks again. What has no
result by then is sent again, under its old sequence, to the next leader.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Final

import grpc

from quorate.common.tls.renewable import SecuritySource
from quorate.common.types import NO_SESSION, MetadataOffset, SessionId
from quorate.metadata_log.image import LEAST_LEVEL
from quorate.metadata_log.records import Operation, TransactionResult
from quorate.quorum.client.directory import VoterDirectory
from quorate.quorum.client.keep_alives import KeepAlives
from quorate.quorum.client.leader_connection import LeaderConnection, LeaderGone
from quorate.quorum.client.pending_transactions import (
    DeadlineTimer,
    PendingTransaction,
    PendingTransactions,
    fail,
)
from quorate.quorum.client.watch import SnapshotLoaded, TransactionsApplied, WatchEvent, follow
from quorate.quorum.keep_alive_intervals import own_interval_ms
from quorate.quorum.quorum_errors import OutcomeUnknown, QuorumError, QuorumUnavailable, SessionLost
from quorate.quorum.voter_channels import stub_of
from quorate_proto.v1 import quorum_pb2 as pb

__all__ = ["QuorumClient", "SnapshotLoaded", "TransactionsApplied", "WatchEvent"]

log = logging.getLogger(__name__)

_LOG_WAITING_EVERY_S: Final = 3.0
_PAUSE_S: Final = 0.03
_CALL_TIMEOUT_S: Final = 5.0
_READ_TIMEOUT_S: Final = 1.0
"""After this time another voter is asked: this one may be stopped, and a read may be repeated."""


class QuorumClient:
    """A client with one session. Use all methods on the event loop on which it was made."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        description: str,
        session_timeout_ms: int,
        cluster_id: str = "",
        security: SecuritySource | None = None,
    ) -> None:
        """Create the client. ``addresses`` are gRPC "host:port" of voters, of which one suffices.

        ``description`` is for people. With ``cluster_id`` the quorum of another cluster is refused;
        without, the id is learnt. ``security`` holds this client's certificates, or is None for
        plain text.
        """
        if not addresses:
            raise ValueError("no quorum addresses: give host:port of at least one voter")
        self._loop = asyncio.get_running_loop()  # Kept, because looking it up takes a system call.
        self._directory = VoterDirectory(addresses, security)
        self._description = description
        self._wanted_timeout_ms = session_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        """The session timeout that the quorum has granted."""
        self.cluster_id = cluster_id
        self.session_id = NO_SESSION
        self._keep_alives = KeepAlives()
        self.keep_alive_interval_ms = own_interval_ms(session_timeout_ms)
        """The time from that keep-alive until the next one is sent."""
        self._pending = PendingTransactions()
        self._deadlines = DeadlineTimer(self._expire)
        self._work = asyncio.Event()
        self._mark: Callable[[], int] = lambda: 0
        self._lost_callbacks: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None

    # -- session ---------------------------------------------------------------------------------

    async def start(self, *, deadline_ms: int | None = None) -> None:
        """Connect and open a session. It waits for the quorum as long as it takes, or is allowed.

        Raises:
            QuorumUnavailable: not within ``deadline_ms``; names the addresses.
            QuorumError: the quorum refuses this client, as of another cluster.
        """
        await self._open_session(deadline_ms)

    async def renew_session(self) -> None:
        """Open a fresh session after the old one was lost."""
        await self._stop_working()
        await self._open_session(None)

    async def close(self) -> None:
        """Close the session, so that nothing waits for its expiry, and the connections."""
        await self._stop_working()
        if self.session_id != NO_SESSION:
            request = pb.CloseSessionRequest(session_id=self.session_id, reason="closed")
            for address in self._directory.in_order_of_preference():
                with contextlib.suppress(grpc.aio.AioRpcError):
                    stub = stub_of(self._directory.channel(address))
                    await stub.CloseSession(request, timeout=1.0)
                    break
        self._deadlines.cancel()
        for pending in self._pending:
            fail(pending, "the client was closed")
        await self._directory.close()

    @property
    def last_keep_alive_ms(self) -> int:
        """The time at which the last answered keep-alive was sent, by ``time.monotonic`` in ms."""
        return self._keep_alives.last_sent_ms

    def session_doubt_ms(self, now_ms: int) -> int:
        """Return for how long the session may have been over so far, in all such times together."""
        return self._keep_alives.doubt_ms(now_ms)

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once per session that is lost; ``close`` does not count as a loss."""
        self._lost_callbacks.append(callback)

    def carry_mark(self, mark: Callable[[], int]) -> None:
        """Have keep-alives carry the mark of a broker's log folder from now on (rule 8)."""
        self._mark = mark

    async def _open_session(self, deadline_ms: int | None) -> None:
        started = time.monotonic()
        logged = started
        while True:
            asked_ms = _now_ms()
            opened = await self._try_to_open()
            if opened is not None:
                break
            now = time.monotonic()
            where = ", ".join(self._directory.addresses)
            if deadline_ms is not None and (now - started) * 1000 >= deadline_ms:
                raise QuorumUnavailable(
                    f"no session with the quorum at {where} within {deadline_ms} ms "
                    f"(last error: {self._directory.last_error})"
                )
            if now - logged >= _LOG_WAITING_EVERY_S:
                logged = now
                log.warning("waiting for the quorum at %s: %s", where, self._directory.last_error)
            await asyncio.sleep(_PAUSE_S)
        self.session_id = SessionId(opened.session_id)
        self.cluster_id = opened.cluster_id
        self.session_timeout_ms = opened.timeout_ms
        self._keep_alives.answered(asked_ms, _now_ms(), opened.timeout_ms)
        log.info("session %s with cluster %s", self.session_id.hex(), self.cluster_id)
        work = self._work_with_leaders(self.session_id, opened.timeout_ms)
        self._task = asyncio.create_task(work, name="quorum-client")

    async def _try_to_open(self) -> pb.OpenSessionResponse | None:
        leader = await self._directory.find_leader()
        if leader is None:
            return None
        request = pb.OpenSessionRequest(
            cluster_id=self.cluster_id,
            timeout_ms=self._wanted_timeout_ms,
            description=self._description,
        )
        stub = stub_of(self._directory.channel(leader))
        try:
            return await stub.OpenSession(request, timeout=_CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                raise QuorumError(error.details()) from error
            self._directory.note_error(leader, error)
            return None

    # -- the leader ------------------------------------------------------------------------------

    async def _work_with_leaders(self, session_id: SessionId, timeout_ms: int) -> None:
        """Work with one leader after the other until the session is gone."""
        leader = self._directory.leader
        while self.session_id == session_id:
            if leader is None:
                leader = await self._directory.find_leader()
                if leader is None:
                    await asyncio.sleep(_PAUSE_S)
                    continue
            tenure = LeaderConnection(
                self._directory,
                leader,
                session_id,
                timeout_ms,
                self._pending,
                self._work,
                on_kept_alive=self._kept_alive,
                on_session_gone=self._session_gone,
                mark=lambda: self._mark(),
            )
            try:
                await tenure.run()
            except LeaderGone:
                log.info("%s no longer leads the quorum", leader)
            except grpc.aio.AioRpcError as error:
                log.info("lost quorum leader %s: %s", leader, error.details())
            except Exception:
                log.exception("working with quorum leader %s failed; trying again", leader)
            if self.session_id == session_id:
                leader = None
                await asyncio.sleep(_PAUSE_S)

    def _kept_alive(self, sent_ms: int, interval_ms: float) -> None:
        self._keep_alives.answered(sent_ms, _now_ms(), self.session_timeout_ms)
        self.keep_alive_interval_ms = interval_ms

    def _session_gone(self, session_id: SessionId) -> None:
        if session_id != self.session_id:
            return
        self.session_id = NO_SESSION
        log.warning("session %s is lost", session_id.hex())
        for pending in self._pending:
            if pending.session_id == session_id:
                self._pending.forget(pending.sequence)
                fail(pending, f"session {session_id.hex()} is closed")
        for callback in list(self._lost_callbacks):
            callback()

    async def _stop_working(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    # -- transactions ----------------------------------------------------------------------------

    async def transact(
        self, operations: Sequence[Operation], *, atomic: bool = True, timeout_ms: int = 30_000
    ) -> TransactionResult:
        """Commit a transaction, exactly once over retries and leader changes.

        Concurrent calls share frames. Refused operations are results, not errors.

        Raises:
            SessionLost: the session is closed; surely not applied.
            QuorumUnavailable: no leader took it in time; surely not applied.
            OutcomeUnknown: it was sent, and what became of it cannot be found out.
            TransactionTooLarge: over 1 MiB; not sent.
        """
        if self.session_id == NO_SESSION:
            raise SessionLost("there is no session: call renew_session")
        pending = self._pending.add(
            self.session_id,
            tuple(operations),
            atomic=atomic,
            timestamp_ms=time.time_ns() // 1_000_000,
            future=self._loop.create_future(),
            timeout_ms=timeout_ms,
        )
        self._deadlines.add(pending.deadline_s)
        self._work.set()
        try:
            return await pending.future
        except BaseException:
            self._pending.forget(
                pending.sequence
            )  # Whoever gave it a result has forgotten it already.
            raise

    def _expire(self, now_s: float) -> float:
        return self._pending.expire(now_s, self._timed_out)

    def _timed_out(self, pending: PendingTransaction) -> QuorumError:
        where = ", ".join(self._directory.addresses)
        if pending.times_sent:
            return OutcomeUnknown(
                f"no result from the quorum at {where} within {pending.timeout_ms} ms; "
                "the transaction may have been applied"
            )
        return QuorumUnavailable(
            f"no leader of the quorum at {where} within {pending.timeout_ms} ms "
            f"(last error: {self._directory.last_error})"
        )

    # -- reads -----------------------------------------------------------------------------------

    async def read_offset(self) -> MetadataOffset:
        """Return an offset that covers everything acknowledged before this call.

        Raises:
            QuorumUnavailable: no voter could tell.
        """
        deadline = time.monotonic() + _CALL_TIMEOUT_S
        error = ""
        while time.monotonic() < deadline:
            for address in self._directory.in_order_of_preference():
                stub = stub_of(self._directory.channel(address))
                try:
                    answer = await stub.Read(
                        pb.ReadRequest(linearizable=True), timeout=_READ_TIMEOUT_S
                    )
                except grpc.aio.AioRpcError as failure:
                    error = f"{address}: {failure.details() or failure.code().name}"
                else:
                    return MetadataOffset(answer.offset)
            await asyncio.sleep(_PAUSE_S)
        raise QuorumUnavailable(f"no linearizable read within {_CALL_TIMEOUT_S:g} s ({error})")

    def watch(self, from_offset: MetadataOffset) -> AsyncIterator[WatchEvent]:
        """Yield what was and will be applied from ``from_offset`` on, in order; at 0 a snapshot
        comes first.

        It reconnects to any voter by itself, and never skips or repeats a transaction.
        """
        return follow(self._directory, from_offset)

    async def relay_watch(self, request: pb.WatchRequest) -> AsyncGenerator[pb.WatchEvent, None]:
        """Yield what any one voter sends for ``request``, as it comes; end when that voter does.

        Raises:
            QuorumUnavailable: no voter takes it; says what the last one said.
        """
        for address in self._directory.in_order_of_preference():
            call = stub_of(self._directory.channel(address)).Watch(request)
            begun = False
            try:
                async for event in call:
                    begun = True
                    yield event
            except grpc.aio.AioRpcError as error:
                self._directory.note_error(address, error)
            finally:
                call.cancel()
            if begun:
                return
        raise QuorumUnavailable(f"no voter to watch (last error: {self._directory.last_error})")

    async def metadata_version_max(self) -> int:
        """Return the newest metadata version that every voter can read, observers too (B4).

        Raises:
            QuorumUnavailable: one of them does not say; names it.
        """
        voters = (await self.status()).voters
        answers = await asyncio.gather(
            *(self._directory.status(voter.grpc_address) for voter in voters),
            return_exceptions=True,
        )
        for voter, answer in zip(voters, answers, strict=True):
            if isinstance(answer, BaseException):
                raise QuorumUnavailable(
                    f"voter {voter.voter_id} at {voter.grpc_address} does not say which metadata "
                    "version it can read: all voters must be up for that"
                ) from answer
        return min(
            max(LEAST_LEVEL, answer.metadata_version_max)
            for answer in answers
            if not isinstance(answer, BaseException)
        )

    async def status(self) -> pb.QuorumStatusResponse:
        """Return the state of the quorum as its leader sees it, or else any voter that answers.

        Raises:
            QuorumUnavailable: no voter answers.
        """
        for address in self._directory.in_order_of_preference():
            with contextlib.suppress(grpc.aio.AioRpcError):
                return await self._directory.status(address)
        raise QuorumUnavailable(f"no voter answers at {', '.join(self._directory.addresses)}")


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
