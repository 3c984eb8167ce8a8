"""The compiled part of decoding: records of Kafka's format v2 into Arrow's column buffers.

Records come from a log that anybody may have written to, so **no read or write may depend on a
field that was not checked**: every length is compared with the bytes that are left before it is
used, and every output is as large as its input allows (the caller, `arrow_columns`, allocates them
so):

- rows: the sum of the record counts of the table,
- key and value bytes: the size of the body, of which keys and values are disjoint parts.

Layout of a record: length varint, attributes i8, timestamp delta varlong, offset delta varint, key
length varint (-1: null), key, value length varint (-1: null), value, header count varint, headers
(key length varint, key, value length varint, value). Varints are zigzag.

Importing this module compiles it, 2 s the first time; later processes load it from numba's cache.
The cache follows changes of this file alone, so every constant that is compiled in is defined here.
"""

import numpy as np
import numpy.typing as npt
from numba.core import types

from quorate.spark.compiling import compiled, copy_bytes

UInt8Array = npt.NDArray[np.uint8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Integer = int | np.int64

BEGIN, END, COUNT, BASE_OFFSET, LAST_DELTA, TIMESTAMP, TIMESTAMP_TYPE = range(7)
TABLE_COLUMNS = 7
"""Columns of the table of batches: its records as [begin, end) of the body, and its header.
``TIMESTAMP`` is the base timestamp (type 0, create time) or the one of all records (type 1)."""

ROWS, KEY_NULLS, VALUE_NULLS, HEADERS, HEADER_VALUE_NULLS, FAILED_BATCH, FAILED_RECORD = range(7)
"""What the kernels report, by position in their ``report`` array."""
REPORT_SIZE = 7

OK = 0
BAD_LENGTH = 1
BAD_DELTA = 2
BAD_KEY = 3
BAD_VALUE = 4
BAD_HEADERS = 5
TRAILING_BYTES = 6
BAD_HEADER = 7

MICROSECONDS_PER_MS = 1000
TIMESTAMP_MS_MAX = (1 << 63) // 1000 - 1
"""What fits in Spark's microseconds; times beyond the year 294247 are clamped to it."""

_BYTES_IN = types.Array(types.uint8, 1, "C", readonly=True)
_TABLE_IN = types.Array(types.int64, 2, "C")
_BYTES = types.Array(types.uint8, 1, "C")
_INT32 = types.Array(types.int32, 1, "C")
_INT64 = types.Array(types.int64, 1, "C")
_INT = types.int64
_INT_PAIR = types.UniTuple(_INT, 2)  # type: ignore[no-untyped-call]


@compiled(_INT_PAIR(_BYTES_IN, _INT, _INT))
def _varint(body: UInt8Array, at: Integer, end: Integer) -> tuple[Integer, Integer]:
    """(value, position behind it) of a zigzag varint in body[at:end]; position -1: malformed."""
    if at >= end:
        return np.int64(0), np.int64(-1)
    byte = np.int64(body[at])
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = byte & 0x7F
    if at + 1 < end:
        byte = np.int64(body[at + 1])
        if byte < 0x80:
            raw |= byte << 7
            return (raw >> 1) ^ -(raw & 1), at + 2
    at += 1
    shift = 7
    while at < end and shift < 64:
        byte = np.int64(body[at])
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            # The shift is a logical one: bit 63 of a ten-byte varint is data, not a sign.
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), at
        shift += 7
    return np.int64(0), np.int64(-1)


