"""Commits appends from the event loop to disk: one transaction for all that has gathered.

Under ``log.flush=sync`` the event loop commits a little itself while the disk is quick. Otherwise a
thread commits, and the next group gathers during the fsync in progress. Under ``log.flush=os`` a
commit is a copy into the page cache. The event loop does it itself, once per iteration, which is
cheaper than passing it to a thread.

After the first failure nothing is written any more. It is not known what a failed fsync has left
behind, so a retry could acknowledge data that is not on disk. A full disk is no failure: the
transaction was aborted, so the operations keep waiting, in order, and are tried again when there is
space (``disk_space``).
"""

import asyncio
import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.stored.relocation import Relocation
from quorate.broker.log.writing.disk_space import DiskReserve
from quorate.broker.log.writing.journal import Journal
from quorate.broker.log.writing.write_operations import WriteOperation, space_freeing_first
from quorate.common.metrics.family import Timings

log = logging.getLogger(__name__)

OnDone = Callable[[Sequence[WriteOperation], Segment], None]
"""Called on the event loop, in order, when a group is done, with the segment that it was written
to."""
OnFault = Callable[[Exception], None]
"""Called on the event loop, once, when no further operation will be done."""


class CommitCallbacks(NamedTuple):
    """The functions by which a commit informs its store, on the event loop and in order."""

    done: OnDone
    failed: OnFault
    full: OnFault
    """Called when the disk is full. Nothing is done then until ``has_room`` is called."""
    has_room: Callable[[], None]


RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
"""The longest pause before the free space is checked again. The pause grows each time."""

QUICK_S: Final = 0.001
"""The time that the event loop may wait for the disk again and again, as for other work."""

LITTLE_BYTES: Final = 1 << 20
LITTLE_BATCHES: Final = 256
"""The largest commit that the event loop makes itself.

A larger one takes longer, and is worth handing over to a thread.
"""

_SIZED: Final = (PendingBatch, Relocation)
_MAX_GROUP: Final = 4096
"""The most operations in a group. It bounds the pages that a group of tiny batches can touch."""


class GroupCommit(ABC):
    """A queue of write operations, done in order, in groups of one kind.

    ``_attempt`` and ``_look_for_room`` are always called on the same thread. ``_is_stalled`` means
    that the disk was full. ``_held`` has the operations that wait for space, ahead of the queue.
    """

    def __init__(
        self, journal: Journal, group_bytes: int, reserve: DiskReserve, callbacks: CommitCallbacks
    ) -> None:
        self._journal = journal
        self._group_bytes = group_bytes
        self._reserve = reserve
        self._callbacks = callbacks
        self._queue: deque[WriteOperation] = deque()
        self._held: list[WriteOperation] = []
        self._is_stalled = not reserve.is_held
        self._retry_s = RETRY_FIRST_S
        self._loop = asyncio.get_running_loop()
        self.times = Timings()
        self._took_s = 0.0
        """The time that the last group took on disk."""

    @abstractmethod
    def submit(self, work: WriteOperation) -> None:
        """Queue ``work``. It is done after all that was submitted before it, or earlier if it frees
        space on a full disk."""

    @abstractmethod
    async def close(self) -> None:
        """Wait until all that was submitted is done, has failed, or finds no space."""

    @abstractmethod
    def _tell(self, callback: Callable[..., None], *about: Any) -> None:  # noqa: ANN401 - any
        """Call ``callback`` on the event loop, after all earlier callbacks."""

    def _attempt(self) -> bool:
        """Do the next group. Return False if nothing can be done any more.

        If the disk is full the group is held, and the reserve is released for the operations that
        free space.
        """
        group = self._take_group()
        try:
            segment = self._perform(group)
        except Exception as error:  # noqa: BLE001 - told to the store
            return self._stall(group, error)
        self._tell(self._callbacks.done, group, segment)
        return True

    def _stall(self, group: list[WriteOperation], error: Exception) -> bool:
        try:
            is_full = self._reserve.explains(error)
            if is_full:
                self._reserve.release()
        except OSError as worse:
            is_full, error = False, worse
        if not is_full:
            self._tell(self._callbacks.failed, error)
            return False
        self._held = group
        self._is_stalled = True
        self._tell(self._callbacks.full, error)
        return True

    def _look_for_room(self) -> bool:
        """While stalled, free space and then check whether there is enough. Return False if the
        disk has failed."""
        try:
            self._make_room()
            has_room = self._reserve.regain()
            if not has_room:
                self._reserve.release()
        except Exception as error:  # noqa: BLE001 - told to the store
            self._tell(self._callbacks.failed, error)
            return False
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
        if has_room:
            self._is_stalled = False
            self._queue.extendleft(reversed(self._held))
            self._held = []
            self._tell(self._callbacks.has_room)
        return True

    def _make_room(self) -> None:
        """Do the operations that free space, as far as there is space for them. The others keep
        waiting."""
        while self._queue:
            self._held.append(self._queue.popleft())
        first, self._held = space_freeing_first(self._held)
        while first:
            group = list(next(groupby(first, type))[1])
            try:
                segment = self._perform(group)
            except Exception as error:
                if not self._reserve.explains(error):
                    raise
                self._held = first + self._held
                return
            del first[: len(group)]
            self._tell(self._callbacks.done, group, segment)

    def _perform(self, group: list[WriteOperation]) -> Segment:
        begun_s = time.perf_counter()
        segment = self._journal.perform(group)
        self._took_s = time.perf_counter() - begun_s
        self.times.observe(self._took_s)
        self._retry_s = RETRY_FIRST_S
        return segment

    def _take_group(self) -> list[WriteOperation]:
        """Return the next operations of one kind, with about ``group_bytes`` of batches."""
        queue = self._queue
        first = queue.popleft()
        group = [first]
        kind = type(first)
        size = first.size if isinstance(first, _SIZED) else 0
        while queue and type(queue[0]) is kind and len(group) < _MAX_GROUP:
            work = queue[0]
            if isinstance(work, _SIZED):
                size += work.size
                if size > self._group_bytes:
                    break
            group.append(queue.popleft())
        return group


