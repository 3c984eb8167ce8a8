"""Splits a frame of Kafka record batches v2 into plain record bytes and a table of batches.

This is the part of decoding that costs per batch, not per record: headers (by a kernel), checksums
and decompression. It hands to `arrow_decoder` one buffer with the records of many batches, and a
table with one row for each batch. A frame without compressed batches is that buffer itself, so
nothing is copied.

Layout of a batch (big-endian): base offset i64, length i32, leader epoch i32, magic i8, CRC-32C
u32 (of everything behind it), attributes i16, last offset delta i32, base timestamp i64, max
timestamp i64, producer id i64, producer epoch i16, base sequence i32, record count i32, records.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from quorate.spark.decoding import decoding_kernels as kernels
from quorate.spark.decoding.aborted_batches import NONE_ABORTED, AbortedBatches
from quorate.spark.decoding.decoding_kernels import (
    BASE_OFFSET,
    BATCH_HEADER_BYTES,
    BEGIN,
    END,
    LAST_DELTA,
    LENGTH_OVERHEAD_BYTES,
    TABLE_COLUMNS,
)
from quorate.spark.decoding.decompression import Bytes, decompress
from quorate.spark.errors import CorruptBatch
from quorate.spark.kernels.kernel_store import load_kernel

Int64Array = npt.NDArray[np.int64]

CRC_START: Final = 21
RECORD_BYTES_MIN: Final = 7
"""The size of the smallest record: length, attributes, two deltas, key length, value length and
header count, with one byte each."""
GROUP_BYTES: Final = 1 << 20
"""The size of records from which a group is handed on: one Arrow batch, about 1 MiB."""
BODY_BYTES_MAX: Final = (1 << 31) - 1
"""The largest body, because Arrow's binary columns have 32-bit offsets."""

CODEC_MASK: Final = 0x07
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
PRODUCER_ID: Final = slice(43, 51)

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True, slots=True)
class PlainRecords:
    """The uncompressed records of whole batches."""

    body: pa.Buffer
    table: Int64Array
    """The table of batches, of shape (batches, `TABLE_COLUMNS`). The records of the batches lie in
    the body in order, and do not overlap."""
    next_offset: int
    """The offset behind the last batch that was looked at, whether or not it held records."""


def plain_records(
    frame: Bytes, start: int, end: int, aborted: AbortedBatches = NONE_ABORTED
) -> Iterator[PlainRecords]:
    """Yield the records of the batches in ``frame`` that touch [start, end), in groups of 1 MiB.

    Three kinds of batches are skipped: those wholly outside the range, control batches (they hold
    no records of a producer), and those of ``aborted`` transactions. The edges are not trimmed:
    every batch is yielded whole.

    Raises:
        CorruptBatch: names the base offset of the batch, as far as it could be read.
    """
    view = memoryview(frame).toreadonly()
    buffer = pa.py_buffer(view)
    table, scanned = _scan(buffer, end)
    group = _Group(buffer, table)
    next_offset = start
    for index, row in enumerate(table.tolist()):
        begin, batch_end, count, base_offset, last_delta, attributes, _, _, crc = row
        _check_crc(view[begin - BATCH_HEADER_BYTES + CRC_START : batch_end], crc, base_offset)
        behind = base_offset + last_delta + 1
        next_offset = max(next_offset, behind)
        is_hidden = attributes & CONTROL or (
            attributes & TRANSACTIONAL
            and aborted
            and aborted.hide(_producer_id(view, begin), base_offset)
        )
        if start < behind and base_offset < end and not is_hidden:
            group.add(index, view[begin:batch_end], attributes & CODEC_MASK, count, base_offset)
        if group.size >= GROUP_BYTES:
            yield group.finish(next_offset)
            group = _Group(buffer, table)
    if next_offset < end and scanned < len(view):
        raise CorruptBatch(_why_malformed(view, scanned, table))
    if len(table):
        yield group.finish(next_offset)


def _producer_id(view: memoryview, begin: int) -> int:
    """Return the producer id of the batch whose records begin at ``begin``."""
    header = view[begin - BATCH_HEADER_BYTES : begin]
    return int.from_bytes(header[PRODUCER_ID], "big", signed=True)


class _Group:
    """Batches that are handed on together.

    If none of them is compressed, their records stay where they are, in the frame.
    """

    def __init__(self, frame: pa.Buffer, table: Int64Array) -> None:
        self._frame = frame
        self._table = table
        self._indexes: list[int] = []
        self._bodies: list[Bytes] = []
        self._compressed = False
        self.size = 0

    def add(self, index: int, body: Bytes, codec: int, count: int, base_offset: int) -> None:
        """Add the batch in row ``index`` of the table, and decompress it if necessary."""
        if codec:
            self._compressed = True
            body = decompress(codec, body, base_offset)
        self.size += len(body)
        if count * RECORD_BYTES_MIN > len(body) or self.size > BODY_BYTES_MAX:
            raise CorruptBatch(
                f"the batch at offset {base_offset} claims {count} records in {len(body)} bytes"
            )
        self._indexes.append(index)
        self._bodies.append(body)

    def finish(self, next_offset: int) -> PlainRecords:
        """Return the records of the group."""
        table = self._table[self._indexes]
        if not self._compressed:
            return PlainRecords(self._frame, table, next_offset)
        table[:, END] = np.cumsum([len(body) for body in self._bodies])
        table[1:, BEGIN] = table[:-1, END]
        table[:1, BEGIN] = 0
        return PlainRecords(pa.py_buffer(b"".join(self._bodies)), table, next_offset)


def _scan(frame: pa.Buffer, end: int) -> tuple[Int64Array, int]:
    """Return the table of the frame's batches up to offset ``end``, and their size in bytes."""
    table = np.empty((frame.size // BATCH_HEADER_BYTES, TABLE_COLUMNS), dtype=np.int64)
    report = np.zeros(1, dtype=np.int64)
    batches = load_kernel(kernels.SCAN_BATCHES)(
        frame.address, frame.size, end, table.ctypes.data, len(table), report.ctypes.data
    )
    return table[:batches], int(report[kernels.SCANNED_BYTES])


def _check_crc(checked: memoryview, crc: int, base_offset: int) -> None:
    actual = crc32c(checked)
    if actual != crc:
        raise CorruptBatch(
            f"the batch at offset {base_offset} has checksum {crc:#010x}, its bytes give "
            f"{actual:#010x}"
        )


def _why_malformed(view: memoryview, position: int, before: Int64Array) -> str:
    """Return what is wrong with the batch at ``position``, which follows those of a table."""
    available = len(view) - position
    if available < BATCH_HEADER_BYTES:
        return f"{available} bytes are left, a batch header has {BATCH_HEADER_BYTES}"
    header = _HEADER.unpack_from(view, position)
    base_offset, length, _, magic = header[:4]
    size = length + LENGTH_OVERHEAD_BYTES
    batch = f"the batch at offset {base_offset}"
    if not BATCH_HEADER_BYTES <= size <= available:
        return f"{batch} says it has {size} bytes, {available} are there"
    if magic != 2:
        return f"{batch} has magic {magic}, expected 2"
    last_offset = int(before[-1, BASE_OFFSET] + before[-1, LAST_DELTA]) if len(before) else -1
    if 0 <= base_offset <= last_offset:
        return f"{batch} comes after one that ends at {last_offset}"
    return f"{batch} has last offset delta {header[6]} and {header[12]} records"
