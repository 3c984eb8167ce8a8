"""The event queue and the writer of one controller's tenure.

Each event is handled to its end before the next begins, so every decision is based on the image
with the changes of the one before. Broker failures go ahead of elections that are asked for, and
those ahead of other admin requests. A flood of topic creations delays an election by at most one
event, because requests are queued in pieces.

A process that is stopped and continued (SIGSTOP, a paused machine, a long computation) may be about
to write or send while another controller is active already. It calls ``TenureGuard.may_act`` before
each write and send, because the timer that would notice the pause may run later in the event loop.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import IntEnum
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from quorate.broker.control.ports import Transactor
from quorate.broker.controller.managers.decisions import ControllerTenure, split
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.metrics.family import Timings
from quorate.common.types import BrokerId, ControllerEpoch, MetadataOffset
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import (
    ChangeNote,
    Operation,
    OperationResult,
    ResultCode,
    TransactionResult,
)
from quorate_proto.v1 import admin_pb2

log = logging.getLogger(__name__)

T = TypeVar("T")

ControllerEvent = Callable[[], Awaitable[None]]

BEATS_PER_LIMIT: Final = 4
"""The number of checks per session timeout that the event loop runs. A busy loop is not taken for a
stopped one."""

NOTE_TEXT_MAX: Final = 256
"""The number of characters that are kept of a client's self-description."""

FIRST_VERSION_WITH_NOTES: Final = 3
"""The first metadata_version in which the metadata log can hold notes."""

DEFAULT_TIMEOUT_MS: Final = 30_000
"""The timeout of a request that has none."""


class TenureEnded(Exception):
    """Raised when this controller is no longer active. The requester must ask the new one
    (NOT_CONTROLLER)."""


# --- the end of a tenure ------------------------------------------------------------------------


def stood_still(last_beat_s: float, now_s: float, limit_ms: int) -> bool:
    """Return whether the session may have expired between two runs of the event loop."""
    return (now_s - last_beat_s) * 1000 >= limit_ms