@compiled(
    _INT(
        _BYTES_IN, _TABLE_IN, _INT, _INT,
        types.boolean, types.boolean, types.boolean,
        _INT64, _INT64, _INT32,
        _INT32, _BYTES, _BYTES,
        _INT32, _BYTES, _BYTES,
        _INT64, _INT64, _INT64,
    )
)  # fmt: skip
def decode_records(  # noqa: C901
    body: UInt8Array, table: Int64Array, start: Integer, end: Integer,
    want_key: bool, want_value: bool, want_headers: bool,
    offsets: Int64Array, timestamps: Int64Array, timestamp_types: Int32Array,
    key_ends: Int32Array, keys: UInt8Array, key_valid: UInt8Array,
    value_ends: Int32Array, values: UInt8Array, value_valid: UInt8Array,
    headers_begin: Int64Array, headers_end: Int64Array, report: Int64Array,
) -> int:  # fmt: skip
    """Records of [start, end) into columns; the status, `OK` or why decoding stopped.

    ``key_ends`` and ``value_ends`` are Arrow's offsets: one longer than the rows, from 0. With
    ``want_headers`` the bytes of each record's headers, count included, are noted as
    [headers_begin, headers_end) of the body for `decode_headers`.

    One long function: one loop over all bytes, whose state would have to be passed around.
    """
    row = 0
    key_at: Integer = 0
    value_at: Integer = 0
    for batch in range(table.shape[0]):
        at = table[batch, BEGIN]
        batch_end = table[batch, END]
        base_offset = table[batch, BASE_OFFSET]
        last_delta = table[batch, LAST_DELTA]
        timestamp = table[batch, TIMESTAMP]
        timestamp_type = table[batch, TIMESTAMP_TYPE]
        report[FAILED_BATCH] = batch
        previous_delta: Integer = -1
        past_end = False
        for record in range(table[batch, COUNT]):
            report[FAILED_RECORD] = record
            length, at = _varint(body, at, batch_end)
            if at < 0 or length < 1 or length > batch_end - at:
                return BAD_LENGTH
            record_end = at + length
            timestamp_delta, at = _varint(body, at + 1, record_end)
            if at < 0:
                return BAD_DELTA
            delta, at = _varint(body, at, record_end)
            if at < 0 or delta <= previous_delta or delta > last_delta:
                return BAD_DELTA
            previous_delta = delta
            offset = base_offset + delta
            if offset < start:
                at = record_end
                continue
            if offset >= end:
                past_end = True
                break
            if want_key or want_value or want_headers:
                size, at = _varint(body, at, record_end)
                if at < 0 or size < -1 or size > record_end - at:
                    return BAD_KEY
                if want_key:
                    key_valid[row] = size >= 0
                    if size > 0:
                        copy_bytes(keys, key_at, body, at, size)
                        key_at += size
                    elif size < 0:
                        report[KEY_NULLS] += 1
                    key_ends[row + 1] = key_at
                at += max(size, 0)
                size, at = _varint(body, at, record_end)
                if at < 0 or size < -1 or size > record_end - at:
                    return BAD_VALUE
                if want_value:
                    value_valid[row] = size >= 0
                    if size > 0:
                        copy_bytes(values, value_at, body, at, size)
                        value_at += size
                    elif size < 0:
                        report[VALUE_NULLS] += 1
                    value_ends[row + 1] = value_at
                at += max(size, 0)
            if want_headers:
                headers_begin[row] = at
                headers_end[row] = record_end
                count, at = _varint(body, at, record_end)
                # A header has at least two bytes: the lengths of its key and of its value.
                if at < 0 or count < 0 or count * 2 > record_end - at:
                    return BAD_HEADERS
                report[HEADERS] += count
            offsets[row] = offset
            time_ms = timestamp if timestamp_type else timestamp + timestamp_delta
            time_ms = min(max(time_ms, -TIMESTAMP_MS_MAX), TIMESTAMP_MS_MAX)
            timestamps[row] = time_ms * MICROSECONDS_PER_MS
            timestamp_types[row] = timestamp_type
            row += 1
            report[ROWS] = row
            at = record_end
        if not past_end and at != batch_end:
            return TRAILING_BYTES
    return OK


@compiled(
    _INT(
        _BYTES_IN, _INT64, _INT64, _INT,
        _INT32, _BYTES, _INT32, _BYTES, _INT32, _BYTES, _BYTES,
        _INT64,
    )
)  # fmt: skip
def decode_headers(
    body: UInt8Array, headers_begin: Int64Array, headers_end: Int64Array, rows: Integer,
    list_ends: Int32Array, row_valid: UInt8Array,
    key_ends: Int32Array, keys: UInt8Array,
    value_ends: Int32Array, values: UInt8Array, value_valid: UInt8Array,
    report: Int64Array,
) -> int:  # fmt: skip
    """The headers of ``rows`` records, as `decode_records` noted them, as a list of structs.

    Rows without headers are null, as in Spark's Kafka source. ``report`` is the one that
    `decode_records` filled: the outputs have room for ``report[HEADERS]`` headers.
    """
    header = 0
    key_at: Integer = 0
    value_at: Integer = 0
    for row in range(rows):
        report[FAILED_RECORD] = row
        end = headers_end[row]
        count, at = _varint(body, headers_begin[row], end)
        row_valid[row] = count > 0
        for _ in range(count):
            size, at = _varint(body, at, end)
            if at < 0 or size < 0 or size > end - at:
                return BAD_HEADER
            copy_bytes(keys, key_at, body, at, size)
            key_at += size
            at += size
            key_ends[header + 1] = key_at
            size, at = _varint(body, at, end)
            if at < 0 or size < -1 or size > end - at:
                return BAD_HEADER
            value_valid[header] = size >= 0
            if size > 0:
                copy_bytes(values, value_at, body, at, size)
                value_at += size
                at += size
            elif size < 0:
                report[HEADER_VALUE_NULLS] += 1
            value_ends[header + 1] = value_at
            header += 1
        if at != end:
            return BAD_HEADER
        list_ends[row + 1] = header
    return OK
