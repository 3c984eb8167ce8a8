"""Where a sealed segment's batches lie in its file: what stays in memory to read them.

24 bytes per batch in four arrays, sorted by partition number and base offset: one partition's
batches are a stretch of each.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

CHUNK_BYTES: Final = (256 << 10) - 16
"""n * 4096 - 16: LMDB puts 16 bytes before a value that fills pages of its own."""
CHUNK_STEP: Final = CHUNK_BYTES + 16
"""From one chunk of a batch to the next, where LMDB found room for them side by side."""


class Run(NamedTuple):
    """The batches of one partition: a stretch of every column."""

    number: int
    first: int
    end: int


class BatchPlaces:
    """A *place* is an index of the columns."""

    def __init__(self) -> None:
        self.numbers = array("I")
        self.base_offsets = array("q")
        self.sizes = array("I")
        self.positions = array("Q")
        """Of the first chunk; the others follow it directly, or are in ``scattered``."""
        self.scattered: dict[int, tuple[int, ...]] = {}
        """All chunks of a batch whose chunks do not lie side by side, by its place."""

    def __len__(self) -> int:
        return len(self.numbers)

    def runs(self) -> Iterator[Run]:
        """Each partition's batches."""
        first = 0
        while first < len(self.numbers):
            number = self.numbers[first]
            end = bisect_right(self.numbers, number, first)
            yield Run(number, first, end)
            first = end

    def run_of(self, number: int) -> Run:
        """One partition's batches, perhaps none."""
        first = bisect_left(self.numbers, number)
        return Run(number, first, bisect_right(self.numbers, number, first))

    def place_of(self, number: int, base_offset: int, guess: int = -1) -> int:
        """The place of the batch that begins there; -1: there is none. ``guess``: tried first."""
        if 0 <= guess < len(self) and (
            self.base_offsets[guess] == base_offset and self.numbers[guess] == number
        ):
            return guess
        run = self.run_of(number)
        place = bisect_left(self.base_offsets, base_offset, run.first, run.end)
        if place == run.end or self.base_offsets[place] != base_offset:
            return -1
        return place

    def chunks(self, place: int) -> list[tuple[int, int]]:
        """(position, size) of each piece of a batch in the file."""
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
        """The chunks of the same partition's batches behind ``place``, about so many bytes."""
        found: list[tuple[int, int]] = []
        size, number = 0, self.numbers[place]
        while (place := place + 1) < len(self) and self.numbers[place] == number:
            size += self.sizes[place]
            if size > max_bytes:
                break
            found += self.chunks(place)
        return found


def chunk_count(size: int) -> int:
    """Of a batch of ``size`` bytes."""
    return -(-size // CHUNK_BYTES)
