"""The compiled part of writing: it chooses the partitions of rows, and encodes rows as records.

Rows arrive in Arrow's own buffers: a binary column is offsets and bytes, and one byte per row says
whether the value is there. Records have the layout that the decoder's kernel reads. No write leaves
the caller's buffer, because the size of a record is known before its first byte is written.

Arrays are bare pointers here (`quorate.spark.kernels`). Only the callers know their sizes:
`partitioning` and `batches`. What rows do not have is at no address, and not looked at.
"""

import numpy as np

from quorate.spark.kernels.kernel_compiler import (
    BYTES,
    INT,
    INT64S,
    Int32s,
    Int64s,
    Integer,
    UInt8s,
    copy_bytes,
    kernel,
    kernel_part,
)
from quorate.spark.writing.writing_kernels import (
    ALL_CHOSEN,
    APPEND_RECORDS,
    AT,
    CHOOSE_SLOTS,
    GROUP_BY_SLOT,
    HEADER_VALUE_NULLS,
    HEADERS,
    KEY_NULLS,
    KEYS,
    MAX_TIMESTAMP,
    NEEDED,
    PARTITION_NULLS,
    PARTITIONS,
    STICKY_BYTES,
    TOPICS,
    VALUE_NULLS,
)

_MASK = 0xFFFF_FFFF
_MULTIPLIER = 0x5BD1_E995
_SEED = 0x9747_B28C


@kernel_part(INT(BYTES, INT, INT))
def _murmur2(data: UInt8s, begin: Integer, end: Integer) -> Integer:
    """Return Kafka's 32-bit hash of data[begin:end], as a number that is not negative.

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


@kernel(CHOOSE_SLOTS)
def choose_slots(
    rows: Integer, present: Integer,
    topic_of: Int32s, first_slot: Int64s, partitions_of: Int64s,
    partition_of: Int32s, partition_valid: UInt8s,
    key_ends: Int64s, keys: UInt8s, key_valid: UInt8s,
    value_ends: Int64s,
    sticky: Int64s, sticky_bytes: Int64s, slots: Int32s,
) -> int:  # fmt: skip
    """Choose the slot of every row.

    A slot is a partition of one of the topics: ``first_slot[topic] + partition``. The partition is
    the one that the row names, else the murmur2 hash of its key as in Kafka's producers, else the
    topic's ``sticky`` one, which moves on after `STICKY_BYTES`. If the rows name no topics, all
    belong to topic 0.

    Returns:
        `ALL_CHOSEN`, or the first row whose partition does not exist.
    """
    for row in range(rows):
        topic = np.int64(topic_of[row]) if present & TOPICS else np.int64(0)
        count = partitions_of[topic]
        if present & PARTITIONS and (not present & PARTITION_NULLS or partition_valid[row]):
            partition = np.int64(partition_of[row])
            if partition < 0 or partition >= count:
                return row
        elif present & KEYS and (not present & KEY_NULLS or key_valid[row]):
            hashed = _murmur2(keys, key_ends[row], key_ends[row + 1])
            partition = (hashed & 0x7FFF_FFFF) % count
        else:
            partition = sticky[topic]
            sticky_bytes[topic] += value_ends[row + 1] - value_ends[row] + 8
            if sticky_bytes[topic] >= STICKY_BYTES:
                sticky_bytes[topic] = 0
                sticky[topic] = (partition + 1) % count
        slots[row] = first_slot[topic] + partition
    return ALL_CHOSEN


@kernel(GROUP_BY_SLOT)
def group_by_slot(
    slots: Int32s, rows: Integer, ends: Int64s, ends_count: Integer, order: Int64s
) -> int:
    """Sort the rows by slot, in their order: those of slot s are order[ends[s]:ends[s + 1]].

    The caller passes ``ends`` with two more elements than there are slots, all zero.
    """
    for row in range(rows):
        ends[slots[row] + 2] += 1
    for slot in range(1, ends_count):
        ends[slot] += ends[slot - 1]
    for row in range(rows):
        at = ends[slots[row] + 1]
        order[at] = row
        ends[slots[row] + 1] = at + 1
    return 0


@kernel_part(INT(INT))
def _size_of(value: Integer) -> Integer:
    """Return the number of bytes of a zigzag varint."""
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


@kernel_part(INT(BYTES, INT, INT))
def _put(out: UInt8s, at: Integer, value: Integer) -> Integer:
    """Write a zigzag varint, and return the position behind it."""
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


@kernel_part(INT(BYTES, INT, BYTES, INT, INT))
def _put_bytes(out: UInt8s, at: Integer, data: UInt8s, begin: Integer, end: Integer) -> Integer:
    """Write a length and data[begin:end], and return the position behind them."""
    size = end - begin
    at = _put(out, at, size)
    copy_bytes(out, at, data, begin, size)
    return at + size


@kernel_part(INT(INT, INT64S, INT64S, INT64S, BYTES, INT))
def _headers_size(
    present: Integer, lists: Int64s, key_ends: Int64s, value_ends: Int64s, value_valid: UInt8s,
    row: Integer,
) -> Integer:  # fmt: skip
    """Return the number of bytes of a row's headers, their count included."""
    if not present & HEADERS:
        return np.int64(1)
    size = _size_of(lists[row + 1] - lists[row])
    for header in range(lists[row], lists[row + 1]):
        key = key_ends[header + 1] - key_ends[header]
        size += _size_of(key) + key
        if not present & HEADER_VALUE_NULLS or value_valid[header]:
            value = value_ends[header + 1] - value_ends[header]
            size += _size_of(value) + value
        else:
            size += 1
    return size


@kernel(APPEND_RECORDS)
def append_records(
    out: UInt8s, at: Integer, limit: Integer, count: Integer, base_timestamp: Integer,
    order: Int64s, begin: Integer, end: int, report: Int64s,
    present: Integer, timestamps: Int64s,
    key_ends: Int64s, keys: UInt8s, key_valid: UInt8s,
    value_ends: Int64s, values: UInt8s, value_valid: UInt8s,
    header_lists: Int64s, header_key_ends: Int64s, header_keys: UInt8s,
    header_value_ends: Int64s, header_values: UInt8s, header_value_valid: UInt8s,
) -> int:  # fmt: skip
    """Write the rows order[begin:end] as records into out[at:limit], as many as fit.

    The batch holds ``count`` records already. This is one long function because the state of its
    loop over all bytes would have to be passed around.

    Returns:
        The position in ``order`` of the first row that was not written.
    """
    report[NEEDED] = 0
    for index in range(begin, end):
        row = order[index]
        has_key = present & KEYS != 0 and (not present & KEY_NULLS or key_valid[row] != 0)
        has_value = not present & VALUE_NULLS or value_valid[row] != 0
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
                present, header_lists, header_key_ends, header_value_ends, header_value_valid, row
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
        if not present & HEADERS:
            at = _put(out, at, 0)
        else:
            at = _put(out, at, header_lists[row + 1] - header_lists[row])
            for header in range(header_lists[row], header_lists[row + 1]):
                at = _put_bytes(
                    out, at, header_keys, header_key_ends[header], header_key_ends[header + 1]
                )
                if not present & HEADER_VALUE_NULLS or header_value_valid[header]:
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
