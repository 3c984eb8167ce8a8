"""What the decoder's kernels take and tell: the columns of the table of batches, the statuses.

`record_kernel` is compiled from these; whoever calls the kernels needs this module alone.
"""

from typing import Final

from quorate.spark.kernels.declaration import Declaration, Kind

BATCH_HEADER_BYTES: Final = 61
LENGTH_OVERHEAD_BYTES: Final = 12
"""What a batch's length field does not count: itself and the base offset."""

BEGIN: Final = 0
END: Final = 1
COUNT: Final = 2
BASE_OFFSET: Final = 3
LAST_DELTA: Final = 4
ATTRIBUTES: Final = 5
BASE_TIMESTAMP: Final = 6
MAX_TIMESTAMP: Final = 7
CRC: Final = 8
TABLE_COLUMNS: Final = 9
"""Columns of the table of batches, a row for each: its records as [begin, end) of the body, then
fields of its header."""

LOG_APPEND_TIME: Final = 0x08
"""The attribute that makes the batch's max timestamp the one of all its records."""

KEY: Final = 1
VALUE: Final = 2
HEADERS: Final = 4
OFFSET: Final = 8
TIMESTAMP: Final = 16
TIMESTAMP_TYPE: Final = 32
"""Bits of what is wanted of the records; the outputs of the rest are not looked at."""

SCANNED_BYTES: Final = 0
"""What `SCAN_BATCHES` reports: the bytes of the batches in the table."""

ROWS: Final = 0
KEY_NULLS: Final = 1
VALUE_NULLS: Final = 2
HEADER_ROWS: Final = 3
HEADER_VALUE_NULLS: Final = 4
FAILED_BATCH: Final = 5
FAILED_RECORD: Final = 6
REPORT_SIZE: Final = 7
"""What `DECODE_RECORDS` and `DECODE_HEADERS` report, by position in their ``report``."""

OK: Final = 0
BAD_LENGTH: Final = 1
BAD_DELTA: Final = 2
BAD_KEY: Final = 3
BAD_VALUE: Final = 4
BAD_HEADERS: Final = 5
TRAILING_BYTES: Final = 6
BAD_HEADER: Final = 7

_SOURCE: Final = "quorate.spark.decoding.record_kernel"

SCAN_BATCHES: Final = Declaration(
    _SOURCE,
    "scan_batches",
    (
        Kind.BYTES, Kind.INT, Kind.INT,  # frame, its size, the end of the range
        Kind.INT64S, Kind.INT,  # table, its rows
        Kind.INT64S,  # report
    ),
    sources=(__name__,),
)  # fmt: skip
DECODE_RECORDS: Final = Declaration(
    _SOURCE,
    "decode_records",
    (
        Kind.BYTES, Kind.INT64S, Kind.INT,  # body, table, its rows
        Kind.INT, Kind.INT, Kind.INT,  # start, end, what is wanted
        Kind.INT64S, Kind.INT64S, Kind.INT32S,  # offsets, timestamps, timestamp types
        Kind.INT32S, Kind.BYTES, Kind.BYTES,  # keys: ends, bytes, validity
        Kind.INT32S, Kind.BYTES, Kind.BYTES,  # values
        Kind.INT64S, Kind.INT64S,  # where headers begin and end
        Kind.INT64S,  # report
    ),
    sources=(__name__,),
)  # fmt: skip
DECODE_HEADERS: Final = Declaration(
    _SOURCE,
    "decode_headers",
    (
        Kind.BYTES, Kind.INT64S, Kind.INT64S, Kind.INT,  # body, headers' begin and end, rows
        Kind.INT32S, Kind.BYTES,  # list ends, rows with headers
        Kind.INT32S, Kind.BYTES,  # keys: ends, bytes
        Kind.INT32S, Kind.BYTES, Kind.BYTES,  # values: ends, bytes, validity
        Kind.INT64S,  # report
    ),
    sources=(__name__,),
)  # fmt: skip
EVERY_KERNEL: Final = (SCAN_BATCHES, DECODE_RECORDS, DECODE_HEADERS)
