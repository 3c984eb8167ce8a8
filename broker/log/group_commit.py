"""From appends on the event loop to commits on disk: one transaction for all that has gathered.

Under ``log.flush=sync`` a thread commits, and the fsync in progress is the window in which the next
group gathers. Under ``log.flush=os`` a commit is a copy into the page cache: the loop does it
itself, once per iteration, which is cheaper than handing it over.

After the first fault nothing is written any more: what a failed fsync left behind is not known, so
trying again could acknowledge what is not there. Want of room is none: the transaction was aborted,
so what waited goes on waiting, in its order, and is tried again when there is room (``room``).
"""

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from broker.log.journal import Journal
from broker.log.room import Reserve, room_first
from broker.log.segment import Segment
from broker.log.work import PendingBatch, Relocation, Work
from quorum.metrics.family import Timings

log = logging.getLogger(__name__)

OnDone = Callable[[Sequence[Work], Segment], None]
"""A group is done, with the segment that took it. On the event loop, in order."""
OnFault = Callable[[Exception], None]
"""Nothing will be done any more. On the event loop, once."""


class Callbacks(NamedTuple):
    """What a commit tells its store, on the event loop and in order."""

    done: OnDone
    failed: OnFault
    full: OnFault
    """Nothing is done for want of room, until ``has_room`` is called."""
    has_room: Callable[[], None]


RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
"""How long to wait for room before looking again, longer each time."""

_MAX_GROUP: Final = 4096
"""Works per group: bounds the pages that a group of tiny batches can touch."""


class GroupCommit(ABC):
    """A queue of work, done in order, in groups of one kind.

    Whoever calls ``_attempt`` and ``_look_for_room`` does so on one thread. ``is_stalled``: there
    was no room, and ``_held`` has what waits for some, before the queue.
    """

    def __init__(
        self, journal: Journal, group_bytes: int, reserve: Reserve, callbacks: Callbacks
    ) -> None:
        self._journal = journal
        self._group_bytes = group_bytes
        self._reserve = reserve
        self._callbacks = callbacks
        self._queue: deque[Work] = deque()
        self._held: list[Work] = []
        self._is_stalled = not reserve.is_held
        self._retry_s = RETRY_FIRST_S
        self._loop = asyncio.get_running_loop()
        self.times = Timings()

    @abstractmethod
    def submit(self, work: Work) -> None:
        """Have ``work`` done after all that was submitted before it, or sooner for ``room``."""

    @abstractmethod
    async def close(self) -> None:
        """Return when all that was submitted is done, or has failed, or finds no room."""

    @abstractmethod
    def _tell(self, callback: Callable[..., None], *about: Any) -> None:  # noqa: ANN401 - any
        """Call ``callback`` on the event loop, after all that was told before."""

    def _attempt(self) -> bool:
        """Do the next group; False: nothing can be done any more.

        For want of room the group is held, and the reserve is given up for what makes some.
        """
        group = self._take_group()
        try:
            segment = self._perform(group)
        except Exception as error:  # noqa: BLE001 - told to the store
            return self._stall(group, error)
        self._tell(self._callbacks.done, group, segment)
        return True

    def _stall(self, group: list[Work], error: Exception) -> bool:
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
        """While stalled: make room, then see whether there is enough; False: all has failed."""
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
        """Do what makes room, as far as there is room for that; the rest waits on."""
        while self._queue:
            self._held.append(self._queue.popleft())
        first, self._held = room_first(self._held)
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

    def _perform(self, group: list[Work]) -> Segment:
        begun_s = time.perf_counter()
        segment = self._journal.perform(group)
        self.times.observe(time.perf_counter() - begun_s)
        self._retry_s = RETRY_FIRST_S
        return segment

    def _take_group(self) -> list[Work]:
        """The next works of one kind, about ``group_bytes`` of batches."""
        queue = self._queue
        first = queue.popleft()
        group = [first]
        kind = type(first)
        size = first.size if isinstance(first, PendingBatch | Relocation) else 0
        while queue and type(queue[0]) is kind and len(group) < _MAX_GROUP:
            work = queue[0]
            if isinstance(work, PendingBatch | Relocation):
                size += work.size
                if size > self._group_bytes:
                    break
            group.append(queue.popleft())
        return group


class ThreadedCommit(GroupCommit):
    """Commits in a thread of its own."""

    def __init__(
        self, journal: Journal, group_bytes: int, reserve: Reserve, callbacks: Callbacks
    ) -> None:
        super().__init__(journal, group_bytes, reserve, callbacks)
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

    def _tell(self, callback: Callable[..., None], *about: Any) -> None:  # noqa: ANN401 - any
        self._loop.call_soon_threadsafe(callback, *about)

    def _run(self) -> None:
        while True:
            self._wake.wait(self._retry_s if self._is_stalled else None)
            # Before looking at the queue: what is submitted from here on wakes us again.
            self._wake.clear()
            closing = self._closing
            if self._is_stalled and not self._look_for_room():
                return
            while self._queue and not self._is_stalled:
                if not self._attempt():
                    return
            if closing:
                return


class InlineCommit(GroupCommit):
    """Commits on the event loop, after the callbacks that appended."""

    def __init__(
        self, journal: Journal, group_bytes: int, reserve: Reserve, callbacks: Callbacks
    ) -> None:
        super().__init__(journal, group_bytes, reserve, callbacks)
        self._scheduled = False
        self._failed = False
        self._retry: asyncio.TimerHandle | None = None
        if self._is_stalled:
            self._retry_later()

    def submit(self, work: Work) -> None:
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
        """One group per loop iteration: about a millisecond at most."""
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
