"""The leader epoch cache of one partition: the start offset of each epoch. Followers truncate by
it.

Truncating to the high watermark loses acknowledged data when leaders change quickly; comparing
epoch histories does not (KIP-101, KIP-279). This module is pure: the segment stores the start of an
epoch, in the transaction of the batch that begins it.

Invariant: epochs and start offsets both grow strictly from entry to entry.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from quorate.common.types import LeaderEpoch

NO_EPOCH: Final = LeaderEpoch(-1)
NO_OFFSET: Final = -1


class EpochEnd(NamedTuple):
    """The largest known epoch at or below the requested one, and the first offset after it."""

    leader_epoch: LeaderEpoch
    end_offset: int


class LeaderEpochCache:
    """The start offsets of the leader epochs of one partition, oldest first."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.latest_epoch = NO_EPOCH
        """The newest epoch, or ``NO_EPOCH``."""
        self.latest_start_offset = NO_OFFSET
        """The offset where the newest epoch begins, or ``NO_OFFSET``."""
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in sorted(entries):
            self.assign(LeaderEpoch(epoch), start_offset)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Return ``(epoch, start offset)`` of every epoch, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: LeaderEpoch, start_offset: int) -> None:
        """Record that ``epoch`` is in force at ``start_offset``. It begins there if it is not known
        yet.

        Entries that contradict it are removed: later epochs, and start offsets beyond it. They come
        from leaders that lost their leadership. This replica itself may have led without writing
        anything, and then follow a leader that continues in an older epoch, which keeps its start.
        A negative epoch means "unknown" and is ignored.
        """
        if epoch < 0:
            return
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return
        keep = min(bisect_right(self._epochs, epoch), bisect_right(self._starts, start_offset))
        del self._epochs[keep:], self._starts[keep:]
        if not self._epochs or self._epochs[-1] != epoch:
            if self._starts and self._starts[-1] == start_offset:
                del self._epochs[-1], self._starts[-1]
            self._epochs.append(epoch)
            self._starts.append(start_offset)
        self._find_latest()

    def start_of(self, epoch: int) -> int:
        """Return the offset where ``epoch`` begins, or ``NO_OFFSET`` if it is not known."""
        index = bisect_left(self._epochs, epoch)
        is_known = index < len(self._epochs) and self._epochs[index] == epoch
        return self._starts[index] if is_known else NO_OFFSET

    def epoch_of(self, offset: int) -> LeaderEpoch:
        """Return the epoch in which the record at ``offset`` was written, or ``NO_EPOCH``."""
        index = bisect_right(self._starts, offset) - 1
        return LeaderEpoch(self._epochs[index]) if index >= 0 else NO_EPOCH

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: int) -> EpochEnd:
        """Return the end of ``epoch``, or of the largest known epoch below it, in this log
        (KIP-279).

        Return ``(NO_EPOCH, NO_OFFSET)`` if the epoch is newer than all known epochs, or none is
        known. An epoch older than all known ones ends where the oldest known one begins.
        """
        if not self._epochs or epoch < 0 or epoch > self._epochs[-1]:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        if epoch == self._epochs[-1]:
            return EpochEnd(epoch, log_end_offset)
        after = bisect_right(self._epochs, epoch)
        floor = LeaderEpoch(self._epochs[after - 1]) if after else epoch
        return EpochEnd(floor, self._starts[after])

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or beyond ``end_offset``, where the log now ends."""
        keep = bisect_left(self._starts, end_offset)
        del self._epochs[keep:], self._starts[keep:]
        self._find_latest()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that ended before ``start_offset``. The epoch in force there now begins
        there."""
        drop = bisect_right(self._starts, start_offset) - 1
        if drop < 0:
            return
        del self._epochs[:drop], self._starts[:drop]
        self._starts[0] = start_offset
        self._find_latest()

    def clear(self) -> None:
        """Remove all epochs, because the log was emptied."""
        self._epochs.clear()
        self._starts.clear()
        self._find_latest()

    def _find_latest(self) -> None:
        self.latest_epoch = LeaderEpoch(self._epochs[-1]) if self._epochs else NO_EPOCH
        self.latest_start_offset = self._starts[-1] if self._starts else NO_OFFSET