class DiskPace:
    """Says when the event loop may wait for the disk itself, by how long it waited before.

    A short wait is cheaper than handing the work over to a thread. After a longer one the loop
    keeps away from the disk for so long that all its long waits are 1 % of its time.
    """

    def __init__(self) -> None:
        self._again_at_s = -math.inf

    def may_wait(self, now_s: float) -> bool:
        """Return whether the loop may wait at this time."""
        return now_s >= self._again_at_s

    def waited(self, took_s: float, now_s: float) -> None:
        """Note that the loop has waited for ``took_s``, until now."""
        self._again_at_s = now_s + 100 * max(0.0, took_s - QUICK_S)


class SyncedCommit(GroupCommit):
    """Commits with an fsync: a little on the event loop while the disk is quick, the rest in a
    thread of its own.

    The thread has to wait for a processor and for the interpreter, and so has the event loop for
    its answer: on a busy machine both take far longer than the fsync of a quick disk. What is much
    goes to the thread all the same, because more is taken in during its fsync.

    One of the two has the queue's front and the journal. The loop lends both to the thread, and
    has them back when the thread's last callback runs.
    """

    def __init__(
        self, journal: Journal, group_bytes: int, reserve: DiskReserve, callbacks: CommitCallbacks
    ) -> None:
        super().__init__(journal, group_bytes, reserve, callbacks)
        self._pace = DiskPace()
        self._scheduled = False
        self._failed = False
        self._closing = False
        self._is_lent = False
        """Whether the thread has the journal, as the event loop knows it."""
        self._thread_has_it = False
        """Whether the thread has the journal, as the thread knows it."""
        self._asleep = threading.Lock()
        """Held while there is nothing for the thread to do. Only the loop releases it."""
        self._asleep.acquire()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()
        if self._is_stalled:
            self._lend()

    def submit(self, work: WriteOperation) -> None:
        self._queue.append(work)
        if self._is_lent:
            if self._is_stalled:
                self._wake_thread()
        else:
            self._schedule()

    async def close(self) -> None:
        self._closing = True
        self._lend()
        await asyncio.to_thread(self._thread.join)

    def _tell(self, callback: Callable[..., None], *about: Any) -> None:  # noqa: ANN401 - any
        if self._is_lent:
            self._loop.call_soon_threadsafe(callback, *about)
        else:
            callback(*about)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """Commit what this iteration of the event loop has submitted, or have it committed."""
        self._scheduled = False
        if self._is_lent or self._failed:
            return
        if not (self._is_little() and self._pace.may_wait(time.perf_counter())):
            self._lend()
            return
        try:
            self._failed = not self._attempt()
        finally:
            self._pace.waited(self._took_s, time.perf_counter())
            if self._is_stalled:
                self._lend()
            elif self._queue:
                self._schedule()

    def _is_little(self) -> bool:
        """Return whether batches alone wait, few and small ones."""
        size = 0
        for work in self._queue:
            if not isinstance(work, PendingBatch):
                return False
            size += work.size
        return size <= LITTLE_BYTES and len(self._queue) <= LITTLE_BATCHES

    def _lend(self) -> None:
        self._is_lent = self._thread_has_it = True
        self._wake_thread()

    def _take_back(self) -> None:
        if not self._closing:
            self._is_lent = False
            if self._queue:
                self._schedule()

    def _wake_thread(self) -> None:
        if self._asleep.locked():
            self._asleep.release()

    def _run(self) -> None:
        while True:
            self._asleep.acquire(timeout=self._retry_s if self._is_stalled else -1)
            closing = self._closing
            if self._failed:
                return
            if not (self._thread_has_it or closing):
                continue
            if self._is_stalled and not self._look_for_room():
                return
            while self._queue and not self._is_stalled:
                if not self._attempt():
                    return
            if closing:
                return
            if not self._is_stalled:
                self._thread_has_it = False
                self._tell(self._take_back)


class InlineCommit(GroupCommit):
    """Commits on the event loop, after the callbacks that appended."""

    def __init__(
        self, journal: Journal, group_bytes: int, reserve: DiskReserve, callbacks: CommitCallbacks
    ) -> None:
        super().__init__(journal, group_bytes, reserve, callbacks)
        self._scheduled = False
        self._failed = False
        self._retry: asyncio.TimerHandle | None = None
        if self._is_stalled:
            self._retry_later()

    def submit(self, work: WriteOperation) -> None:
        self._queue.append(work)
        self._schedule()

    async def close(self) -> None:
        if self._is_stalled:
            self._schedule()
        while self._scheduled:
            await asyncio.sleep(0)
        if self._retry is not None:
            self._retry.cancel()

    def _tell(self, callback: Callable[..., None], *about: Any) -> None:  # noqa: ANN401 - any
        callback(*about)

    def _schedule(self) -> None:
        if not self._scheduled and not self._failed:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _retry_later(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._loop.call_later(self._retry_s, self._schedule)

    def _run(self) -> None:
        """Commit one group per iteration of the event loop, which takes about a millisecond at
        most."""
        self._scheduled = False
        try:
            if self._is_stalled:
                self._failed = not self._look_for_room()
            elif self._queue:
                self._failed = not self._attempt()
        finally:
            if self._is_stalled and not self._failed:
                self._retry_later()
            elif self._queue:
                self._schedule()
