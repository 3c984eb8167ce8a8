"""The places of the batches of a log: in a segment, or in memory.

``BatchIndex`` belongs to one partition. It is kept in memory and rebuilt when the store opens:
twenty bytes per batch in three arrays, and one entry per segment that holds any of the batches. A
batch without a segment has not been flushed yet, so it is in the memory tail.

``MemoryTail`` belongs to the whole store and holds the newest batches of all partitions, which
followers and live consumers read. It is one queue, oldest first, so the batches of every partition
stay for the same time.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment

Forgotten = Sequence[tuple[Segment, int, int]]
"""The flushed batches that a log no longer has: for each segment, their number and their bytes."""


class IndexEntry(NamedTuple):
    """A batch, wherever it is."""

    base_offset: int
    size: int
    max_timestamp: int


class PlacedBatch(NamedTuple):
    """A batch that is on disk, with its segment."""

    base_offset: int
    size: int
    segment: Segment


class BatchIndex:
    """Base offsets, sizes and running maxima of the timestamps of successive batches."""

    def __init__(self) -> None:
        self._bases = array("q")
        self._sizes = array("I")
        self._greatest_timestamps = array("q")
        """The greatest max timestamp up to each batch. It never falls, so it can be bisected."""
        self._run_bases: list[int] = []
        self._run_segments: list[Segment] = []
        """The runs. A run is the successive batches in one segment, from a base offset on."""

    def __len__(self) -> int:
        return len(self._bases)

    def base_offset(self, position: int) -> int:
        return self._bases[position]

    def size(self, position: int) -> int:
        return self._sizes[position]

    @property
    def total_bytes(self) -> int:
        """The bytes of all batches."""
        return sum(self._sizes)

    def bytes_of(self, first: int, end: int) -> int:
        """Return the bytes of the batches at positions ``first`` to ``end``."""
        return sum(self._sizes[first:end])

    def greatest_timestamp(self, position: int) -> int:
        """Return the greatest timestamp of the batch at ``position`` and all before it."""
        return self._greatest_timestamps[position]

    def first_unsealed(self, first: int, end: int) -> int:
        """Return the position of the first batch from ``first`` on that is in no sealed segment, or
        ``end``."""
        for segment, position, _ in self.spans(first, end):
            if not segment.is_sealed:
                return position
        return end

    def append(self, base_offset: int, size: int, max_timestamp: int) -> None:
        """Add the newest batch. ``base_offset`` is beyond all earlier batches."""
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
        """Record that the batch at ``base_offset`` is in ``segment``, and so are the later ones
        until the next call."""
        if not self._run_segments or self._run_segments[-1] is not segment:
            self._run_bases.append(base_offset)
            self._run_segments.append(segment)

    def position_of(self, offset: int) -> int:
        """Return the position of the batch that contains ``offset``, or -1 if it lies before all
        batches."""
        return bisect_right(self._bases, offset) - 1

    def first_at_or_after(self, offset: int) -> int:
        """Return the position of the first batch that begins at or beyond ``offset``."""
        return bisect_left(self._bases, offset)

    def whole_batches_below(self, offset: int, log_end_offset: int) -> int:
        """Return how many batches end below ``offset``. The last batch ends at ``log_end_offset`` -
        1."""
        if offset >= log_end_offset:
            return len(self._bases)
        return max(0, bisect_right(self._bases, offset) - 1)

    def end_of_read(self, first: int, limit: int, max_bytes: int) -> tuple[int, int]:
        """Return (position after the last batch, bytes) of a read of at least one batch from
        ``first``.

        Batches at or beyond position ``limit`` are not read.
        """
        end, size = first, 0
        sizes = self._sizes
        while end < limit and (end == first or size + sizes[end] <= max_bytes):
            size += sizes[end]
            end += 1
        return end, size

    def first_with_timestamp(self, timestamp_ms: int) -> int:
        """Return the position of the first batch with a record at or after ``timestamp_ms``, or the
        number of batches."""
        return bisect_left(self._greatest_timestamps, timestamp_ms)

    def spans(self, first: int, end: int) -> Iterator[tuple[Segment, int, int]]:
        """Yield (segment, first position, end position) for the flushed batches from ``first`` to
        ``end``."""
        while first < end:
            run = bisect_right(self._run_bases, self._bases[first]) - 1
            last = end
            if run + 1 < len(self._run_bases):
                last = min(end, bisect_left(self._bases, self._run_bases[run + 1]))
            yield self._run_segments[run], first, last
            first = last

    def entries(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return (base offset, size) of the batches at positions ``first`` to ``end``."""
        return list(zip(self._bases[first:end], self._sizes[first:end], strict=True))

    def placed(self, first: int, end: int) -> list[PlacedBatch]:
        """Return the flushed batches at positions ``first`` to ``end``."""
        return [
            PlacedBatch(base_offset, size, segment)
            for segment, begin, beyond in self.spans(first, end)
            for base_offset, size in self.entries(begin, beyond)
        ]

    def replace(
        self, first: int, end: int, flushed: int, batches: Sequence[IndexEntry], segment: Segment
    ) -> None:
        """Replace the batches at positions ``first`` to ``end`` by ``batches``, which are in
        ``segment``.

        They span the same offsets, in order. ``flushed`` is the number of flushed batches in the
        whole index.
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
        """Merge neighbouring runs in the same segment among the runs ``first`` to ``end``."""
        for run in range(min(end, len(self._run_bases)) - 1, first, -1):
            if self._run_segments[run] is self._run_segments[run - 1]:
                del self._run_bases[run], self._run_segments[run]

    def drop_before(self, position: int) -> None:
        """Remove the batches before ``position``, which are all flushed."""
        runs = len(self._run_bases)
        if position < len(self._bases):
            runs = max(0, bisect_right(self._run_bases, self._bases[position]) - 1)
        del self._run_bases[:runs], self._run_segments[:runs]
        del self._bases[:position], self._sizes[:position], self._greatest_timestamps[:position]

    def truncate(self, keep: int) -> None:
        """Remove the batches from position ``keep`` on."""
        if keep >= len(self._bases):
            return
        runs = bisect_left(self._run_bases, self._bases[keep])
        del self._run_bases[runs:], self._run_segments[runs:]
        del self._bases[keep:], self._sizes[keep:], self._greatest_timestamps[keep:]


class MemoryTail:
    """The newest batches by (local partition number, base offset)."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._batches: OrderedDict[tuple[int, int], PendingBatch] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: PendingBatch) -> None:
        self._batches[batch.number, batch.base_offset] = batch
        self.bytes += batch.size

    def get(self, number: int, base_offset: int) -> PendingBatch | None:
        return self._batches.get((number, base_offset))

    def drop(self, number: int, base_offset: int) -> None:
        """Drop a batch that was truncated or whose partition was deleted, if the tail has it."""
        batch = self._batches.pop((number, base_offset), None)
        if batch is not None:
            batch.dropped = True
            self.bytes -= batch.size

    def evict(self) -> None:
        """Remove the oldest batches above the limit, up to the first unflushed one.

        Batches are flushed in the order of their append, so no batch after that one is flushed.
        """
        while self.bytes > self._max_bytes:
            batch = next(iter(self._batches.values()))
            if not batch.flushed:
                return
            self._batches.popitem(last=False)
            self.bytes -= batch.size
