"""The compiled part of decoding: it decodes records of Kafka's format v2 into Arrow's buffers.

Any client may have written to the log that the records come from. So **no read or write may depend
on a field that was not checked**: every length is compared with the remaining bytes before it is
used, and every output is as large as its input allows. The callers, `record_batches` and
`decoded_columns`, allocate the outputs so:

- Rows: the sum of the record counts in the table. Each batch has enough bytes for its count.
- Bytes of keys and values: the size of the body, of which keys and values are disjoint parts.

Layout of a record: length varint, attributes i8, timestamp delta varlong, offset delta varint, key
length varint (-1: null), key, value length varint (-1: null), value, header count varint, headers
(key length varint, key, value length varint, value). Varints are zigzag.

Arrays are bare pointers here (`quorate.spark.kernels`), so only this code knows their sizes.
"""

import numpy as np

from quorate.spark.decoding.decoding_kernels import (
    ATTRIBUTES,
    BAD_DELTA,
    BAD_HEADER,
    BAD_HEADERS,
    BAD_KEY,
    BAD_LENGTH,
    BAD_VALUE,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_HEADER_BYTES,
    BEGIN,
    COUNT,
    CRC,
    DECODE_HEADERS,
    DECODE_RECORDS,
    END,
    FAILED_BATCH,
    FAILED_RECORD,
    HEADER_ROWS,
    HEADER_VALUE_NULLS,
    HEADERS,
    KEY,
    KEY_NULLS,
    LAST_DELTA,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP,
    OFFSET,
    OK,
    ROWS,
    SCAN_BATCHES,
    SCANNED_BYTES,
    TABLE_COLUMNS,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TRAILING_BYTES,
    VALUE,
    VALUE_NULLS,
)
from quorate.spark.kernels.kernel_compiler import (
    BYTES,
    INT,
    Int32s,
    Int64s,
    Integer,
    UInt8s,
    copy_bytes,
    kernel,
    kernel_part,
)
from quorate.spark.kernels.zigzag_varint import zigzag_varint

MICROSECONDS_PER_MS = 1000
TIMESTAMP_MS_MAX = (1 << 63) // 1000 - 1
"""The latest time that fits in Spark's microseconds. Times beyond the year 294247 are clamped."""
MAGIC = 2
BASE_OFFSET_MAX = (1 << 63) - (1 << 32)
"""The largest base offset to which any delta can be added within 64 bits."""


@kernel_part(INT(BYTES, INT, INT))
def _big_endian(body: UInt8s, at: Integer, size: Integer) -> Integer:
    """Return the signed number in body[at:at + size]."""
    number = np.int64(np.int8(body[at]))
    for index in range(1, size):
        number = number << 8 | np.int64(body[at + index])
    return number


@kernel(SCAN_BATCHES)
def scan_batches(
    frame: UInt8s, size: Integer, end: Integer,
    table: Int64s, rows_max: Integer,
    report: Int64s,
) -> int:  # fmt: skip
    """Write the headers of the frame's batches into the table, up to the first beyond ``end``.

    It also stops before a malformed batch. Then the reported size is not the whole frame although
    ``end`` was not reached.

    Returns:
        The number of batches.
    """
    row = 0
    at: Integer = 0
    batch_end: Integer = 0
    while row < rows_max and size - at >= BATCH_HEADER_BYTES and batch_end < end:
        batch_bytes = _big_endian(frame, at + 8, 4) + LENGTH_OVERHEAD_BYTES
        if batch_bytes < BATCH_HEADER_BYTES or batch_bytes > size - at or frame[at + 16] != MAGIC:
            break
        base_offset = _big_endian(frame, at, 8)
        last_delta = _big_endian(frame, at + 23, 4)
        count = _big_endian(frame, at + 57, 4)
        if not batch_end <= base_offset <= BASE_OFFSET_MAX or last_delta < 0 or count < 0:
            break
        batch_end = base_offset + last_delta + 1
        cell = row * TABLE_COLUMNS
        table[cell + BEGIN] = at + BATCH_HEADER_BYTES
        table[cell + END] = at + batch_bytes
        table[cell + COUNT] = count
        table[cell + BASE_OFFSET] = base_offset
        table[cell + LAST_DELTA] = last_delta
        table[cell + ATTRIBUTES] = _big_endian(frame, at + 21, 2)
        table[cell + BASE_TIMESTAMP] = _big_endian(frame, at + 27, 8)
        table[cell + MAX_TIMESTAMP] = _big_endian(frame, at + 35, 8)
        table[cell + CRC] = _big_endian(frame, at + 17, 4) & 0xFFFFFFFF
        row += 1
        at += batch_bytes
        report[SCANNED_BYTES] = at
    return row