class TenureGuard:
    """Detects what ends a tenure, and informs the elector.

    It detects one reason by itself: the event loop stood still for longer than the controller's
    session lasts (E4). From then on the controller may not act.
    """

    def __init__(
        self,
        tenure: ControllerTenure,
        *,
        session_timeout_ms: int,
        on_end: Callable[[ControllerEpoch], None],
    ) -> None:
        self._tenure = tenure
        self._limit_ms = session_timeout_ms
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._last_beat_s = self._loop.time()
        self._stalled = False
        self._next_beat: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Watch the event loop from now on."""
        self._beat()

    def close(self) -> None:
        """Stop watching."""
        if self._next_beat is not None:
            self._next_beat.cancel()

    def end(self) -> None:
        """End this tenure, because its controller was refused or cannot continue."""
        self._on_end(self._tenure.controller_epoch)

    def observe_controller_epoch(self, controller_epoch: ControllerEpoch) -> bool:
        """End this tenure if ``controller_epoch``, which another node knows, is a later one (E3).

        Return whether it is.
        """
        is_later = controller_epoch > self._tenure.controller_epoch
        if is_later:
            self.end()
        return is_later

    def may_act(self) -> bool:
        """Return whether this controller may still write and send."""
        now_s = self._loop.time()
        if not self._stalled and stood_still(self._last_beat_s, now_s, self._limit_ms):
            self._stalled = True
            log.warning(
                "the event loop stood still for %.0f ms, longer than the session's %d ms: "
                "the controller gives up its office",
                (now_s - self._last_beat_s) * 1000,
                self._limit_ms,
            )
            self.end()
        return not self._stalled

    def _beat(self) -> None:
        if self.may_act():
            self._last_beat_s = self._loop.time()
            pause_s = self._limit_ms / 1000 / BEATS_PER_LIMIT
            self._next_beat = self._loop.call_later(pause_s, self._beat)


# --- the event loop -----------------------------------------------------------------------------


class EventPriority(IntEnum):
    """The priorities of events. Events of one priority are handled in order of arrival.

    Elections go ahead of other admin requests, because they make partitions available: an operator
    who asks for one does not wait behind everything that others create and delete.
    """

    BROKERS = 0
    ELECTIONS = 1
    ADMIN = 2


class _QueuedEvent(NamedTuple):
    work: ControllerEvent
    queued_s: float


class EventTimes(NamedTuple):
    """How long events waited for their turn, and how long they took."""

    queue: Timings
    processing: Timings


class _EventsOfPriority:
    """The events of one priority that wait, and the times of those that had their turn."""

    def __init__(self) -> None:
        self.waiting: deque[_QueuedEvent] = deque()
        self.times = EventTimes(Timings(), Timings())


class EventQueue:
    """One queue per priority, and the one task that handles the events.

    ``on_fault`` is called when an event fails whose result nobody waits for. Its decision is not
    made, so another controller should try.
    """

    def __init__(self, on_fault: Callable[[], None]) -> None:
        self._on_fault = on_fault
        self._events = {priority: _EventsOfPriority() for priority in EventPriority}
        self._clock_s = asyncio.get_running_loop().time
        self._wake = asyncio.Event()
        self._unanswered: dict[asyncio.Future[Any], None] = {}
        """In the order in which they asked: the order of a set differs from run to run."""
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the number of events that are queued (Q9)."""
        return sum(len(events.waiting) for events in self._events.values())

    def times(self, priority: EventPriority) -> EventTimes:
        """Return how long the events of a priority have waited and taken (Q9)."""
        return self._events[priority].times

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="controller-events")

    async def close(self) -> None:
        """Stop at once. Callers that wait for an event get ``TenureEnded``."""
        self._closed = True
        for waiting in self._unanswered:
            if not waiting.done():
                waiting.set_exception(TenureEnded())
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def put(self, priority: EventPriority, work: ControllerEvent) -> None:
        """Queue ``work``, which handles its own errors."""
        if not self._closed:
            self._events[priority].waiting.append(_QueuedEvent(work, self._clock_s()))
            self._wake.set()

    async def run(self, priority: EventPriority, work: Callable[[], Awaitable[T]]) -> T:
        """Queue ``work`` and wait for its result.

        A caller that stops waiting does not stop the work.

        Raises:
            TenureEnded: the tenure ended before the work was done.
            Exception: what ``work`` raised.
        """
        if self._closed:
            raise TenureEnded
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def work_and_answer() -> None:
            try:
                result = await work()
            except Exception as error:  # noqa: BLE001 - handed to the one who waits
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        self._unanswered[answer] = None
        self.put(priority, work_and_answer)
        try:
            return await answer
        finally:
            self._unanswered.pop(answer, None)

    async def _run(self) -> None:
        while True:
            events = self._next()
            if events is None:
                self._wake.clear()
                await self._wake.wait()
            else:
                await self._handle_first(events)

    def _next(self) -> _EventsOfPriority | None:
        """Return the events of the first priority of which some wait."""
        for priority in EventPriority:
            if self._events[priority].waiting:
                return self._events[priority]
        return None

    async def _handle_first(self, events: _EventsOfPriority) -> None:
        event, begun_s = events.waiting.popleft(), self._clock_s()
        events.times.queue.observe(begun_s - event.queued_s)
        try:
            await event.work()
        except Exception:
            log.exception("the controller could not handle an event and gives up its office")
            self._on_fault()
        events.times.processing.observe(self._clock_s() - begun_s)


# --- the writer ---------------------------------------------------------------------------------


class Requester:
    """The principal, host, client id and API that asked for a change, passed on to the write.

    ``metadata_offset`` is the offset of the newest write that was made for it, or 0 before any.
    """

    def __init__(self, note: ChangeNote, timeout_ms: float = DEFAULT_TIMEOUT_MS) -> None:
        self.note = note
        self.timeout_ms = timeout_ms
        self.metadata_offset = MetadataOffset(0)

    @classmethod
    def of(cls, context: admin_pb2.RequestContext, rpc: str) -> "Requester":
        """Return the requester of a request with ``context``."""
        note = ChangeNote(
            principal=context.principal_name[:NOTE_TEXT_MAX],
            client_host=context.client_host[:NOTE_TEXT_MAX],
            client_id=context.client_id[:NOTE_TEXT_MAX],
            api=(context.api_name or rpc)[:NOTE_TEXT_MAX],
            forwarded_by=BrokerId(context.forwarded_by),
        )
        return cls(note, context.timeout_ms if context.timeout_ms > 0 else DEFAULT_TIMEOUT_MS)

    def written(self, offset: MetadataOffset) -> None:
        """Record that something was written for this requester at ``offset``."""
        self.metadata_offset = max(self.metadata_offset, offset)


