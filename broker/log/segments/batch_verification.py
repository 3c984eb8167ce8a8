"""Verifies that a batch on disk is the one that was written there. This is done on every read.

The checksum begins after base offset and leader epoch, which a broker sets. They are therefore
compared with those that the batch was found by: with its key and check in the active segment, and
with the checksummed footer of a sealed one. This module is pure.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from crc32c import crc32c

from quorate.broker.log.batches.record_batch import (
    CRC_FROM,
    HEADER_BYTES,
    MAGIC,
    read_crc,
    read_header,
)
from quorate.broker.log.options import Records
from quorate.broker.log.segments.damage import DamagedBatch

_START: Final = struct.Struct(">qiibI")
"""Base offset, length of what follows the length, leader epoch, magic and checksum."""
_LENGTH_END: Final = 12
_LEADER_EPOCH: Final = struct.Struct(">i")
_LEADER_EPOCH_AT: Final = 12


def header_problem(start: Records, base_offset: int, size: int) -> str:
    """Return what is wrong with the header of a batch of ``size`` bytes, or an empty string."""
    if len(start) < HEADER_BYTES:
        return f"{len(start)} bytes are stored, a batch header has {HEADER_BYTES}"
    header = read_header(start)
    if (header.magic, header.size, header.base_offset) != (MAGIC, size, base_offset):
        return (
            f"its header says offset {header.base_offset}, {header.size} bytes, magic "
            f"{header.magic}; stored are {size} bytes"
        )
    return ""


def batch_problem(chunks: Sequence[Records], base_offset: int, size: int) -> str:
    """Return what is wrong with a batch of ``size`` bytes in ``chunks``, or an empty string."""
    problem = header_problem(chunks[0], base_offset, size)
    if problem:
        return problem
    if (stored := sum(map(len, chunks))) != size:
        return f"{stored} of {size} bytes are stored"
    found = crc32c(memoryview(chunks[0])[CRC_FROM:])
    for chunk in chunks[1:]:
        found = crc32c(chunk, found)
    if found != (stored_crc := read_crc(chunks[0])):
        return f"its checksum is {found:#010x}, its header says {stored_crc:#010x}"
    return ""


def _is_as_written(batch: Records, base_offset: int, size: int) -> bool:
    """Return whether ``batch_problem`` has nothing to say of a batch in one chunk. It is most of
    them, and this takes a third of the time."""
    if len(batch) != size or size < HEADER_BYTES:
        return False
    found_offset, length, _, magic, crc = _START.unpack_from(batch)
    if (found_offset, length + _LENGTH_END, magic) != (base_offset, size, MAGIC):
        return False
    return bool(crc32c(memoryview(batch)[CRC_FROM:]) == crc)


def _epoch_problem(start: Records, leader_epoch: int) -> str:
    (found,) = _LEADER_EPOCH.unpack_from(start, _LEADER_EPOCH_AT)
    return "" if found == leader_epoch else f"its leader epoch is {found}, not {leader_epoch}"


def verify(
    path: Path,
    number: int,
    wanted: Sequence[tuple[int, int]],
    chunks: Sequence[Records],
    chunk_bytes: int,
    leader_epochs: Sequence[int] = (),
) -> None:
    """Verify the batches ``wanted``, given as (base offset, size). ``chunks`` are their pieces.

    ``leader_epochs`` are theirs, where no check of the header was made.

    Raises:
        DamagedBatch: A batch is not what was written.
    """
    first = 0
    for place, (base_offset, size) in enumerate(wanted):
        end, problem = first + 1, ""
        if size > chunk_bytes or not _is_as_written(chunks[first], base_offset, size):
            end = first + -(-size // chunk_bytes)
            problem = batch_problem(chunks[first:end], base_offset, size)
        if leader_epochs and not problem:
            problem = _epoch_problem(chunks[first], leader_epochs[place])
        if problem:
            raise DamagedBatch(path, number, base_offset, problem)
        first = end
