"""The question to the walk and its answer: the numbers in its block, its results and problems.

The block is an array of 64-bit numbers that the caller and the compiled code share. The compiled
code is made with these constants (``source``): after a change, ``python -m
quorate.broker.log.record_walk`` makes it anew.
"""

from typing import Final, NamedTuple

SIZE: Final = 0
"""The bytes of the records."""
COUNT: Final = 1
"""The records that the batch claims to have."""
BASE_TIMESTAMP: Final = 2
EARLIEST: Final = 3
LATEST: Final = 4
"""The first and the last timestamp that a record may have."""
NEEDS_KEYS: Final = 5
"""1 if every record must have a key, else 0."""
STEPS: Final = 6
"""The records and headers after which the walk stops with `UNFINISHED`."""
ASKED: Final = 7
"""The numbers of the question. Those of the answer follow."""

GREATEST: Final = 7
"""The greatest timestamp of the records, or -1 if none is greater."""
RECORD: Final = 8
AT: Final = 9
"""The record where the walk stopped, and the position in the records where that record begins."""
REFUSED: Final = 10
"""The place of the number of records that the topic does not take."""
ROWS: Final = 11
"""The first of the rows, one for each of these records: record, problem, timestamp."""
ROW_NUMBERS: Final = 3
LISTED_MAX: Final = 500
"""The number of rows. Further records that the topic does not take are only counted."""
BLOCK_NUMBERS: Final = ROWS + ROW_NUMBERS * LISTED_MAX

OK: Final = 0
"""The records are well-formed. The topic may refuse some of them nevertheless."""
UNFINISHED: Final = 1
FEWER_RECORDS: Final = 2
MORE_BYTES: Final = 3
BAD_LENGTH: Final = 4
BAD_TIMESTAMP_DELTA: Final = 5
BAD_OFFSET_DELTA: Final = 6
BAD_KEY: Final = 7
BAD_VALUE: Final = 8
BAD_HEADERS: Final = 9
WRONG_LENGTH: Final = 10

NO_KEY: Final = 1
TIMESTAMP_OUT_OF_RANGE: Final = 2
TIMESTAMP_OVERFLOW: Final = 3

NO_TIMESTAMP: Final = -1
"""The timestamp of a record without one. It is within all limits, as in Kafka."""


class WalkQuestion(NamedTuple):
    """The question, in the order of the block."""

    size: int
    record_count: int
    base_timestamp: int
    earliest: int
    latest: int
    needs_keys: int
    steps: int


class RefusedRecord(NamedTuple):
    """A well-formed record that the topic does not take."""

    record: int
    problem: int
    timestamp: int


class WalkAnswer(NamedTuple):
    """The answer. After any status but `OK` only ``record`` and ``at`` mean something."""

    status: int
    greatest_timestamp: int
    record: int
    at: int
    refused_count: int
    refused: list[RefusedRecord]
