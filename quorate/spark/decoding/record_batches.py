"""Kafka record batches v2: from a frame of them to plain record bytes and a table of batches.

This is the part of decoding that costs per batch, not per record: headers (by a kernel), checksums
and decompression. What it hands to `arrow_columns` is one buffer with the records of many batches,
and one row for each batch in it. A frame without compressed batches is that buffer itself: nothing
is copied.

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

from quorate.spark.decoding import kernels
from quorate.spark.decoding.aborted_batches import NONE_ABORTED, AbortedBatches
from quorate.spark.decoding.codecs import Bytes, decompress
from quorate.spark.decoding.kernels import (
    BASE_OFFSET,
    BATCH_HEADER_BYTES,
    BEGIN,
    END,
    LAST_DELTA,
    LENGTH_OVERHEAD_BYTES,
    TABLE_COLUMNS,
)
from quorate.spark.errors import CorruptBatch
from quorate.spark.kernels.store import load

Int64Array = npt.NDArray[np.int64]

CRC_START: Final = 21
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, key length, value length, header count: one byte each."""
GROUP_BYTES: Final = 1 << 20
"""Records are handed on once there is this much of them: one Arrow batch, about 1 MiB."""
BODY_BYTES_MAX: Final = (1 << 31) - 1
"""Arrow's binary columns have 32-bit offsets."""

CODEC_MASK: Final = 0x07
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
PRODUCER_ID: Final = slice(43, 51)

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True, slots=True)
class PlainRecords:
    """Records of whole batches, uncompressed."""

    body: pa.Buffer
    table: Int64Array
    """Shape (batches, `TABLE_COLUMNS`), one row for each; their records lie in the body in order
    and apart."""
    next_offset: int
    """The offset behind the last batch looked at, whether or not it held records."""


def plain_records(
    frame: Bytes, start: int, end: int, aborted: AbortedBatches = NONE_ABORTED
) -> Iterator[PlainRecords]:
    """The records of the batches in ``frame`` that touch [start, end), in groups of about 1 MiB.

    Passed over are batches wholly outside the range, control batches (they hold no records of a
    producer) and those of ``aborted`` transactions. The edges are not trimmed: a batch comes whole.

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
    """Of the batch whose records begin there."""
    header = view[begin - BATCH_HEADER_BYTES : begin]
    return int.from_bytes(header[PRODUCER_ID], "big", signed=True)


class _Group:
    """Batches that will be handed on together.

    Without a compressed batch among them their records stay where they are, in the frame.
    """

    def __init__(self, frame: pa.Buffer, table: Int64Array) -> None:
        self._frame = frame
        self._table = table
        self._indexes: list[int] = []
        self._bodies: list[Bytes] = []
        self._compressed = False
        self.size = 0

    def add(self, index: int, body: Bytes, codec: int, count: int, base_offset: int) -> None:
        """The batch in row ``index`` of the table."""
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
        table = self._table[self._indexes]
        if not self._compressed:
            return PlainRecords(self._frame, table, next_offset)
        table[:, END] = np.cumsum([len(body) for body in self._bodies])
        table[1:, BEGIN] = table[:-1, END]
        table[:1, BEGIN] = 0
        return PlainRecords(pa.py_buffer(b"".join(self._bodies)), table, next_offset)


def _scan(frame: pa.Buffer, end: int) -> tuple[Int64Array, int]:
    """The table of the frame's batches up to offset ``end``, and how many bytes they take."""
    table = np.empty((frame.size // BATCH_HEADER_BYTES, TABLE_COLUMNS), dtype=np.int64)
    report = np.zeros(1, dtype=np.int64)
    batches = load(kernels.SCAN_BATCHES)(
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
    """What is wrong with the batch at ``position``, which follows those of a table."""
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
