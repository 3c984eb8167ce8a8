"""Kafka record batches v2: from a frame of them to plain record bytes and a table of batches.

This is the part of decoding that costs per batch, not per record: headers, checksums and
decompression. What it hands to the compiled kernel (`record_kernel`) is one buffer with the records
of many batches back to back, and one row for each batch in it. A frame without compressed batches
is that buffer itself: nothing is copied.

Layout of a batch (big-endian): base offset i64, length i32, leader epoch i32, magic i8, CRC-32C
u32 (of everything behind it), attributes i16, last offset delta i32, base timestamp i64, max
timestamp i64, producer id i64, producer epoch i16, base sequence i32, record count i32, records.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import cramjam
import crc32c
import numpy as np

from quorate.spark.decoding.record_kernel import BEGIN, END, TABLE_COLUMNS, Int64Array, UInt8Array
from quorate.spark.errors import CorruptBatch

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
LENGTH_OVERHEAD_BYTES = 12
"""What the length field does not count: itself and the base offset."""
CRC_START = 21
RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, key length, value length, header count: one byte each."""
GROUP_BYTES = 1 << 20
"""Records are handed on once there is this much of them: one Arrow batch, about 1 MiB."""
BODY_BYTES_MAX = (1 << 31) - 1
"""Arrow's binary columns have 32-bit offsets."""

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
CONTROL = 0x20

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16

Bytes = bytes | memoryview


@dataclass(frozen=True, slots=True)
class PlainRecords:
    """Records of whole batches, uncompressed, back to back."""

    body: UInt8Array
    table: Int64Array
    """Shape (batches, `TABLE_COLUMNS`), one row for each."""
    next_offset: int
    """The offset behind the last batch looked at, whether or not it held records."""


class _Group:
    """Batches that will be handed on together.

    Without a compressed batch among them their records stay where they are, in the frame.
    """

    def __init__(self, frame: UInt8Array) -> None:
        self._frame = frame
        self._bodies: list[UInt8Array] = []
        self._begins_in_frame: list[int] = []
        self._rows: list[tuple[int, ...]] = []
        self._compressed = False
        self.size = 0

    def add(self, begin: int, end: int, header: tuple[int, ...]) -> None:
        """The batch whose records are ``frame[begin:end]``."""
        base_offset, attributes, last_delta, count = header[0], header[5], header[6], header[12]
        body = self._frame[begin:end]
        if codec := attributes & CODEC_MASK:
            self._compressed = True
            body = _decompress(codec, body.data, base_offset)
        if count * RECORD_BYTES_MIN > len(body) or self.size + len(body) > BODY_BYTES_MAX:
            raise CorruptBatch(
                f"the batch at offset {base_offset} claims {count} records in {len(body)} bytes"
            )
        type_ = 1 if attributes & LOG_APPEND_TIME else 0
        timestamp = header[8] if type_ else header[7]
        self._bodies.append(body)
        self._begins_in_frame.append(begin)
        self._rows.append((0, len(body), count, base_offset, last_delta, timestamp, type_))
        self.size += len(body)

    def finish(self, next_offset: int) -> PlainRecords:
        table = np.array(self._rows, dtype=np.int64).reshape(-1, TABLE_COLUMNS)
        if self._compressed:
            body = np.concatenate(self._bodies)
            body.flags.writeable = False
            table[1:, BEGIN] = np.cumsum(table[:-1, END])
        else:
            body = self._frame
            table[:, BEGIN] = self._begins_in_frame
        table[:, END] += table[:, BEGIN]
        return PlainRecords(body, table, next_offset)


def plain_records(frame: Bytes, start: int, end: int) -> Iterator[PlainRecords]:
    """The records of the batches in ``frame`` that touch [start, end), in groups of about 1 MiB.

    Batches wholly outside the range and control batches (they hold no records of a producer) are
    passed over. The edges are not trimmed: a batch comes whole.

    Raises:
        CorruptBatch: names the base offset of the batch, as far as it could be read.
    """
    view = memoryview(frame).toreadonly()
    frame_array = np.frombuffer(view, np.uint8)
    group = _Group(frame_array)
    position, next_offset = 0, start
    batch_end = 0
    while position < len(view) and next_offset < end:
        header, size = _batch_header(view, position)
        base_offset, attributes, last_delta = header[0], header[5], header[6]
        if base_offset < batch_end:
            raise CorruptBatch(
                f"the batch at offset {base_offset} comes after one that ends at {batch_end - 1}"
            )
        batch_end = base_offset + last_delta + 1
        next_offset = max(next_offset, batch_end)
        if start < batch_end and base_offset < end and not attributes & CONTROL:
            group.add(position + HEADER_BYTES, position + size, header)
        position += size
        if group.size >= GROUP_BYTES:
            yield group.finish(next_offset)
            group = _Group(frame_array)
    if position:
        yield group.finish(next_offset)


def _batch_header(view: memoryview, position: int) -> tuple[tuple[int, ...], int]:
    """The header at ``position``, checked, and the size of the whole batch."""
    available = len(view) - position
    if available < HEADER_BYTES:
        raise CorruptBatch(f"{available} bytes are left, a batch header has {HEADER_BYTES}")
    header = HEADER.unpack_from(view, position)
    base_offset, length, _, magic, crc = header[:5]
    size = length + LENGTH_OVERHEAD_BYTES
    if not HEADER_BYTES <= size <= available:
        raise CorruptBatch(
            f"the batch at offset {base_offset} says it has {size} bytes, {available} are there"
        )
    if magic != 2:
        raise CorruptBatch(f"the batch at offset {base_offset} has magic {magic}, expected 2")
    actual = crc32c.crc32c(view[position + CRC_START : position + size])
    if actual != crc:
        raise CorruptBatch(
            f"the batch at offset {base_offset} has checksum {crc:#010x}, its bytes give "
            f"{actual:#010x}"
        )
    if base_offset < 0 or header[6] < 0 or header[12] < 0:
        raise CorruptBatch(
            f"the batch at offset {base_offset} has last offset delta {header[6]} and "
            f"{header[12]} records"
        )
    return header, size


def _decompress(codec: int, records: memoryview, base_offset: int) -> UInt8Array:
    decompress = _CODECS.get(codec)
    if decompress is None:
        raise CorruptBatch(f"the batch at offset {base_offset} has unknown codec {codec}")
    try:
        return np.frombuffer(memoryview(decompress(records)), np.uint8)
    except (cramjam.DecompressionError, ValueError, struct.error) as error:
        raise CorruptBatch(
            f"the batch at offset {base_offset} cannot be decompressed (codec {codec}): {error}"
        ) from None


def _snappy(records: memoryview) -> "Bytes | cramjam.Buffer":
    """Snappy as Java writes it (xerial: a header, then blocks with their length), or one block."""
    if bytes(records[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return cramjam.snappy.decompress_raw(records)
    blocks: list[bytes] = []
    position = _XERIAL_HEADER_BYTES
    while position < len(records):
        (size,) = struct.unpack_from(">i", records, position)
        position += 4
        if not 0 <= size <= len(records) - position:
            raise ValueError(f"a snappy block of {size} bytes at {position}")
        blocks.append(bytes(cramjam.snappy.decompress_raw(records[position : position + size])))
        position += size
    return b"".join(blocks)


_CODECS: dict[int, Callable[[memoryview], "Bytes | cramjam.Buffer"]] = {
    1: cramjam.gzip.decompress,
    2: _snappy,
    3: cramjam.lz4.decompress,
    4: cramjam.zstd.decompress,
}
