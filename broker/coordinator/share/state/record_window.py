"""The records that a share group works at: from the first that is not final to the last that was
handed out.

They are kept as ranges, so a window of any length takes little memory where whole batches are
handed out and acknowledged.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter

from quorate.broker.coordinator.share.state.record_state import (
    RecordRange,
    RecordState,
    StateBatch,
)

_FIRST = attrgetter("first")


class RecordWindow:
    """The ranges from offset ``start`` up to ``end``, without gaps. ``end`` itself is not in it."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self._ranges: list[RecordRange] = []
        self._available_from = start
        """No record before this offset is available."""

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._ranges)

    def __iter__(self) -> Iterator[RecordRange]:
        return iter(self._ranges)

    @property
    def records(self) -> int:
        """The number of records."""
        return self.end - self.start

    def first_available(self) -> int | None:
        """Return the first offset that is available, or None if no record in the window is."""
        for found in self.overlapping(self._available_from, self.end - 1):
            if found.is_available:
                self._available_from = found.first
                return found.first
        self._available_from = self.end
        return None

    def overlapping(self, first: int, last: int) -> list[RecordRange]:
        """Return the ranges with records from ``first`` to ``last``, in order."""
        at = self._at(first)
        found: list[RecordRange] = []
        while at < len(self._ranges) and self._ranges[at].first <= last:
            found.append(self._ranges[at])
            at += 1
        return found

    def cut(self, first: int, last: int) -> list[RecordRange]:
        """Return ranges that have the records from ``first`` to ``last`` and no others; both
        offsets are in the window."""
        self._split_at(first)
        self._split_at(last + 1)
        return self.overlapping(first, last)

    def append(self, added: RecordRange) -> None:
        """Add a range at the end, which begins there."""
        assert added.first == self.end, "a window has no gaps"
        self._ranges.append(added)
        self.end = added.last + 1
        if added.is_available:
            self.note_available(added.first)

    def extend(self, last: int) -> None:
        """Add the records up to ``last`` to the last range."""
        self._ranges[-1].last = last
        self.end = last + 1

    def note_available(self, offset: int) -> None:
        """Remember that the record at ``offset`` is available."""
        self._available_from = min(self._available_from, offset)

    def settle(self, changed: Iterable[RecordRange]) -> None:
        """Merge ranges that have changed with their neighbours, and leave final records behind."""
        for one in changed:
            if one.is_available:
                self.note_available(one.first)
            if one.last >= self.start:
                self._merge_around(self._at(max(one.first, self.start)))
        start = self.start
        for one in self._ranges:
            if not one.state.is_final or one.becoming is not None:
                break
            start = one.last + 1
        self.begin_at(start)

    def begin_at(self, offset: int) -> None:
        """Forget the records before ``offset``."""
        if offset <= self.start:
            return
        at = self._at(offset)
        del self._ranges[:at]
        if self._ranges:
            self._ranges[0].first = max(self._ranges[0].first, offset)
        self.start = offset
        self.end = max(self.end, offset)
        self._available_from = max(self._available_from, offset)

    def start_after(self, change: Iterable[RecordRange]) -> int:
        """Return where the window begins once ``change`` is in force."""
        coming = {id(one) for one in change}
        start = self.start
        for one in self._ranges:
            if not (one.coming if id(one) in coming else one.state).is_final:
                break
            start = one.last + 1
        return start

    def final_records(self, start: int) -> int:
        """Return how many records from ``start`` on are final, or will be (KIP-1226)."""
        return sum(
            one.last - max(one.first, start) + 1
            for one in self._ranges
            if one.last >= start and one.coming.is_final
        )

    def _at(self, offset: int) -> int:
        """Return the index of the range with ``offset``, or of the first one behind it."""
        at = bisect_right(self._ranges, offset, key=_FIRST) - 1
        if at >= 0 and self._ranges[at].last >= offset:
            return at
        return at + 1

    def _split_at(self, offset: int) -> None:
        at = self._at(offset)
        if at < len(self._ranges) and self._ranges[at].first < offset:
            self._ranges.insert(at + 1, self._ranges[at].split_off(offset))

    def _merge_around(self, at: int) -> None:
        for left in (at, at - 1):
            if 0 <= left < len(self._ranges) - 1:
                one, other = self._ranges[left], self._ranges[left + 1]
                if one.merges_with(other):
                    one.last = other.last
                    one.delivery_count = max(one.delivery_count, other.delivery_count)
                    del self._ranges[left + 1]


def window_of(start: int, batches: Iterable[StateBatch]) -> RecordWindow:
    """Return the window that a share coordinator has stored.

    What it says nothing about was not acknowledged, and is available.

    Raises:
        ValueError: the batches overlap, or end before they begin.
    """
    window = RecordWindow(start)
    for batch in batches:
        if batch.last < start:
            continue
        first = max(batch.first, start)
        if first < window.end or batch.last < first:
            raise ValueError(f"{batch} overlaps another one, or ends before it begins")
        if first > window.end:
            window.append(RecordRange(window.end, first - 1, RecordState.AVAILABLE))
        state = batch.state if batch.state.is_final else RecordState.AVAILABLE
        window.append(RecordRange(first, batch.last, state, batch.delivery_count))
    window.settle(())
    return window
