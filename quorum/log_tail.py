"""The newest applied transactions in memory, for watchers: what nearly all of them want."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from metadata_log.reader import AppliedEntry, LogEntry
from metadata_log.types import MetadataOffset

MAX_TAIL_BYTES: Final = 4 << 20
"""Twice as much at times. Who falls further behind reads the journal."""

_OVERHEAD_BYTES: Final = 160
"""Of one entry in memory, besides its transaction."""


class _Run(NamedTuple):
    """What was applied together: it is kept and dropped as one, unless it alone is too much."""

    entries: Sequence[AppliedEntry]
    size: int

    @property
    def last_offset(self) -> MetadataOffset:
        return self.entries[-1][0]


class LogTail:
    """Entries from ``first_offset`` on, without a gap, up to what was added last."""

    def __init__(self, max_bytes: int = MAX_TAIL_BYTES) -> None:
        self._max_bytes = max_bytes
        self._runs: list[_Run] = []
        self._bytes = 0
        self.first_offset = MetadataOffset(1)
        """Everything applied from here on is held; below, the journal or a snapshot has it."""

    @property
    def last_offset(self) -> MetadataOffset:
        """Offset of the newest entry held; 0 if there is none."""
        return self._runs[-1].last_offset if self._runs else MetadataOffset(0)

    def extend(self, entries: Sequence[AppliedEntry]) -> None:
        """Add what was applied next; the caller leaves it as it is."""
        if not entries:
            return
        size = _size(entries)
        if size > self._max_bytes:
            half = len(entries) // 2
            if half:
                self.extend(entries[:half])
                self.extend(entries[half:])
                return
        self._runs.append(_Run(entries, size))
        self._bytes += size
        if self._bytes > 2 * self._max_bytes:
            self._shrink()

    def restart(self, first_offset: MetadataOffset) -> None:
        """Forget everything: the state jumped to ``first_offset - 1``."""
        self._runs = []
        self._bytes = 0
        self.first_offset = first_offset

    def read(self, start: MetadataOffset, max_bytes: int) -> list[LogEntry]:
        """Entries from ``start`` on, at least one if there is any; ``start >= first_offset``."""
        found: list[LogEntry] = []
        size = 0
        for run in self._runs[bisect_left(self._runs, start, key=_last_offset) :]:
            at = 0 if found else bisect_left(run.entries, start, key=_offset)
            for entry in run.entries[at:]:
                if found and size >= max_bytes:
                    return found
                found.append(LogEntry(*entry))
                size += len(entry[1])
        return found

    def _shrink(self) -> None:
        drop = 0
        while self._bytes > self._max_bytes:
            self._bytes -= self._runs[drop].size
            drop += 1
        self.first_offset = MetadataOffset(self._runs[drop - 1].last_offset + 1)
        del self._runs[:drop]


def _size(entries: Sequence[AppliedEntry]) -> int:
    return sum([len(transaction) for _, transaction in entries]) + _OVERHEAD_BYTES * len(entries)


def _offset(entry: AppliedEntry) -> MetadataOffset:
    return entry[0]


def _last_offset(run: _Run) -> MetadataOffset:
    return run.last_offset