@kernel(DECODE_RECORDS)
def decode_records(  # noqa: C901
    body: UInt8s, table: Int64s, batches: Integer,
    start: Integer, end: Integer, wanted: Integer,
    offsets: Int64s, timestamps: Int64s, timestamp_types: Int32s,
    key_ends: Int32s, keys: UInt8s, key_valid: UInt8s,
    value_ends: Int32s, values: UInt8s, value_valid: UInt8s,
    headers_begin: Int64s, headers_end: Int64s,
    report: Int64s,
) -> int:  # fmt: skip
    """Decode the records of [start, end) into columns.

    ``key_ends`` and ``value_ends`` are Arrow's offsets: one longer than the rows, from 0. If
    headers are wanted, the place of each record's headers in the body, their count included, is
    noted as [headers_begin, headers_end) for `decode_headers`.

    This is one long function because the state of its loop over all bytes would have to be passed
    around.

    Returns:
        `OK`, or the status that says why decoding stopped.
    """
    row = 0
    key_at: Integer = 0
    value_at: Integer = 0
    if wanted & KEY:
        key_ends[0] = 0
    if wanted & VALUE:
        value_ends[0] = 0
    want_payload = wanted & (KEY | VALUE | HEADERS) != 0
    for batch in range(batches):
        cell = batch * TABLE_COLUMNS
        at = table[cell + BEGIN]
        batch_end = table[cell + END]
        base_offset = table[cell + BASE_OFFSET]
        last_delta = table[cell + LAST_DELTA]
        append_time = table[cell + ATTRIBUTES] & LOG_APPEND_TIME != 0
        base_timestamp = table[cell + BASE_TIMESTAMP]
        max_timestamp = table[cell + MAX_TIMESTAMP]
        report[FAILED_BATCH] = batch
        previous_delta: Integer = -1
        past_end = False
        for record in range(table[cell + COUNT]):
            report[FAILED_RECORD] = record
            length, at = zigzag_varint(body, at, batch_end)
            if at < 0 or length < 1 or length > batch_end - at:
                return BAD_LENGTH
            record_end = at + length
            timestamp_delta, at = zigzag_varint(body, at + 1, record_end)
            if at < 0:
                return BAD_DELTA
            delta, at = zigzag_varint(body, at, record_end)
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
            if want_payload:
                size, at = zigzag_varint(body, at, record_end)
                if at < 0 or size < -1 or size > record_end - at:
                    return BAD_KEY
                if wanted & KEY:
                    key_valid[row] = size >= 0
                    if size > 0:
                        copy_bytes(keys, key_at, body, at, size)
                        key_at += size
                    elif size < 0:
                        report[KEY_NULLS] += 1
                    key_ends[row + 1] = key_at
                at += max(size, 0)
                size, at = zigzag_varint(body, at, record_end)
                if at < 0 or size < -1 or size > record_end - at:
                    return BAD_VALUE
                if wanted & VALUE:
                    value_valid[row] = size >= 0
                    if size > 0:
                        copy_bytes(values, value_at, body, at, size)
                        value_at += size
                    elif size < 0:
                        report[VALUE_NULLS] += 1
                    value_ends[row + 1] = value_at
                at += max(size, 0)
            if wanted & HEADERS:
                headers_begin[row] = at
                headers_end[row] = record_end
                count, at = zigzag_varint(body, at, record_end)
                # A header has at least two bytes: the lengths of its key and of its value.
                if at < 0 or count < 0 or count * 2 > record_end - at:
                    return BAD_HEADERS
                report[HEADER_ROWS] += count
            if wanted & OFFSET:
                offsets[row] = offset
            if wanted & TIMESTAMP:
                time_ms = max_timestamp if append_time else base_timestamp + timestamp_delta
                time_ms = min(max(time_ms, -TIMESTAMP_MS_MAX), TIMESTAMP_MS_MAX)
                timestamps[row] = time_ms * MICROSECONDS_PER_MS
            if wanted & TIMESTAMP_TYPE:
                timestamp_types[row] = append_time
            row += 1
            report[ROWS] = row
            at = record_end
        if not past_end and at != batch_end:
            return TRAILING_BYTES
    return OK


@kernel(DECODE_HEADERS)
def decode_headers(
    body: UInt8s, headers_begin: Int64s, headers_end: Int64s, rows: Integer,
    list_ends: Int32s, row_valid: UInt8s,
    key_ends: Int32s, keys: UInt8s,
    value_ends: Int32s, values: UInt8s, value_valid: UInt8s,
    report: Int64s,
) -> int:  # fmt: skip
    """Decode the headers of ``rows`` records, which `decode_records` noted, as lists of structs.

    Rows without headers are null, as in Spark's Kafka source. ``report`` is the one that
    `decode_records` filled: the outputs have room for ``report[HEADER_ROWS]`` headers.

    Returns:
        `OK`, or the status that says why decoding stopped.
    """
    header = 0
    key_at: Integer = 0
    value_at: Integer = 0
    list_ends[0] = 0
    key_ends[0] = 0
    value_ends[0] = 0
    for row in range(rows):
        report[FAILED_RECORD] = row
        end = headers_end[row]
        count, at = zigzag_varint(body, headers_begin[row], end)
        row_valid[row] = count > 0
        for _ in range(count):
            size, at = zigzag_varint(body, at, end)
            if at < 0 or size < 0 or size > end - at:
                return BAD_HEADER
            copy_bytes(keys, key_at, body, at, size)
            key_at += size
            at += size
            key_ends[header + 1] = key_at
            size, at = zigzag_varint(body, at, end)
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
