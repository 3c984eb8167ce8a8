"""The first record of a batch at or after a timestamp: the one place where records are looked at.

One batch per question, found by its header: only this one is decompressed and walked.
"""

import struct
from collections.abc import Callable
from typing import Final

import cramjam

from broker.errors import KafkaError
from broker.log.record_batch import HEADER_BYTES, BatchHeader, read_header
from quorate_proto.v1 import errors_pb2

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_LAST_SHIFT: Final = 63
_BLOCK: Final = struct.Struct(">i")


def first_record_at(
    batch: bytes, timestamp_ms: int, from_offset: int, up_to_offset: int
) -> tuple[int, int] | None:
    """(offset, timestamp in ms) of the first record in [from, up to) at or after the timestamp.

    Raises:
        KafkaError: CORRUPT_MESSAGE; the records cannot be decoded. The CRC was right, so it is
            the producer that wrote them so.
    """
    header = read_header(batch)
    if header.is_log_append_time:
        offset = max(header.base_offset, from_offset)
        found = header.max_timestamp >= timestamp_ms and offset < up_to_offset
        return (offset, header.max_timestamp) if found else None
    try:
        return _first(header, _decompressed(header, batch), timestamp_ms, from_offset, up_to_offset)
    except (cramjam.DecompressionError, IndexError, ValueError, struct.error) as error:
        raise KafkaError(
            errors_pb2.CORRUPT_MESSAGE,
            f"batch at offset {header.base_offset}: its records cannot be decoded ({error})",
        ) from error


def _first(
    header: BatchHeader, records: bytes, timestamp_ms: int, from_offset: int, up_to_offset: int
) -> tuple[int, int] | None:
    """A record: length varint | attributes i8 | timestamp delta varint | offset delta varint | …"""
    position = 0
    for _ in range(header.record_count):
        length, start = _signed_varint(records, position)
        if length <= 0:
            raise ValueError(f"a record has length {length}")
        timestamp_delta, position = _signed_varint(records, start + 1)
        offset_delta, _ = _signed_varint(records, position)
        timestamp = header.base_timestamp + timestamp_delta
        offset = header.base_offset + offset_delta
        if offset >= up_to_offset:
            return None
        if timestamp >= timestamp_ms and offset >= from_offset:
            return offset, timestamp
        position = start + length
    return None


def _signed_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint and the position behind it."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > _LAST_SHIFT:
            raise ValueError("a varint has more than 10 bytes")


def _decompressed(header: BatchHeader, batch: bytes) -> bytes:
    decompress = _DECOMPRESS.get(header.compression)
    if decompress is None:
        raise cramjam.DecompressionError(f"compression type {header.compression} is unknown")
    return decompress(batch[HEADER_BYTES:])


def _snappy(data: bytes) -> bytes:
    """Raw snappy, or the framing of snappy-java: a header, then blocks with their lengths."""
    if not data.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    blocks = []
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        (length,) = _BLOCK.unpack_from(data, position)
        position += _BLOCK.size
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[position : position + length])))
        position += length
    return b"".join(blocks)


_DECOMPRESS: Final[dict[int, Callable[[bytes], bytes]]] = {
    0: bytes,
    1: lambda data: bytes(cramjam.gzip.decompress(data)),
    2: _snappy,
    3: lambda data: bytes(cramjam.lz4.decompress(data)),
    4: lambda data: bytes(cramjam.zstd.decompress(data)),
}
