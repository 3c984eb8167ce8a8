"""Commits with an fsync (``log.flush=sync``): on the event loop while that is quick and little,
else in a thread, and the next group gathers during its fsync."""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.writing.disk_space import DiskReserve
from quorate.broker.log.writing.group_commit import CommitCallbacks, GroupCommit
from quorate.broker.log.writing.journal import Journal
from quorate.broker.log.writing.write_operations import WriteOperation

QUICK_S: Final = 0.001
"""The time that the event loop may wait for the disk again and again, as for other work."""

LITTLE_BYTES: Final = 1 << 20
LITTLE_BATCHES: Final = 256
"""The largest commit that the event loop makes itself.

A larger one takes longer, and is worth handing over to a thread.
"""


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
