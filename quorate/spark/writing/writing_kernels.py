"""The declarations of the writer's kernels: their arguments, bits and results.

`record_encoder` is compiled with these constants.
"""

from typing import Final

from quorate.spark.kernels.kernel_declaration import KernelArgument, KernelDeclaration

TOPICS: Final = 1
PARTITIONS: Final = 2
PARTITION_NULLS: Final = 4
KEYS: Final = 8
KEY_NULLS: Final = 16
VALUE_NULLS: Final = 32
HEADERS: Final = 64
HEADER_VALUE_NULLS: Final = 128
"""The bits that say which columns the rows have. The kernels do not look at other columns."""

AT: Final = 0
NEEDED: Final = 1
MAX_TIMESTAMP: Final = 2
REPORT_SIZE: Final = 3
"""The positions in the report of `APPEND_RECORDS`: where it stopped in the output, how many bytes
the next record needs (0 if there is none), and the newest timestamp that was written."""

ALL_CHOSEN: Final = -1
"""The result of `CHOOSE_SLOTS` if it found a slot for every row."""

STICKY_BYTES: Final = 16 << 10
"""The bytes after which rows without a key move on to the next partition. It is the size of Kafka's
default batch."""

_BYTES: Final = KernelArgument.BYTES
_INT: Final = KernelArgument.INT
_INT32S: Final = KernelArgument.INT32S
_INT64S: Final = KernelArgument.INT64S

_SOURCE: Final = "quorate.spark.writing.record_encoder"

CHOOSE_SLOTS: Final = KernelDeclaration(
    _SOURCE,
    "choose_slots",
    (
        _INT, _INT,  # rows, what they have
        _INT32S, _INT64S, _INT64S,  # topics of rows; their first slots, partitions
        _INT32S, _BYTES,  # partitions of rows, validity
        _INT64S, _BYTES, _BYTES,  # keys: ends, bytes, validity
        _INT64S,  # ends of values
        _INT64S, _INT64S,  # sticky partitions, bytes that went there
        _INT32S,  # slots
    ),
    sources=(__name__,),
)  # fmt: skip
GROUP_BY_SLOT: Final = KernelDeclaration(
    _SOURCE,
    "group_by_slot",
    (
        _INT32S, _INT,  # slots, rows
        _INT64S, _INT,  # ends, how many
        _INT64S,  # order
    ),
    sources=(__name__,),
)  # fmt: skip
APPEND_RECORDS: Final = KernelDeclaration(
    _SOURCE,
    "append_records",
    (
        _BYTES, _INT, _INT,  # output, position, limit
        _INT, _INT,  # records so far, base timestamp
        _INT64S, _INT, _INT,  # order, begin, end
        _INT64S,  # report
        _INT, _INT64S,  # what rows have, timestamps
        _INT64S, _BYTES, _BYTES,  # keys: ends, bytes, validity
        _INT64S, _BYTES, _BYTES,  # values
        _INT64S, _INT64S, _BYTES,  # headers: lists; keys: ends, bytes
        _INT64S, _BYTES, _BYTES,  # values of headers: ends, bytes, validity
    ),
    sources=(__name__,),
)  # fmt: skip
EVERY_KERNEL: Final = (CHOOSE_SLOTS, GROUP_BY_SLOT, APPEND_RECORDS)
