"""Decoding of single records, used where a timestamp or a key has to be looked up.

A record: length varint | attributes i8 | timestamp delta varint | offset delta varint |
key length varint, key | value length varint, value | headers. Varints are zigzag; a negative length
is null. Pure.
"""

from collections.abc import Iterator
from typing import Final

from quorate.broker.log.batches.codecs import UndecodableRecords, decompress
from quorate.broker.log.batches.record_batch import HEADER_BYTES, BatchHeader
from quorate.broker.log.options import LARGEST_BATCH_BYTES, Records

_LAST_SHIFT: Final = 63
_ONE_BYTE: Final = 0x7F

RecordPlace = tuple[int, int, int, int, int, int, int, bool]
"""The layout of one record: the position where it begins, the position after its timestamp, and the
position where it ends; its timestamp delta; its offset delta; the position of its key and the key's
length (negative if null); and whether it has a value. It is a plain tuple because there are very
many."""


def plain_records(
    header: BatchHeader, batch: Records, max_bytes: int = LARGEST_BATCH_BYTES
) -> bytes:
    """Return the decompressed records of ``batch``.

    Raises:
        UndecodableRecords: The records cannot be decompressed, or they take more than
            ``max_bytes``.
    """
    return decompress(header.compression, memoryview(batch)[HEADER_BYTES:], max_bytes)


def walk(records: bytes, count: int) -> Iterator[RecordPlace]:
    """Yield the first ``count`` records, in order. The headers of a record are not decoded.

    Raises:
        UndecodableRecords: Some bytes are no record, or there are fewer records than ``count``.
    """
    try:
        yield from _walk(records, count)
    except IndexError as error:
        raise UndecodableRecords(f"fewer than {count} records are there") from error


def _walk(records: bytes, count: int) -> Iterator[RecordPlace]:
    """Yield the records. Varints of one byte, which are nearly all, are decoded inline, because a
    function call for each would double the cost."""
    size, end = len(records), 0
    for _ in range(count):
        start = end
        raw, at = records[start], start + 1
        if raw > _ONE_BYTE:
            raw, at = _rest_of_varint(records, at, raw)
        end = at + (raw >> 1)
        if raw & 1 or not at < end <= size:
            raise UndecodableRecords(f"a record at byte {start} is said to end at {end} of {size}")
        raw, at = records[at + 1], at + 2
        if raw > _ONE_BYTE:
            raw, at = _rest_of_varint(records, at, raw)
        timestamp_delta, rest = (raw >> 1) ^ -(raw & 1), at
        raw, at = records[at], at + 1
        if raw > _ONE_BYTE:
            raw, at = _rest_of_varint(records, at, raw)
        offset_delta = (raw >> 1) ^ -(raw & 1)
        raw, at = records[at], at + 1
        if raw > _ONE_BYTE:
            raw, at = _rest_of_varint(records, at, raw)
        key_at, key_length = at, (raw >> 1) ^ -(raw & 1)
        if key_length > 0:
            at += key_length
        raw = records[at]
        if raw > _ONE_BYTE:
            raw, at = _rest_of_varint(records, at + 1, raw)
        if at >= end:
            raise UndecodableRecords(f"the key of the record at byte {start} goes beyond its end")
        yield (
            start, rest, end, timestamp_delta, offset_delta, key_at, key_length, not raw & 1
        )  # fmt: skip


def _rest_of_varint(records: bytes, at: int, first: int) -> tuple[int, int]:
    """Return a varint of several bytes before its zigzag decoding, and the position after it."""
    value, shift, byte = first & _ONE_BYTE, 7, first
    while byte > _ONE_BYTE:
        if shift > _LAST_SHIFT:
            raise UndecodableRecords("a varint has more than 10 bytes")
        byte = records[at]
        at += 1
        value |= (byte & _ONE_BYTE) << shift
        shift += 7
    return value, at


def sized_field(records: bytes, at: int) -> bytes | None:
    """Return the length-prefixed field at position ``at``: a key or a value.
    Return None if the field is null.

    Raises:
        UndecodableRecords: The field ends beyond the end of the records.
    """
    length, at = varint(records, at)
    if length < 0:
        return None
    if at + length > len(records):
        raise UndecodableRecords(f"a field of {length} bytes at byte {at} of {len(records)}")
    return records[at : at + length]


def varint(records: bytes, at: int) -> tuple[int, int]:
    """Return the signed number at position ``at``, and the position after it.

    Raises:
        UndecodableRecords: The number goes beyond the end of the records.
    """
    try:
        raw, at = _rest_of_varint(records, at + 1, records[at])
    except IndexError as error:
        raise UndecodableRecords(f"a number at byte {at} of {len(records)}") from error
    return (raw >> 1) ^ -(raw & 1), at


def signed_varint(value: int) -> bytes:
    """Return a signed 64-bit number as a zigzag varint."""
    raw = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while raw > _ONE_BYTE:
        encoded.append(raw & _ONE_BYTE | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)
