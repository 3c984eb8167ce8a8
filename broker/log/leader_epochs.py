"""Where each leader epoch of one partition begins: the history by which followers truncate.

Truncating to the high watermark loses acknowledged data when leaders change quickly; comparing
epoch histories does not (KIP-101, KIP-279). Pure: what survives a restart is written by the
segment, in the transaction of the batch that begins the epoch.

Invariant: epochs and start offsets both grow strictly from entry to entry.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from metadata_log.types import LeaderEpoch

NO_EPOCH: Final = LeaderEpoch(-1)
NO_OFFSET: Final = -1


class EpochEnd(NamedTuple):
    """The largest epoch at or below the one asked about, and the first offset beyond it."""

    leader_epoch: LeaderEpoch
    end_offset: int


class LeaderEpochHistory:
    """Start offsets of the leader epochs of one partition, oldest first."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in sorted(entries):
            self.assign(LeaderEpoch(epoch), start_offset)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """``(epoch, start offset)``, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The newest epoch, or ``NO_EPOCH``."""
        return LeaderEpoch(self._epochs[-1]) if self._epochs else NO_EPOCH

    @property
    def latest_start_offset(self) -> int:
        """Where the newest epoch begins, or ``NO_OFFSET``."""
        return self._starts[-1] if self._starts else NO_OFFSET

    def assign(self, epoch: LeaderEpoch, start_offset: int) -> None:
        """``epoch`` is in force at ``start_offset``: it begins there, unless it has begun before.

        Entries that contradict it go: later epochs, and starts beyond it. They come from leaders
        that lost; this replica itself may have led without writing anything, and then follow one
        that goes on with an older epoch, which keeps the start it has. A negative epoch means
        "unknown" and is ignored.
        """
        if epoch < 0:
            return
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return
        keep = min(bisect_right(self._epochs, epoch), bisect_right(self._starts, start_offset))
        del self._epochs[keep:], self._starts[keep:]
        if self._epochs and self._epochs[-1] == epoch:
            return
        if self._starts and self._starts[-1] == start_offset:
            del self._epochs[-1], self._starts[-1]
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def start_of(self, epoch: int) -> int:
        """Where ``epoch`` begins, or ``NO_OFFSET`` if it is not known."""
        index = bisect_left(self._epochs, epoch)
        is_known = index < len(self._epochs) and self._epochs[index] == epoch
        return self._starts[index] if is_known else NO_OFFSET

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: int) -> EpochEnd:
        """Where ``epoch``, or the largest known one below it, ends in this log (KIP-279).

        ``(NO_EPOCH, NO_OFFSET)`` if the epoch is newer than all that is known, or nothing is known.
        An epoch older than all that is known ends where the oldest known one begins.
        """
        if not self._epochs or epoch < 0 or epoch > self._epochs[-1]:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        if epoch == self._epochs[-1]:
            return EpochEnd(epoch, log_end_offset)
        after = bisect_right(self._epochs, epoch)
        floor = LeaderEpoch(self._epochs[after - 1]) if after else epoch
        return EpochEnd(floor, self._starts[after])

    def epoch_at(self, offset: int) -> LeaderEpoch:
        """The epoch in force at ``offset``, or ``NO_EPOCH`` below the first start."""
        index = bisect_right(self._starts, offset) - 1
        return LeaderEpoch(self._epochs[index]) if index >= 0 else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or beyond ``end_offset``: the log now ends there."""
        keep = bisect_left(self._starts, end_offset)
        del self._epochs[keep:], self._starts[keep:]

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget what ended before ``start_offset``; the epoch in force there now begins there."""
        drop = bisect_right(self._starts, start_offset) - 1
        if drop < 0:
            return
        del self._epochs[:drop], self._starts[:drop]
        self._starts[0] = start_offset

    def clear(self) -> None:
        """Forget everything: the log was emptied."""
        self._epochs.clear()
        self._starts.clear()
