"""Produce requests that wait until their batches are durable or committed, or until it is too late.

A request is done when the outcomes of all its entries are known. Each entry that is not known waits
in the ``ProducePurgatory`` of its partition.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Final

from quorate.broker.replication.api import ProduceOutcome
from quorate_proto.v1 import errors_pb2

_MS: Final = 0.001
_TOO_LATE: Final = "appended, but not acknowledged by enough replicas within the request's timeout"


class ProduceDeadlines:
    """Expires requests that wait for too long, by one timer for all of them.

    A timer for each would cost more than the rest of its waiting. Producers have few timeouts, and
    the requests of one timeout are due in the order in which they came.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, dict[DelayedProduce, float]] = {}
        """When each request is due, in the time of the event loop, by timeout in ms."""
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at_s = float("inf")

    def add(self, pending: "DelayedProduce", timeout_ms: int) -> None:
        """Expire the request after so long, unless it is done before."""
        due_s = asyncio.get_running_loop().time() + timeout_ms * _MS
        self._waiting.setdefault(timeout_ms, {})[pending] = due_s
        if due_s < self._rings_at_s:
            self._ring_at(due_s)

    def remove(self, pending: "DelayedProduce", timeout_ms: int) -> None:
        """Forget a request that is done."""
        waiting = self._waiting[timeout_ms]
        del waiting[pending]
        if not waiting:
            del self._waiting[timeout_ms]

    def _ring_at(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at_s = due_s
        self._timer = asyncio.get_running_loop().call_at(due_s, self._ring)

    def _ring(self) -> None:
        now_s = self._rings_at_s
        self._timer, self._rings_at_s = None, float("inf")
        for waiting in [*self._waiting.values()]:
            while waiting:
                pending, due_s = next(iter(waiting.items()))
                if due_s > now_s:
                    break
                pending.expire()
        due = [next(iter(waiting.values())) for waiting in self._waiting.values()]
        if due:
            self._ring_at(min(due))


class DelayedProduce:
    """One produce request: its outcomes by position, and how many of them are still open."""

    __slots__ = ("_deadlines", "_on_done", "_open", "_timeout_ms", "outcomes")

    def __init__(self) -> None:
        self.outcomes: list[ProduceOutcome] = []
        self._open: set[int] = set()
        self._on_done: Callable[[], object] | None = None
        self._deadlines: ProduceDeadlines | None = None
        self._timeout_ms = 0

    def expect(self) -> int:
        """Keep the outcome that was just added open, and return its position."""
        position = len(self.outcomes) - 1
        self._open.add(position)
        return position

    @property
    def done(self) -> bool:
        """Whether every outcome is known."""
        return not self._open

    def is_open(self, position: int) -> bool:
        """Say whether the outcome at ``position`` is not known yet."""
        return position in self._open

    def settle(self, position: int, error_code: int, message: str | None) -> None:
        """Close one entry. With NONE its outcome stays as it is.

        The outcome of an entry that was appended has an offset already: it stays in the log.
        """
        if position not in self._open:
            return
        self._open.discard(position)
        if error_code != errors_pb2.NONE:
            was_appended = self.outcomes[position].base_offset >= 0
            self.outcomes[position] = ProduceOutcome(error_code, message, was_appended=was_appended)
        if not self._open:
            self._end()

    def expire_after(self, timeout_ms: int, deadlines: ProduceDeadlines) -> None:
        """Have what is open after ``timeout_ms`` become REQUEST_TIMED_OUT."""
        if self._open:
            self._deadlines, self._timeout_ms = deadlines, max(0, timeout_ms)
            deadlines.add(self, self._timeout_ms)

    def expire(self) -> None:
        """Close all that is open: it is too late."""
        for position in list(self._open):
            self.settle(position, errors_pb2.REQUEST_TIMED_OUT, _TOO_LATE)

    def when_done(self, on_done: Callable[[], object]) -> None:
        """Call ``on_done`` in a pass of the event loop after the request is done, which it is not
        yet: not within the append or the commit that ends it.
        """
        self._on_done = on_done

    async def wait(self) -> list[ProduceOutcome]:
        """Return the outcomes when all of them are known."""
        if self._open:
            done = asyncio.Event()
            self.when_done(done.set)
            await done.wait()
        return self.outcomes

    def _end(self) -> None:
        deadlines, self._deadlines = self._deadlines, None
        if deadlines is not None:
            deadlines.remove(self, self._timeout_ms)
        if self._on_done is not None:
            asyncio.get_running_loop().call_soon(self._on_done)


class ProducePurgatory:
    """The produce entries of one partition that wait for an offset, in the order of the offsets.

    One pass per flush group completes every entry that an advance has reached.
    """

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[int, DelayedProduce, int]] | None = None
        """None until somebody waits: an empty queue takes 760 bytes in each of 7,000 partitions."""

    def __len__(self) -> int:
        return len(self._queue or ())

    def add(self, needed_offset: int, pending: DelayedProduce, position: int) -> None:
        """Settle the entry at ``position`` of ``pending`` once all below the offset is there."""
        queue = self._queue
        if queue is None:
            queue = self._queue = deque()
        elif len(queue) > 1024 and queue[0][1].done:
            queue = self._queue = deque(entry for entry in queue if not entry[1].done)
        if queue and needed_offset < queue[-1][0]:
            # A batch that was sent again waits for its original, behind which there are others.
            place = bisect_right(queue, needed_offset, key=_offset_of)
            queue.insert(place, (needed_offset, pending, position))
        else:
            queue.append((needed_offset, pending, position))

    def complete(self, offset: int) -> None:
        """Settle the entries that wait for ``offset`` or less: everything below it is there."""
        queue = self._queue
        if queue is None:
            return
        while queue and queue[0][0] <= offset:
            _, pending, position = queue.popleft()
            pending.settle(position, errors_pb2.NONE, None)
        if not queue:
            self._queue = None

    def fail(self, error_code: int, message: str) -> None:
        """Settle all entries with that Kafka error."""
        queue, self._queue = self._queue, None
        for _, pending, position in queue or ():
            pending.settle(position, error_code, message)


def _offset_of(waiting: tuple[int, DelayedProduce, int]) -> int:
    return waiting[0]
