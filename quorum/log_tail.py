"""The newest applied transactions in memory, for watchers: what nearly all of them want."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from metadata_log.reader import LogEntry
from metadata_log.types import MetadataOffset

MAX_TAIL_BYTES: Final = 4 << 20
"""Twice as much at times. Who falls further behind reads the journal."""

_OVERHEAD_BYTES: Final = 160
"""Of one entry in memory, besides its transaction."""


class LogTail:
    """Entries from ``first_offset`` on, without a gap, up to what was added last."""

    def __init__(self, max_bytes: int = MAX_TAIL_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: list[LogEntry] = []
        self._bytes = 0
        self.first_offset = MetadataOffset(1)
        """Everything applied from here on is held; below, the journal or a snapshot has it."""

    @property
    def last_offset(self) -> MetadataOffset:
        """Offset of the newest entry held; 0 if there is none."""
        return self._entries[-1].offset if self._entries else MetadataOffset(0)

    def extend(self, entries: Sequence[LogEntry]) -> None:
        """Add what was applied next."""
        self._entries += entries
        self._bytes += sum([len(transaction) for _, transaction in entries])
        self._bytes += _OVERHEAD_BYTES * len(entries)
        if self._bytes > 2 * self._max_bytes:
            self._shrink()

    def restart(self, first_offset: MetadataOffset) -> None:
        """Forget everything: the state jumped to ``first_offset - 1``."""
        self._entries = []
        self._bytes = 0
        self.first_offset = first_offset

    def read(self, start: MetadataOffset, max_bytes: int) -> list[LogEntry]:
        """Entries from ``start`` on, at least one if there is any; ``start >= first_offset``."""
        at = bisect_left(self._entries, (start,))
        end, size = at, 0
        while end < len(self._entries) and (end == at or size < max_bytes):
            size += len(self._entries[end].transaction)
            end += 1
        return self._entries[at:end]

    def _shrink(self) -> None:
        drop = 0
        while self._bytes > self._max_bytes:
            self._bytes -= len(self._entries[drop].transaction) + _OVERHEAD_BYTES
            drop += 1
        self.first_offset = MetadataOffset(self._entries[drop - 1].offset + 1)
        del self._entries[:drop]
