"""Where the batches of one partition are: in memory, rebuilt when the store opens.

Twenty bytes per batch in three arrays, and one entry per segment that holds any. A batch without a
segment has not been flushed yet: it is in the memory tail.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from broker.log.segment import Segment


class Entry(NamedTuple):
    """A batch, wherever it is."""

    base_offset: int
    size: int
    max_timestamp: int


class Placed(NamedTuple):
    """A batch that is on disk, and where."""

    base_offset: int
    size: int
    segment: Segment


class BatchIndex:
    """Base offsets, sizes and greatest timestamps so far of successive batches."""

    def __init__(self) -> None:
        self._bases = array("q")
        self._sizes = array("I")
        self._greatest_timestamps = array("q")
        """Greatest max timestamp up to each batch: never falls, so it can be bisected."""
        self._run_bases: list[int] = []
        self._run_segments: list[Segment] = []
        """A run is the successive batches in one segment, from a base offset on."""

    def __len__(self) -> int:
        return len(self._bases)

    def base_offset(self, position: int) -> int:
        return self._bases[position]

    def size(self, position: int) -> int:
        return self._sizes[position]

    @property
    def total_bytes(self) -> int:
        """Of all its batches."""
        return sum(self._sizes)

    def bytes_of(self, first: int, end: int) -> int:
        """Of the batches at positions ``first`` to ``end``."""
        return sum(self._sizes[first:end])

    def greatest_timestamp(self, position: int) -> int:
        """Of the batch at ``position`` and all before it."""
        return self._greatest_timestamps[position]

    def first_unsealed(self, first: int, end: int) -> int:
        """Position of the first batch from ``first`` on that lies in no sealed segment, or end."""
        for segment, position, _ in self.spans(first, end):
            if not segment.is_sealed:
                return position
        return end

    def append(self, base_offset: int, size: int, max_timestamp: int) -> None:
        """Add the newest batch; ``base_offset`` is beyond all before it."""
        greatest = self._greatest_timestamps
        self._bases.append(base_offset)
        self._sizes.append(size)
        greatest.append(max(max_timestamp, greatest[-1]) if greatest else max_timestamp)

    def extend(
        self, base_offsets: "array[int]", sizes: "array[int]", max_timestamps: "array[int]"
    ) -> None:
        """Add the newest batches, as ``append`` does."""
        greatest = self._greatest_timestamps
        self._bases.extend(base_offsets)
        self._sizes.extend(sizes)
        known = greatest[-1:] or max_timestamps[:1]
        greatest.extend(islice(accumulate(max_timestamps, max, initial=known[0]), 1, None))

    def place(self, base_offset: int, segment: Segment) -> None:
        """The batch at ``base_offset``, and those after it until told otherwise, are there."""
        if not self._run_segments or self._run_segments[-1] is not segment:
            self._run_bases.append(base_offset)
            self._run_segments.append(segment)

    def position_of(self, offset: int) -> int:
        """Position of the batch that contains ``offset``; -1 if it lies before all of them."""
        return bisect_right(self._bases, offset) - 1

    def first_at_or_after(self, offset: int) -> int:
        """Position of the first batch that begins at or beyond ``offset``."""
        return bisect_left(self._bases, offset)

    def whole_batches_below(self, offset: int, log_end_offset: int) -> int:
        """How many batches end below ``offset``; the last one ends at ``log_end_offset`` - 1."""
        if offset >= log_end_offset:
            return len(self._bases)
        return max(0, bisect_right(self._bases, offset) - 1)

    def end_of_read(self, first: int, limit: int, max_bytes: int) -> tuple[int, int]:
        """(position beyond the last batch, bytes) of a read of at least one batch from ``first``.

        Batches at or beyond position ``limit`` are not read.
        """
        end, size = first, 0
        sizes = self._sizes
        while end < limit and (end == first or size + sizes[end] <= max_bytes):
            size += sizes[end]
            end += 1
        return end, size

    def first_with_timestamp(self, timestamp_ms: int) -> int:
        """Position of the first batch with a record at or after ``timestamp_ms``, or ``len``."""
        return bisect_left(self._greatest_timestamps, timestamp_ms)

    def spans(self, first: int, end: int) -> Iterator[tuple[Segment, int, int]]:
        """The flushed batches at positions ``first`` to ``end``: (segment, its first, its end)."""
        while first < end:
            run = bisect_right(self._run_bases, self._bases[first]) - 1
            last = end
            if run + 1 < len(self._run_bases):
                last = min(end, bisect_left(self._bases, self._run_bases[run + 1]))
            yield self._run_segments[run], first, last
            first = last

    def entries(self, first: int, end: int) -> list[tuple[int, int]]:
        """(base offset, size) of the batches at positions ``first`` to ``end``."""
        return list(zip(self._bases[first:end], self._sizes[first:end], strict=True))

    def placed(self, first: int, end: int) -> list[Placed]:
        """The flushed batches at positions ``first`` to ``end``."""
        return [
            Placed(base_offset, size, segment)
            for segment, begin, beyond in self.spans(first, end)
            for base_offset, size in self.entries(begin, beyond)
        ]

    def replace(
        self, first: int, end: int, flushed: int, batches: Sequence[Entry], segment: Segment
    ) -> None:
        """Have ``batches``, which lie in ``segment``, at positions ``first`` to ``end``.

        They span the same offsets, in order; ``flushed``: how many of all batches are.
        """
        greatest = self._greatest_timestamps
        follower = self._run_of(end) if end < flushed else None
        before = greatest[first - 1] if first else batches[0].max_timestamp
        known = accumulate([batch.max_timestamp for batch in batches], max, initial=before)
        greatest[first:end] = array("q", islice(known, 1, None))
        runs = bisect_left(self._run_bases, self._bases[first]) if first else 0
        later = bisect_right(self._run_bases, self._bases[end - 1])
        added = [(batches[0].base_offset, segment)]
        if follower is not None and self._bases[end] not in self._run_bases[later : later + 1]:
            added.append((self._bases[end], follower))
        self._run_bases[runs:later] = [base for base, _ in added]
        self._run_segments[runs:later] = [each for _, each in added]
        self._join_runs(max(0, runs - 1), runs + len(added) + 1)
        self._bases[first:end] = array("q", [batch.base_offset for batch in batches])
        self._sizes[first:end] = array("I", [batch.size for batch in batches])

    def _run_of(self, position: int) -> Segment:
        return self._run_segments[bisect_right(self._run_bases, self._bases[position]) - 1]

    def _join_runs(self, first: int, end: int) -> None:
        """Make one of neighbours in the same segment among the runs ``first`` to ``end``."""
        for run in range(min(end, len(self._run_bases)) - 1, first, -1):
            if self._run_segments[run] is self._run_segments[run - 1]:
                del self._run_bases[run], self._run_segments[run]

    def drop_before(self, position: int) -> None:
        """Forget the batches before ``position``, all of them flushed."""
        runs = len(self._run_bases)
        if position < len(self._bases):
            runs = max(0, bisect_right(self._run_bases, self._bases[position]) - 1)
        del self._run_bases[:runs], self._run_segments[:runs]
        del self._bases[:position], self._sizes[:position], self._greatest_timestamps[:position]

    def truncate(self, keep: int) -> None:
        """Forget the batches from position ``keep`` on."""
        if keep >= len(self._bases):
            return
        runs = bisect_left(self._run_bases, self._bases[keep])
        del self._run_bases[runs:], self._run_segments[runs:]
        del self._bases[keep:], self._sizes[keep:], self._greatest_timestamps[keep:]
