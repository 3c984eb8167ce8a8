"""The positions of a sealed segment's batches in its file, which stay in memory to read them.

They take 28 bytes per batch in five arrays, sorted by partition number and base offset. The batches
of one partition are a range of each array.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

CHUNK_BYTES: Final = (256 << 10) - 16
"""The size of a chunk: n * 4096 - 16, because LMDB puts 16 bytes before a value that fills pages of
its own."""
CHUNK_STEP: Final = CHUNK_BYTES + 16
"""The distance from one chunk of a batch to the next where LMDB stored them side by side."""


class PartitionRun(NamedTuple):
    """The batches of one partition, as a range of every column."""

    number: int
    first: int
    end: int


class BatchPlaces:
    """The columns. A *place* is an index of the columns."""

    def __init__(self) -> None:
        self.numbers = array("I")
        self.base_offsets = array("q")
        self.sizes = array("I")
        self.positions = array("Q")
        """The positions of first chunks. The other chunks follow directly, or are in
        ``scattered``."""
        self.leader_epochs = array("i")
        self.scattered: dict[int, tuple[int, ...]] = {}
        """The positions of all chunks of a batch whose chunks are not side by side, by the batch's
        place."""

    def __len__(self) -> int:
        return len(self.numbers)

    def runs(self) -> Iterator[PartitionRun]:
        """Yield the batches of each partition."""
        first = 0
        while first < len(self.numbers):
            number = self.numbers[first]
            end = bisect_right(self.numbers, number, first)
            yield PartitionRun(number, first, end)
            first = end

    def run_of(self, number: int) -> PartitionRun:
        """Return the batches of one partition, which may be none."""
        first = bisect_left(self.numbers, number)
        return PartitionRun(number, first, bisect_right(self.numbers, number, first))

    def place_of(self, number: int, base_offset: int) -> int:
        """Return the place of the batch with that base offset, or -1."""
        run = self.run_of(number)
        place = bisect_left(self.base_offsets, base_offset, run.first, run.end)
        if place == run.end or self.base_offsets[place] != base_offset:
            return -1
        return place

    def find(self, number: int, wanted: Sequence[tuple[int, int]]) -> Sequence[int]:
        """Return the places of the batches ``wanted`` of a partition, given as (base offset, size),
        up to the first that is not there.

        They mostly lie side by side, unless newer versions of some are in other segments.
        """
        first = self.place_of(number, wanted[0][0])
        end = first + len(wanted)
        bases, sizes = self.base_offsets[first:end], self.sizes[first:end]
        are_there = first >= 0 and list(zip(bases, sizes, strict=True)) == wanted
        if are_there and self.numbers[end - 1] == number:
            return range(first, end)
        found: list[int] = []
        for base_offset, size in wanted:
            place = self.place_of(number, base_offset)
            if place < 0 or self.sizes[place] != size:
                break
            found.append(place)
        return found

    def chunks_of(self, places: Sequence[int]) -> list[tuple[int, int]]:
        """Return (position, size) of each chunk of the batches at ``places``, in order."""
        if isinstance(places, range):
            sizes = self.sizes[places.start : places.stop]
            if max(sizes) <= CHUNK_BYTES:
                return list(zip(self.positions[places.start : places.stop], sizes, strict=True))
        return [chunk for place in places for chunk in self.chunks(place)]

    def chunks(self, place: int) -> list[tuple[int, int]]:
        """Return (position, size) of each chunk of a batch in the file."""
        size, position = self.sizes[place], self.positions[place]
        if size <= CHUNK_BYTES:
            return [(position, size)]
        starts = self.scattered.get(place) or range(
            position, position + chunk_count(size) * CHUNK_STEP, CHUNK_STEP
        )
        return [
            (start, min(CHUNK_BYTES, size - chunk * CHUNK_BYTES))
            for chunk, start in enumerate(starts)
        ]

    def chunks_after(self, place: int, max_bytes: int) -> list[tuple[int, int]]:
        """Return chunks of the partition's batches after ``place``, about ``max_bytes`` of them."""
        found: list[tuple[int, int]] = []
        size, number = 0, self.numbers[place]
        while (place := place + 1) < len(self) and self.numbers[place] == number:
            size += self.sizes[place]
            if size > max_bytes:
                break
            found += self.chunks(place)
        return found


def chunk_count(size: int) -> int:
    """Return how many chunks a batch of ``size`` bytes has."""
    return -(-size // CHUNK_BYTES)
