"""Whether a batch on disk is the one that was written there: checked whenever one is read.

Its checksum begins behind base offset and leader epoch, which a broker sets, so that the base
offset is compared with what the batch was looked up by. Pure.
"""

from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from broker.log.damage import DamagedBatch
from broker.log.options import Records
from broker.log.record_batch import CRC_FROM, HEADER_BYTES, MAGIC, read_crc, read_header


def header_problem(start: Records, base_offset: int, size: int) -> str:
    """What is wrong with a batch's header, the first bytes of ``size`` stored; empty: nothing."""
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
    """What is wrong with a batch of ``size`` bytes, stored in ``chunks``; empty: nothing."""
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


def verify(
    path: Path,
    number: int,
    wanted: Sequence[tuple[int, int]],
    chunks: Sequence[Records],
    chunk_bytes: int,
) -> None:
    """Check the batches ``wanted``, (base offset, size) each, that ``chunks`` are the pieces of.

    Raises:
        DamagedBatch: one is not what was written.
    """
    first = 0
    for base_offset, size in wanted:
        end = first + -(-size // chunk_bytes)
        problem = batch_problem(chunks[first:end], base_offset, size)
        if problem:
            raise DamagedBatch(path, number, base_offset, problem)
        first = end
