"""Plans the reads of a segment file for a set of batches, and extracts the batches from what was
read."""

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

_BRIDGED_BYTES: Final = 16 << 10
"""The gap between two batches up to which one call reads both, because another call would cost
more."""


class FileRange(NamedTuple):
    """A range of the file that is read by one call, with its number of successive chunks."""

    position: int
    size: int
    chunks: int


def joined(chunks: Sequence[tuple[int, int]]) -> list[FileRange]:
    """Return the ranges of the file to read. Neighbouring chunks are joined, in whatever order they
    are given."""
    joined: list[FileRange] = []
    for position, size in chunks:
        end = position + size
        if joined:
            start, length, count = joined[-1]
            if position <= start + length + _BRIDGED_BYTES and end >= start - _BRIDGED_BYTES:
                low = min(start, position)
                joined[-1] = FileRange(low, max(start + length, end) - low, count + 1)
                continue
        joined.append(FileRange(position, size, 1))
    return joined


def cut(
    chunks: Sequence[tuple[int, int]],
    stretches: Sequence[FileRange],
    parts: Sequence[memoryview],
) -> list[memoryview]:
    """Return the chunks, extracted from the ranges that were read."""
    pieces: list[memoryview] = []
    remaining = iter(chunks)
    for (start, _, count), part in zip(stretches, parts, strict=True):
        for position, size in islice(remaining, count):
            pieces.append(part[position - start : position - start + size])
    return pieces
