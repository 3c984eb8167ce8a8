"""Commits appends from the event loop to disk: one transaction for all that has gathered.

``SyncedCommit`` waits until the disk has it, ``InlineCommit`` until it is in the page cache. What
both do is here: groups, failures and full disks.

After the first failure nothing is written any more. It is not known what a failed fsync has left
behind, so a retry could acknowledge data that is not on disk. A full disk is no failure: the
transaction was aborted, so the operations keep waiting, in order, and are tried again when there is
space (``disk_space``).
"""

import asyncio
import logging
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
