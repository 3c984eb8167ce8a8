"""What the writer's kernels take and tell; `record_kernel` is compiled from these."""

from typing import Final

from quorate.spark.kernels.declaration import Declaration, Kind

TOPICS: Final = 1
PARTITIONS: Final = 2
PARTITION_NULLS: Final = 4
KEYS: Final = 8
KEY_NULLS: Final = 16
VALUE_NULLS: Final = 32
HEADERS: Final = 64
HEADER_VALUE_NULLS: Final = 128
"""Bits of what rows have; the columns of the rest are not looked at."""

AT: Final = 0
NEEDED: Final = 1
MAX_TIMESTAMP: Final = 2
REPORT_SIZE: Final = 3
"""What `APPEND_RECORDS` reports: where it stopped in the output, the bytes that the next record
takes (0: there is none), and the newest time of those written."""

ALL_CHOSEN: Final = -1
"""`CHOOSE_SLOTS` has found a place for every row."""

STICKY_BYTES: Final = 16 << 10
"""Rows without a key stay with one partition for this long, as Kafka's default batches do."""

_SOURCE: Final = "quorate.spark.writing.record_kernel"

CHOOSE_SLOTS: Final = Declaration(
    _SOURCE,
    "choose_slots",
    (
        Kind.INT, Kind.INT,  # rows, what they have
        Kind.INT32S, Kind.INT64S, Kind.INT64S,  # topics of rows; their first slots, partitions
        Kind.INT32S, Kind.BYTES,  # partitions of rows, validity
        Kind.INT64S, Kind.BYTES, Kind.BYTES,  # keys: ends, bytes, validity
        Kind.INT64S,  # ends of values
        Kind.INT64S, Kind.INT64S,  # sticky partitions, bytes that went there
        Kind.INT32S,  # slots
    ),
    sources=(__name__,),
)  # fmt: skip
GROUP_BY_SLOT: Final = Declaration(
    _SOURCE,
    "group_by_slot",
    (
        Kind.INT32S, Kind.INT,  # slots, rows
        Kind.INT64S, Kind.INT,  # ends, how many
        Kind.INT64S,  # order
    ),
    sources=(__name__,),
)  # fmt: skip
APPEND_RECORDS: Final = Declaration(
    _SOURCE,
    "append_records",
    (
        Kind.BYTES, Kind.INT, Kind.INT,  # output, position, limit
        Kind.INT, Kind.INT,  # records so far, base timestamp
        Kind.INT64S, Kind.INT, Kind.INT,  # order, begin, end
        Kind.INT64S,  # report
        Kind.INT, Kind.INT64S,  # what rows have, timestamps
        Kind.INT64S, Kind.BYTES, Kind.BYTES,  # keys: ends, bytes, validity
        Kind.INT64S, Kind.BYTES, Kind.BYTES,  # values
        Kind.INT64S, Kind.INT64S, Kind.BYTES,  # headers: lists; keys: ends, bytes
        Kind.INT64S, Kind.BYTES, Kind.BYTES,  # values of headers: ends, bytes, validity
    ),
    sources=(__name__,),
)  # fmt: skip
EVERY_KERNEL: Final = (CHOOSE_SLOTS, GROUP_BY_SLOT, APPEND_RECORDS)
