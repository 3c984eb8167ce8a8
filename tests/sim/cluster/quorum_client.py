"""A broker's client of the simulated quorum: what ``QuorumClient`` promises."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quorate.common.types import NO_SESSION, MetadataOffset, SessionId
from quorate.metadata_log.codec import encode_transaction
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.records import Operation, Transaction, TransactionResult
from quorate.quorum.client.keep_alives import KeepAlives
from quorate.quorum.client.pending_transactions import (
    PendingTransaction,
    fail,
    session_gone,
    settle,
)
from quorate.quorum.client.quorum_client import SnapshotLoaded, TransactionsApplied, WatchEvent
from quorate.quorum.quorum_errors import (
    OutcomeUnknown,
    QuorumUnavailable,
    SessionLost,
    TransactionTooLarge,
)
from quorate.quorum.voter.sessions import KeepAlive
from quorate_proto.v1.quorum_pb2 import QuorumStatusResponse
from tests.sim.cluster.quorum import SimulatedQuorum

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Host
    from tests.sim.cluster.process import Process

T = TypeVar("T")

RESEND_S: Final = 0.4
CALL_TIMEOUT_S: Final = 5.0
CLUSTER_ID: Final = "simulated"


class _Pending(PendingTransaction):
    """A transaction on its way."""

    late_s: float = 0.0
    """The time that it takes on the way, each time it is sent."""


class SimulatedQuorumClient:
    """One per process. ``patience``: by how much the callers' time limits are shortened."""

    def __init__(
        self, quorum: SimulatedQuorum, host: "Host[Any]", *, timeout_ms: int, patience: float
    ) -> None:
        self.host = host
        self.process: Process | None = None
        self.cluster_id = CLUSTER_ID
        self.session_id = NO_SESSION
        self._keep_alives = KeepAlives()
        self._quorum = quorum
        self.session_timeout_ms = timeout_ms
        self._patience = patience
        self._mark: Callable[[], int] = lambda: 0
        self._lost_callbacks: list[Callable[[], None]] = []
        self._sequence = 0
        self._under_way: dict[int, _Pending] = {}
        self._keeping_alive: asyncio.Task[None] | None = None
        self._stream: object = None
        self._events: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self._told_offset = 0
        self._telling = False

    def now_ms(self) -> int:
        return int(self.host.clock_s() * 1000)

    @property
    def last_keep_alive_ms(self) -> int:
        return self._keep_alives.last_sent_ms

    def session_doubt_ms(self, now_ms: int) -> int:
        return self._keep_alives.doubt_ms(now_ms)

    def _answered(self, sent_ms: int) -> None:
        self._keep_alives.answered(sent_ms, self.now_ms(), self.session_timeout_ms)

    def died(self, *, power_lost: bool) -> None:
        """The process is gone: its kernel closes the stream, unless it is gone as well."""
        self._quorum.unwatch(self)
        session_id, stream = self.session_id, self._stream
        if not power_lost and session_id != NO_SESSION:
            self._quorum.ask(
                self.host.voter_id, lambda: self._quorum.stream_closed(session_id, stream)
            )

    # -- session ---------------------------------------------------------------------------------

    async def start(self, *, deadline_ms: int | None = None) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = None if deadline_ms is None else loop.time() + deadline_ms / 1000
        while True:
            opened = await self._ask_for(self._open_session, 1.0)
            if opened is not None:
                break
            if deadline_s is not None and loop.time() >= deadline_s:
                raise QuorumUnavailable("no session with the simulated quorum")
        self.session_id = opened
        self._answered(self.now_ms())
        self._keeping_alive = asyncio.create_task(self._keep_alive(opened), name="keep-alive")

    async def renew_session(self) -> None:
        await self._stop_keeping_alive()
        await self.start()

    async def close(self) -> None:
        await self._stop_keeping_alive()
        session_id = self.session_id
        if session_id != NO_SESSION:
            quorum = self._quorum

            def close() -> None:
                if quorum.leads:
                    quorum.close_session(session_id)

            self._ask(close)

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._lost_callbacks.append(callback)

    def carry_mark(self, mark: Callable[[], int]) -> None:
        self._mark = mark

    def _open_session(self, answer: Callable[[SessionId], None]) -> None:
        if self._quorum.leads:
            answer(
                self._quorum.open_session(self.session_timeout_ms, f"broker {self.host.voter_id}")
            )

    async def _keep_alive(self, session_id: SessionId) -> None:
        interval_s = min(self.session_timeout_ms / 6, 1_000) / 1000
        self._stream = stream = object()
        while self.session_id == session_id:
            sent_ms = self.now_ms()
            ping = partial(self._ping, session_id, stream, self._mark())
            answer = await self._ask_for(ping, 1.0)
            if answer is KeepAlive.GONE:
                self._session_gone(session_id)
                return
            if answer is KeepAlive.ALIVE:
                self._answered(sent_ms)
                await asyncio.sleep(interval_s)
            elif answer is not None:
                await asyncio.sleep(0.05)

    def _ping(
        self,
        session_id: SessionId,
        stream: object,
        mark: int,
        answer: Callable[[KeepAlive], None],
    ) -> None:
        answer(self._quorum.keep_alive(session_id, stream, mark))

    def _session_gone(self, session_id: SessionId) -> None:
        if session_id != self.session_id:
            return
        self.host.note("hears that its session is lost")
        self.session_id = NO_SESSION
        for pending in self._under_way.values():
            fail(pending, "the session is closed")
        self._under_way.clear()
        for callback in list(self._lost_callbacks):
            callback()

    async def _stop_keeping_alive(self) -> None:
        if self._keeping_alive is not None:
            self._keeping_alive.cancel()
            await asyncio.gather(self._keeping_alive, return_exceptions=True)
            self._keeping_alive = None

    async def _ask_for(
        self, request: Callable[[Callable[[T], None]], None], timeout_s: float
    ) -> T | None:
        """The answer, None if it does not come in time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T | None] = loop.create_future()

        def settle(answer: T | None) -> None:
            if not future.done():
                future.set_result(answer)

        def answered(answer: T) -> None:
            self._quorum.tell(self, partial(settle, answer))

        self._ask(partial(request, answered))
        timer = loop.call_later(timeout_s, settle, None)
        try:
            return await future
        finally:
            timer.cancel()

    def _ask(self, request: Callable[[], None], *, late_s: float = 0.0) -> None:
        if self.process is self.host.process and self.host.has_effect():
            self._quorum.ask(self.host.voter_id, request, late_s=late_s)

    # -- transactions ----------------------------------------------------------------------------

    async def transact(
        self, operations: Sequence[Operation], *, atomic: bool = True, timeout_ms: int = 30_000
    ) -> TransactionResult:
        if self.session_id == NO_SESSION:
            raise SessionLost("there is no session")
        self._sequence += 1
        sequence, session_id = self._sequence, self.session_id
        encoded = encode_transaction(
            Transaction(
                operations=tuple(operations),
                atomic=atomic,
                client_id=session_id,
                sequence=sequence,
                low_water=min(self._under_way, default=sequence),
                from_client=True,
            )
        )
        if len(encoded) > Transaction.MAX_ENCODED_BYTES:
            raise TransactionTooLarge(f"{len(encoded)} bytes")
        loop = asyncio.get_running_loop()
        timeout_s = timeout_ms * self._patience / 1000
        pending = self._under_way[sequence] = _Pending(
            session_id,
            sequence,
            encoded,
            loop.create_future(),
            timeout_ms,
            loop.time() + timeout_s,
            late_s=self._quorum.lateness_s(self.host.voter_id, operations),
        )
        self._send(sequence)
        timer = loop.call_later(timeout_s, self._too_late, sequence)
        try:
            return await pending.future
        finally:
            timer.cancel()
            self._under_way.pop(sequence, None)

    def _send(self, sequence: int) -> None:
        pending = self._under_way.get(sequence)
        if pending is None or pending.future.done():
            return
        pending.times_sent += 1

        def answered(result: TransactionResult) -> None:
            self._quorum.tell(self, partial(self._settle, pending, result))

        quorum = self._quorum
        self._ask(lambda: quorum.transact(pending.encoded, answered), late_s=pending.late_s)
        asyncio.get_running_loop().call_later(RESEND_S, self._send, sequence)

    def _settle(self, pending: _Pending, result: TransactionResult) -> None:
        """Settle as the product does: what was sent before may have been applied, in a session that
        has been forgotten since."""
        settle(pending, result)
        if session_gone(pending, result):
            self._session_gone(pending.session_id)

    def _too_late(self, sequence: int) -> None:
        pending = self._under_way.get(sequence)
        if pending is not None and not pending.future.done():
            pending.future.set_exception(OutcomeUnknown("no result in time"))

    # -- reads -----------------------------------------------------------------------------------

    async def read_offset(self) -> MetadataOffset:
        def read(answer: Callable[[MetadataOffset], None]) -> None:
            if self._quorum.leads:
                answer(self._quorum.image.offset)

        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + CALL_TIMEOUT_S
        while loop.time() < deadline_s:
            offset = await self._ask_for(read, 1.0)
            if offset is not None:
                return offset
        raise QuorumUnavailable("no linearizable read")

    async def metadata_version_max(self) -> int:
        return NEWEST_METADATA_VERSION

    async def status(self) -> QuorumStatusResponse:
        return QuorumStatusResponse(voter_id=1, leader_id=1, cluster_id=CLUSTER_ID, term=1)

    async def watch(self, from_offset: MetadataOffset) -> AsyncIterator[WatchEvent]:
        """Yield events in order, late, and from a snapshot if the beginning may have been
        compacted."""
        self._told_offset = max(0, from_offset - 1)
        self._quorum.watch(self)
        self.grown()
        while True:
            yield await self._events.get()

    def grown(self) -> None:
        """There is more to be told; one piece at a time is on its way."""
        if self._telling or self.process is not self.host.process:
            return
        self._telling = True
        lag_s = self._quorum.lagging.get(self.host.voter_id, 0.0)
        self.host.world.after(self._quorum.delay() + lag_s, self._tell)

    def _tell(self) -> None:
        self._telling = False
        quorum = self._quorum
        if self.process is not self.host.process or quorum.image.offset <= self._told_offset:
            return
        if quorum.is_cut(self.host.voter_id, towards=False):
            self._telling = True
            self.host.world.after(0.1, self._tell)
            return
        event: WatchEvent
        if self._told_offset == 0 and self.host.world.chance(0.5):
            event = SnapshotLoaded(quorum.image)
        else:
            transactions = quorum.log[self._told_offset :]
            event = TransactionsApplied(list(transactions), transactions[-1][0])
        self._told_offset = quorum.image.offset
        self.host.deliver(self.process, partial(self._events.put_nowait, event))
