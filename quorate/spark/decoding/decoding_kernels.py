"""The declarations of the decoder's kernels: the table of batches, bits, reports and statuses.

`record_decoder` is compiled with these constants. A caller of the kernels needs only this module.
"""

from typing import Final

from quorate.spark.kernels.kernel_declaration import KernelArgument, KernelDeclaration

BATCH_HEADER_BYTES: Final = 61
LENGTH_OVERHEAD_BYTES: Final = 12
"""The bytes that a batch's length field does not count: the field itself and the base offset."""

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
"""The number of columns in the table of batches, which has a row for each batch: the place of its
records in the body, [begin, end), and fields of its header."""

LOG_APPEND_TIME: Final = 0x08
"""The attribute that makes the batch's max timestamp the timestamp of all its records."""

KEY: Final = 1
VALUE: Final = 2
HEADERS: Final = 4
OFFSET: Final = 8
TIMESTAMP: Final = 16
TIMESTAMP_TYPE: Final = 32
"""The bits that say which fields of the records are decoded. Other outputs are not touched."""

SCANNED_BYTES: Final = 0
"""The position in the report of `SCAN_BATCHES`: the bytes of the batches in the table."""

ROWS: Final = 0
KEY_NULLS: Final = 1
VALUE_NULLS: Final = 2
HEADER_ROWS: Final = 3
HEADER_VALUE_NULLS: Final = 4
FAILED_BATCH: Final = 5
FAILED_RECORD: Final = 6
REPORT_SIZE: Final = 7
"""The positions in the report of `DECODE_RECORDS` and `DECODE_HEADERS`."""

OK: Final = 0
BAD_LENGTH: Final = 1
BAD_DELTA: Final = 2
BAD_KEY: Final = 3
BAD_VALUE: Final = 4
BAD_HEADERS: Final = 5
TRAILING_BYTES: Final = 6
BAD_HEADER: Final = 7

_BYTES: Final = KernelArgument.BYTES
_INT: Final = KernelArgument.INT
_INT32S: Final = KernelArgument.INT32S
_INT64S: Final = KernelArgument.INT64S

_SOURCE: Final = "quorate.spark.decoding.record_decoder"
_VARINT: Final = "quorate.spark.kernels.zigzag_varint"

SCAN_BATCHES: Final = KernelDeclaration(
    _SOURCE,
    "scan_batches",
    (
        _BYTES, _INT, _INT,  # frame, its size, the end of the range
        _INT64S, _INT,  # table, its rows
        _INT64S,  # report
    ),
    sources=(__name__, _VARINT),
)  # fmt: skip
DECODE_RECORDS: Final = KernelDeclaration(
    _SOURCE,
    "decode_records",
    (
        _BYTES, _INT64S, _INT,  # body, table, its rows
        _INT, _INT, _INT,  # start, end, what is wanted
        _INT64S, _INT64S, _INT32S,  # offsets, timestamps, timestamp types
        _INT32S, _BYTES, _BYTES,  # keys: ends, bytes, validity
        _INT32S, _BYTES, _BYTES,  # values
        _INT64S, _INT64S,  # where headers begin and end
        _INT64S,  # report
    ),
    sources=(__name__, _VARINT),
)  # fmt: skip
DECODE_HEADERS: Final = KernelDeclaration(
    _SOURCE,
    "decode_headers",
    (
        _BYTES, _INT64S, _INT64S, _INT,  # body, headers' begin and end, rows
        _INT32S, _BYTES,  # list ends, rows with headers
        _INT32S, _BYTES,  # keys: ends, bytes
        _INT32S, _BYTES, _BYTES,  # values: ends, bytes, validity
        _INT64S,  # report
    ),
    sources=(__name__, _VARINT),
)  # fmt: skip
EVERY_KERNEL: Final = (SCAN_BATCHES, DECODE_RECORDS, DECODE_HEADERS)
