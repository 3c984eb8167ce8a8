"""Who waits for an offset, or for news of a partition.

A produce request is one future for all its partitions. Entries wait in queues by the offset they
need; one pass per flush group completes every entry that an advance has reached.
"""

import asyncio
from collections import deque

from broker.replication.api import ProduceOutcome
from quorate_proto.v1 import errors_pb2


class PendingProduce:
    """One produce request: outcomes by position, and how many are still open."""

    __slots__ = ("_future", "_open", "_timer", "outcomes")

    def __init__(self) -> None:
        self.outcomes: list[ProduceOutcome] = []
        self._open: set[int] = set()
        self._future: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def expect(self) -> int:
        """Keep the outcome just added open; returns its position."""
        position = len(self.outcomes) - 1
        self._open.add(position)
        return position

    @property
    def done(self) -> bool:
        """Whether every outcome is known."""
        return not self._open

    def is_open(self, position: int) -> bool:
        """Whether the outcome at ``position`` is not known yet."""
        return position in self._open

    def settle(self, position: int, error_code: int, message: str | None) -> None:
        """Close one entry: as it is if ``error_code`` is NONE."""
        if position not in self._open:
            return
        self._open.discard(position)
        if error_code != errors_pb2.NONE:
            self.outcomes[position] = ProduceOutcome(error_code, message)
        if not self._open and self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout_ms: int) -> list[ProduceOutcome]:
        """The outcomes; what is still open after ``timeout_ms`` becomes REQUEST_TIMED_OUT."""
        if self._open:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            self._timer = loop.call_later(max(0, timeout_ms) / 1000, self._expire)
            try:
                await self._future
            finally:
                self._timer.cancel()
        return self.outcomes

    def _expire(self) -> None:
        message = "appended, but not acknowledged by enough replicas within the request's timeout"
        for position in list(self._open):
            self.settle(position, errors_pb2.REQUEST_TIMED_OUT, message)


class OffsetWaiters:
    """Produce entries of one partition by the offset they need; offsets are added in order."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[int, PendingProduce, int]] | None = None
        """None until somebody waits: an empty one has 760 bytes, in each of 7,000 partitions."""

    def __len__(self) -> int:
        return len(self._queue or ())

    def add(self, needed_offset: int, pending: PendingProduce, position: int) -> None:
        """Settle the entry at ``position`` of ``pending`` once all below the offset is there."""
        queue = self._queue
        if queue is None:
            queue = self._queue = deque()
        elif len(queue) > 1024 and queue[0][1].done:
            queue = self._queue = deque(entry for entry in queue if not entry[1].done)
        queue.append((needed_offset, pending, position))

    def complete(self, offset: int) -> None:
        """Everything below ``offset`` is there."""
        queue = self._queue
        if queue is None:
            return
        while queue and queue[0][0] <= offset:
            _, pending, position = queue.popleft()
            pending.settle(position, errors_pb2.NONE, None)
        if not queue:
            self._queue = None

    def fail(self, error_code: int, message: str) -> None:
        """Nobody waits any more: all are told that Kafka error."""
        queue, self._queue = self._queue, None
        for _, pending, position in queue or ():
            pending.settle(position, error_code, message)


class Wakeup:
    """One task sleeps, others wake it; a wake-up before the sleep is not lost."""

    __slots__ = ("_future", "_set")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._set = False

    def wake(self) -> None:
        """Also for who goes to sleep later; once, however often it is called before."""
        self._set = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return when woken, or after ``timeout_s``; forgets the wake-up."""
        if not self._set:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = None if timeout_s is None else loop.call_later(max(0.0, timeout_s), self.wake)
            try:
                await self._future
            finally:
                self._future = None
                if timer is not None:
                    timer.cancel()
        self._set = False
