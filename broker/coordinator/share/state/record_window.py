"""The records that a share group works at: from the first that is not final to the last that was
handed out.

They are kept as ranges: two numbers for each, whatever happens to single records. A window of any
length takes little memory where whole batches are handed out and acknowledged.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from quorate.broker.coordinator.share.state.record_state import (
    Condition,
    RecordRange,
    RecordState,
    StateBatch,
)


class RecordWindow:
    """The ranges from offset ``start`` up to ``end``, without gaps. ``end`` itself is not in it.

    A range is the first of its offsets and a condition, which ranges that were cut from one another
    share. Neighbours in the same condition are one range, unless something is being written about
    them: changes that are written apart end apart.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self._firsts = array("q")
        self._conditions: list[Condition] = []
        self._available_from = start
        """No record before this offset is available."""
        self._final = 0
        """The records that are final, or will be."""

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[RecordRange]:
        return map(self._range, range(len(self._firsts)))

    @property
    def records(self) -> int:
        """The number of records."""
        return self.end - self.start

    def first_available(self) -> int | None:
        """Return the first offset that is available, or None if no record in the window is."""
        found = next(self.available(self._available_from, self.end - 1), None)
        self._available_from = self.end if found is None else found.first
        return None if found is None else found.first

    def available(self, first: int, last: int) -> Iterator[RecordRange]:
        """Yield what is available from ``first`` to ``last``. What was yielded may change before
        the next one is asked for."""
        at = self._at(max(first, self.start))
        while at < len(self._firsts) and self._firsts[at] <= last:
            if not self._conditions[at].is_available:
                at += 1
                continue
            found = _clipped(self._range(at), first, last)
            yield found
            at = self._at(found.last + 1)

    def between(self, first: int, last: int) -> list[RecordRange]:
        """Return what there is from ``first`` to ``last``, in order."""
        found: list[RecordRange] = []
        for at in range(self._at(max(first, self.start)), len(self._firsts)):
            one = self._range(at)
            if one.first > last:
                break
            found.append(_clipped(one, first, last))
        return found

    def put(self, first: int, last: int, condition: Condition) -> None:
        """Have the records from ``first`` to ``last`` in a condition. Those before the window are
        passed over, and none is behind it."""
        first = max(first, self.start)
        if last < first:
            return
        left, right = self._cut(first), self._cut(last + 1)
        for at in range(left, right):
            self._count(at, -1)
        self._firsts[left:right] = array("q", (first,))
        self._conditions[left:right] = (condition,)
        self._count(left, 1)
        if condition.is_available:
            self._available_from = min(self._available_from, first)
        self._merge_with_next(left)
        if left:
            self._merge_with_next(left - 1)

    def append(self, last: int, condition: Condition) -> None:
        """Add the records from the end on up to ``last``."""
        self._firsts.append(self.end)
        self._conditions.append(condition)
        first, self.end = self.end, last + 1
        self._count(len(self._firsts) - 1, 1)
        if condition.is_available:
            self._available_from = min(self._available_from, first)
        if len(self._firsts) > 1:
            self._merge_with_next(len(self._firsts) - 2)

    def advance(self) -> None:
        """Leave the final records at the beginning behind."""
        start = self.start
        for one in self:
            if not one.condition.is_over:
                break
            start = one.last + 1
        self.begin_at(start)

    def begin_at(self, offset: int) -> None:
        """Forget the records before ``offset``."""
        if offset <= self.start:
            return
        kept = self._cut(offset) if offset < self.end else len(self._firsts)
        for at in range(kept):
            self._count(at, -1)
        del self._firsts[:kept]
        del self._conditions[:kept]
        self.start = offset
        self.end = max(self.end, offset)
        self._available_from = max(self._available_from, offset)

    def start_after(self, change: Iterable[RecordRange]) -> int:
        """Return where the window begins once ``change`` is in force."""
        changing = {one.first for one in change}
        start = self.start
        for one in self:
            condition = one.condition
            if not (condition.coming.is_final if one.first in changing else condition.is_over):
                break
            start = one.last + 1
        return start

    def final_records(self, start: int) -> int:
        """Return how many records from ``start`` on are final, or will be (KIP-1226). ``start`` is
        what ``start_after`` has returned: all records before it are."""
        return self._final - (start - self.start)

    def _range(self, at: int) -> RecordRange:
        return RecordRange(self._firsts[at], self._last(at), self._conditions[at])

    def _last(self, at: int) -> int:
        """Return the last offset of the range at an index."""
        behind = at + 1
        return (self._firsts[behind] if behind < len(self._firsts) else self.end) - 1

    def _at(self, offset: int) -> int:
        """Return the index of the range with ``offset``, which is not before the window; the number
        of ranges if the offset is behind it."""
        if offset >= self.end:
            return len(self._firsts)
        return bisect_right(self._firsts, offset) - 1

    def _cut(self, offset: int) -> int:
        """Have a range begin at ``offset``, and return its index."""
        at = self._at(offset)
        if at < len(self._firsts) and self._firsts[at] < offset:
            at += 1
            self._firsts.insert(at, offset)
            self._conditions.insert(at, self._conditions[at - 1])
        return at

    def _count(self, at: int, sign: int) -> None:
        if self._conditions[at].coming.is_final:
            self._final += sign * (self._last(at) - self._firsts[at] + 1)

    def _merge_with_next(self, at: int) -> None:
        behind = at + 1
        if behind < len(self._firsts):
            condition = self._conditions[at]
            if condition.becoming is None and condition == self._conditions[behind]:
                del self._firsts[behind]
                del self._conditions[behind]


def _clipped(one: RecordRange, first: int, last: int) -> RecordRange:
    return RecordRange(max(one.first, first), min(one.last, last), one.condition)


def window_of(start: int, batches: Iterable[StateBatch]) -> RecordWindow:
    """Return the window that a share coordinator has stored.

    What it says nothing about was not acknowledged, and is available.

    Raises:
        ValueError: the batches overlap, or end before they begin.
    """
    window = RecordWindow(start)
    never = Condition(RecordState.AVAILABLE)
    for batch in batches:
        if batch.last < start:
            continue
        first = max(batch.first, start)
        if first < window.end or batch.last < first:
            raise ValueError(f"{batch} overlaps another one, or ends before it begins")
        if first > window.end:
            window.append(first - 1, never)
        state = batch.state if batch.state.is_final else RecordState.AVAILABLE
        window.append(
            batch.last, never._replace(delivery_count=batch.delivery_count).entered(state)
        )
    window.advance()
    return window
