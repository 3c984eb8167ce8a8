"""The compiled part of writing: which partition a row goes to, and rows into records.

Rows come as Arrow's own buffers: binary columns as offsets and bytes, and a byte per row that says
whether it is there (an empty array: all are). Records are laid out as the decoder's kernel reads
them. Every write is within what the caller has room for: a record's size is known before its first
byte is written.

Importing this module compiles it, 2 s the first time; later processes load it from numba's cache.
The cache follows changes of this file alone, so every constant that is compiled in is defined here.
"""

import numpy as np
import numpy.typing as npt
from numba.core import types

from quorate.spark.compiling import compiled, copy_bytes, inlined

UInt8Array = npt.NDArray[np.uint8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Integer = int | np.int64

AT, NEEDED, MAX_TIMESTAMP = range(3)
"""What `append_records` reports: where it stopped in the output, the bytes that the next record
takes (0: there is none), and the newest time of those written."""
REPORT_SIZE = 3

ALL_CHOSEN = -1
"""`choose_slots` has found a place for every row."""

STICKY_BYTES = 16 << 10
"""Rows without a key stay with one partition for this long, as Kafka's default batches do."""

_BYTES_IN = types.Array(types.uint8, 1, "C", readonly=True)
_INT32_IN = types.Array(types.int32, 1, "C", readonly=True)
_INT64_IN = types.Array(types.int64, 1, "C", readonly=True)
_BYTES = types.Array(types.uint8, 1, "C")
_INT32 = types.Array(types.int32, 1, "C")
_INT64 = types.Array(types.int64, 1, "C")
_INT = types.int64

_MASK = 0xFFFF_FFFF
_MULTIPLIER = 0x5BD1_E995
_SEED = 0x9747_B28C


@compiled(_INT(_BYTES_IN, _INT, _INT))
def murmur2(data: UInt8Array, begin: Integer, end: Integer) -> Integer:
    """Kafka's 32-bit hash of data[begin:end], from 0 up.

    Products stay below 2^63, so signed numbers and a mask do what Java's overflow does.
    """
    length = end - begin
    value = (_SEED ^ length) & _MASK
    at = begin
    while end - at >= 4:
        block = (
            np.int64(data[at])
            | np.int64(data[at + 1]) << 8
            | np.int64(data[at + 2]) << 16
            | np.int64(data[at + 3]) << 24
        )
        block = (block * _MULTIPLIER) & _MASK
        block ^= block >> 24
        block = (block * _MULTIPLIER) & _MASK
        value = ((value * _MULTIPLIER) & _MASK) ^ block
        at += 4
    left = end - at
    if left == 3:
        value ^= np.int64(data[at + 2]) << 16
    if left >= 2:
        value ^= np.int64(data[at + 1]) << 8
    if left >= 1:
        value ^= np.int64(data[at])
        value = (value * _MULTIPLIER) & _MASK
    value ^= value >> 13
    value = (value * _MULTIPLIER) & _MASK
    return value ^ (value >> 15)


@compiled(
    _INT(
        _INT, _INT32_IN, _INT64_IN, _INT64_IN,
        _INT32_IN, _BYTES_IN,
        _INT64_IN, _BYTES_IN, _BYTES_IN,
        _INT64_IN,
        _INT64, _INT64, _INT32,
    )
)  # fmt: skip
def choose_slots(
    rows: Integer, topic_of: Int32Array, first_slot: Int64Array, partitions_of: Int64Array,
    partition_of: Int32Array, partition_valid: UInt8Array,
    key_ends: Int64Array, keys: UInt8Array, key_valid: UInt8Array,
    value_ends: Int64Array,
    sticky: Int64Array, sticky_bytes: Int64Array, slots: Int32Array,
) -> int:  # fmt: skip
    """The slot of every row; `ALL_CHOSEN`, or the first row whose partition does not exist.

    A slot is a partition of one of the topics: ``first_slot[topic] + partition``. The partition is
    the row's own, else its key's murmur2 as in Kafka's producers, else the topic's ``sticky`` one,
    which moves on with the bytes that went there. Empty ``topic_of``: all rows are topic 0's.
    """
    for row in range(rows):
        topic = np.int64(topic_of[row]) if len(topic_of) else np.int64(0)
        count = partitions_of[topic]
        if len(partition_of) and (len(partition_valid) == 0 or partition_valid[row]):
            partition = np.int64(partition_of[row])
            if partition < 0 or partition >= count:
                return row
        elif len(key_ends) and (len(key_valid) == 0 or key_valid[row]):
            hashed = murmur2(keys, key_ends[row], key_ends[row + 1])
            partition = (hashed & 0x7FFF_FFFF) % count
        else:
            partition = sticky[topic]
            sticky_bytes[topic] += value_ends[row + 1] - value_ends[row] + 8
            if sticky_bytes[topic] >= STICKY_BYTES:
                sticky_bytes[topic] = 0
                sticky[topic] = (partition + 1) % count
        slots[row] = first_slot[topic] + partition
    return ALL_CHOSEN


@compiled(types.void(_INT32_IN, _INT64, _INT64))
def group_by_slot(slots: Int32Array, ends: Int64Array, order: Int64Array) -> None:
    """Rows by slot, in their order: those of slot s are order[ends[s]:ends[s + 1]].

    ``ends`` is two longer than there are slots, all zero.
    """
    for row in range(len(slots)):
        ends[slots[row] + 2] += 1
    for slot in range(1, len(ends)):
        ends[slot] += ends[slot - 1]
    for row in range(len(slots)):
        at = ends[slots[row] + 1]
        order[at] = row
        ends[slots[row] + 1] = at + 1


@inlined
def _size_of(value: Integer) -> Integer:
    """Bytes of a zigzag varint."""
    raw = (value << 1) ^ (value >> 63)
    if 0 <= raw < 0x80:
        return np.int64(1)
    if 0 <= raw < 0x4000:
        return np.int64(2)
    size = np.int64(1)
    rest = (raw >> 7) & 0x01FF_FFFF_FFFF_FFFF
    while rest:
        size += 1
        rest >>= 7
    return size


@inlined
def _put(out: UInt8Array, at: Integer, value: Integer) -> Integer:
    """Write a zigzag varint; the position behind it."""
    raw = (value << 1) ^ (value >> 63)
    if 0 <= raw < 0x80:
        out[at] = raw
        return at + 1
    out[at] = raw & 0x7F | 0x80
    at += 1
    rest = (raw >> 7) & 0x01FF_FFFF_FFFF_FFFF
    while rest >= 0x80:
        out[at] = rest & 0x7F | 0x80
        at += 1
        rest >>= 7
    out[at] = rest
    return at + 1


@inlined
def _put_bytes(
    out: UInt8Array, at: Integer, data: UInt8Array, begin: Integer, end: Integer
) -> Integer:
    """Write a length and data[begin:end]; the position behind them."""
    size = end - begin
    at = _put(out, at, size)
    copy_bytes(out, at, data, begin, size)
    return at + size


@compiled(
    _INT(
        _INT64_IN, _INT64_IN, _INT64_IN, _BYTES_IN, _INT,
    )
)  # fmt: skip
def _headers_size(
    lists: Int64Array, key_ends: Int64Array, value_ends: Int64Array, value_valid: UInt8Array,
    row: Integer,
) -> Integer:  # fmt: skip
    """Bytes of a row's headers, their number included."""
    if len(lists) == 0:
        return np.int64(1)
    size = _size_of(lists[row + 1] - lists[row])
    for header in range(lists[row], lists[row + 1]):
        key = key_ends[header + 1] - key_ends[header]
        size += _size_of(key) + key
        if len(value_valid) == 0 or value_valid[header]:
            value = value_ends[header + 1] - value_ends[header]
            size += _size_of(value) + value
        else:
            size += 1
    return size


@compiled(
    _INT(
        _BYTES, _INT, _INT, _INT, _INT,
        _INT64_IN, _INT, _INT, _INT64_IN,
        _INT64_IN, _BYTES_IN, _BYTES_IN,
        _INT64_IN, _BYTES_IN, _BYTES_IN,
        _INT64_IN, _INT64_IN, _BYTES_IN, _INT64_IN, _BYTES_IN, _BYTES_IN,
        _INT64,
    )
)  # fmt: skip
def append_records(
    out: UInt8Array, at: Integer, limit: Integer, count: Integer, base_timestamp: Integer,
    order: Int64Array, begin: Integer, end: int, timestamps: Int64Array,
    key_ends: Int64Array, keys: UInt8Array, key_valid: UInt8Array,
    value_ends: Int64Array, values: UInt8Array, value_valid: UInt8Array,
    header_lists: Int64Array, header_key_ends: Int64Array, header_keys: UInt8Array,
    header_value_ends: Int64Array, header_values: UInt8Array, header_value_valid: UInt8Array,
    report: Int64Array,
) -> int:  # fmt: skip
    """Rows order[begin:end] as records into out[at:limit], as many as fit; where it stopped.

    ``count``: records that the batch has already. Empty ``key_ends``: no row has a key.
    One long function: one loop over all bytes, whose state would have to be passed around.
    """
    report[NEEDED] = 0
    for index in range(begin, end):
        row = order[index]
        has_key = len(key_ends) > 0 and (len(key_valid) == 0 or key_valid[row] != 0)
        has_value = len(value_valid) == 0 or value_valid[row] != 0
        key_size: Integer = np.int64(-1)
        value_size: Integer = np.int64(-1)
        if has_key:
            key_size = key_ends[row + 1] - key_ends[row]
        if has_value:
            value_size = value_ends[row + 1] - value_ends[row]
        delta = timestamps[row] - base_timestamp
        body = (
            1 + _size_of(delta) + _size_of(count)
            + _size_of(key_size) + max(key_size, 0) + _size_of(value_size) + max(value_size, 0)
            + _headers_size(
                header_lists, header_key_ends, header_value_ends, header_value_valid, row
            )
        )  # fmt: skip
        needed = _size_of(body) + body
        if needed > limit - at:
            report[NEEDED] = needed
            report[AT] = at
            return index
        at = _put(out, at, body)
        out[at] = 0
        at = _put(out, at + 1, delta)
        at = _put(out, at, count)
        if has_key:
            at = _put_bytes(out, at, keys, key_ends[row], key_ends[row + 1])
        else:
            at = _put(out, at, -1)
        if has_value:
            at = _put_bytes(out, at, values, value_ends[row], value_ends[row + 1])
        else:
            at = _put(out, at, -1)
        if len(header_lists) == 0:
            at = _put(out, at, 0)
        else:
            at = _put(out, at, header_lists[row + 1] - header_lists[row])
            for header in range(header_lists[row], header_lists[row + 1]):
                at = _put_bytes(
                    out, at, header_keys, header_key_ends[header], header_key_ends[header + 1]
                )
                if len(header_value_valid) == 0 or header_value_valid[header]:
                    at = _put_bytes(
                        out, at, header_values,
                        header_value_ends[header], header_value_ends[header + 1],
                    )  # fmt: skip
                else:
                    at = _put(out, at, -1)
        count += 1
        report[MAX_TIMESTAMP] = max(report[MAX_TIMESTAMP], timestamps[row])
    report[AT] = at
    return end
