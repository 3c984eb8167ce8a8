"""From appends on the event loop to commits on disk: one transaction for all that has gathered.

Under ``log.flush=sync`` a thread commits, and the fsync in progress is the window in which the next
group gathers. Under ``log.flush=os`` a commit is a copy into the page cache: the loop does it
itself, once per iteration, which is cheaper than handing it over.

After the first fault nothing is written any more: what a failed fsync left behind is not known, so
trying again could acknowledge what is not there.
"""

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from broker.log.journal import Journal
from broker.log.segment import Segment
from broker.log.work import PendingBatch, Work
from quorum.metrics.family import Timings

log = logging.getLogger(__name__)

OnDone = Callable[[Sequence[Work], Segment], None]
"""A group is done, with the segment that took it. On the event loop, in order."""
OnFault = Callable[[Exception], None]
"""Nothing will be done any more. On the event loop, once."""

_MAX_GROUP: Final = 4096
"""Works per group: bounds the pages that a group of tiny batches can touch."""


class GroupCommit(ABC):
    """A queue of work, done in order, in groups of one kind."""

    def __init__(
        self, journal: Journal, group_bytes: int, on_done: OnDone, on_fault: OnFault
    ) -> None:
        self._journal = journal
        self._group_bytes = group_bytes
        self._on_done = on_done
        self._on_fault = on_fault
        self._queue: deque[Work] = deque()
        self._loop = asyncio.get_running_loop()
        self.times = Timings()

    @abstractmethod
    def submit(self, work: Work) -> None:
        """Have ``work`` done after all that was submitted before it."""

    @abstractmethod
    async def close(self) -> None:
        """Return when all that was submitted is done, or has failed."""

    def _perform(self, group: list[Work]) -> Segment:
        begun_s = time.perf_counter()
        segment = self._journal.perform(group)
        self.times.observe(time.perf_counter() - begun_s)
        return segment

    def _take_group(self) -> list[Work]:
        """The next works of one kind, about ``group_bytes`` of batches."""
        queue = self._queue
        first = queue.popleft()
        group = [first]
        kind = type(first)
        size = first.size if isinstance(first, PendingBatch) else 0
        while queue and type(queue[0]) is kind and len(group) < _MAX_GROUP:
            work = queue[0]
            if isinstance(work, PendingBatch):
                size += work.size
                if size > self._group_bytes:
                    break
            group.append(queue.popleft())
        return group


class ThreadedCommit(GroupCommit):
    """Commits in a thread of its own."""

    def __init__(
        self, journal: Journal, group_bytes: int, on_done: OnDone, on_fault: OnFault
    ) -> None:
        super().__init__(journal, group_bytes, on_done, on_fault)
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
        self._queue.append(work)
        if not self._wake.is_set():
            self._wake.set()

    async def close(self) -> None:
        self._closing = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            # Before looking at the queue: what is submitted from here on wakes us again.
            self._wake.clear()
            closing = self._closing
            while self._queue:
                group = self._take_group()
                try:
                    segment = self._perform(group)
                except Exception as error:  # noqa: BLE001 - told on the loop, which stops the store
                    self._loop.call_soon_threadsafe(self._on_fault, error)
                    return
                self._loop.call_soon_threadsafe(self._on_done, group, segment)
            if closing:
                return


class InlineCommit(GroupCommit):
    """Commits on the event loop, after the callbacks that appended."""

    def __init__(
        self, journal: Journal, group_bytes: int, on_done: OnDone, on_fault: OnFault
    ) -> None:
        super().__init__(journal, group_bytes, on_done, on_fault)
        self._scheduled = False
        self._failed = False

    def submit(self, work: Work) -> None:
        self._queue.append(work)
        if not self._scheduled and not self._failed:
            self._scheduled = True
            self._loop.call_soon(self._run)

    async def close(self) -> None:
        while self._scheduled:
            await asyncio.sleep(0)

    def _run(self) -> None:
        """One group per loop iteration: about a millisecond at most."""
        self._scheduled = False
        group = self._take_group()
        try:
            segment = self._perform(group)
        except Exception as error:  # noqa: BLE001 - told to the store, which stops
            self._failed = True
            self._on_fault(error)
            return
        if self._queue:
            self._scheduled = True
            self._loop.call_soon(self._run)
        self._on_done(group, segment)