class WriteRequest(NamedTuple):
    """The operations to write for one requester. None stands for the controller itself."""

    requester: Requester | None
    operations: Sequence[Operation]


def with_change_note(image: Image, request: WriteRequest) -> Iterable[Operation]:
    """Return the operations of ``request``, each with the requester's note ahead of its records.

    The operations stay as they are where the controller writes by itself, and before
    metadata_version 3, when the log cannot hold notes.
    """
    if request.requester is None or image.metadata_version < FIRST_VERSION_WITH_NOTES:
        return request.operations
    note = request.requester.note
    return [
        Operation(records=(note, *one.records), conditions=one.conditions)
        for one in request.operations
    ]


class Writer(ABC):
    """Writes the operations of decisions to the metadata log. All of them go through it.

    A controller has a ``ControllerWriter``, a broker at inter_broker_protocol 1 a ``BridgeWriter``.
    """

    def __init__(self, quorum: Transactor, images: MetadataFollower) -> None:
        self._quorum = quorum
        self._images = images

    @property
    def image(self) -> Image:
        """The newest image."""
        return self._images.image

    async def commit(
        self, operations: Sequence[Operation], requester: Requester | None = None
    ) -> list[OperationResult]:
        """Commit independent operations, in as few transactions as possible (C3).

        ``requester`` is None where the controller writes by itself. Return one result per
        operation. The image contains all of them on return.

        Raises:
            TenureEnded: Another controller is active.
            QuorumError: The quorum did not answer. Some of the operations may have been applied.
        """
        (results,) = await self.commit_together([WriteRequest(requester, operations)])
        return results

    @abstractmethod
    async def commit_together(
        self, requests: Sequence[WriteRequest]
    ) -> list[list[OperationResult]]:
        """Commit for several requesters at once, in order. Return the results of each."""


class ControllerWriter(Writer):
    """Writes in a tenure, which operations carry as a condition."""

    def __init__(self, quorum: Transactor, images: MetadataFollower, guard: TenureGuard) -> None:
        super().__init__(quorum, images)
        self._guard = guard

    async def commit_together(
        self, requests: Sequence[WriteRequest]
    ) -> list[list[OperationResult]]:
        if not any(request.operations for request in requests):
            return [[] for _ in requests]
        if not self._guard.may_act():
            raise TenureEnded
        image = self._images.image
        operations = (
            operation for request in requests for operation in with_change_note(image, request)
        )
        outcomes = await asyncio.gather(
            *(self._quorum.transact(batch, atomic=False) for batch in split(operations)),
            return_exceptions=True,
        )
        written = [_raised(outcome) for outcome in outcomes]
        answers = [(answer, one.offset) for one in written for answer in one.results]
        fenced = next((a for a, _ in answers if a.code is ResultCode.CONTROLLER_FENCED), None)
        if fenced is not None:
            log.info("a write was refused: %s", fenced.detail)
            self._guard.end()
            raise TenureEnded
        await self._images.wait_for(max(one.offset for one in written))
        return _results_per_request(requests, answers)


def _results_per_request(
    requests: Sequence[WriteRequest], answers: Iterable[tuple[OperationResult, MetadataOffset]]
) -> list[list[OperationResult]]:
    left = iter(answers)
    results = []
    for request in requests:
        own = list(islice(left, len(request.operations)))
        if request.requester is not None and own:
            request.requester.written(max(offset for _, offset in own))
        results.append([answer for answer, _ in own])
    return results


def _raised(outcome: TransactionResult | BaseException) -> TransactionResult:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
