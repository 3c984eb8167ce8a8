"""The walk in Python, for machines without machine code, and to compare the machine code with.

It is about a hundred times slower. What a record looks like and what is checked is in ``source``.
"""

from typing import Final

from quorate.broker.log.record_walk.layout import (
    BAD_HEADERS,
    BAD_KEY,
    BAD_LENGTH,
    BAD_OFFSET_DELTA,
    BAD_TIMESTAMP_DELTA,
    BAD_VALUE,
    FEWER_RECORDS,
    LISTED_MAX,
    MORE_BYTES,
    NO_KEY,
    NO_TIMESTAMP,
    OK,
    TIMESTAMP_OUT_OF_RANGE,
    TIMESTAMP_OVERFLOW,
    UNFINISHED,
    WRONG_LENGTH,
    RefusedRecord,
    WalkAnswer,
    WalkQuestion,
)

_INT64_SIGN: Final = 1 << 63
_INT64_BITS: Final = (1 << 64) - 1


class _Malformed(Exception):
    """A record that is none. The argument is the status."""


class PythonWalk:
    """The walk of one thread."""

    def __call__(self, records: memoryview, begin: int, question: WalkQuestion) -> WalkAnswer:
        """Walk over the records that begin at ``begin``."""
        return _Walk(records[begin : begin + question.size], question).answer()


class _Walk:
    def __init__(self, records: memoryview, question: WalkQuestion) -> None:
        self._records = records
        self._question = question
        self._steps = question.steps
        self._greatest = NO_TIMESTAMP
        self._record = 0
        self._record_at = 0
        self._refused_count = 0
        self._refused: list[RefusedRecord] = []

    def answer(self) -> WalkAnswer:
        at = 0
        try:
            for record in range(self._question.record_count):
                self._record, self._record_at = record, at
                at = self._step_over(at)
            self._record_at = at
            if at != self._question.size:
                raise _Malformed(MORE_BYTES)
        except _Malformed as malformed:
            (status,) = malformed.args
            return WalkAnswer(status, NO_TIMESTAMP, self._record, self._record_at, 0, [])
        return WalkAnswer(OK, self._greatest, self._record, at, self._refused_count, self._refused)

    def _step_over(self, at: int) -> int:
        """Return the end of the record that begins at ``at``."""
        size = self._question.size
        self._take_steps(1)
        if at >= size:
            raise _Malformed(FEWER_RECORDS)
        length, at = self._varint(at, size, 32, BAD_LENGTH)
        if not 1 <= length <= size - at:
            raise _Malformed(BAD_LENGTH)
        end = at + length
        delta, at = self._varint(at + 1, end, 64, BAD_TIMESTAMP_DELTA)
        offset, at = self._varint(at, end, 32, BAD_OFFSET_DELTA)
        if offset != self._record:
            raise _Malformed(BAD_OFFSET_DELTA)
        key, at = self._field(at, end, BAD_KEY)
        _, at = self._field(at, end, BAD_VALUE)
        at = self._headers(at, end)
        if at != end:
            raise _Malformed(WRONG_LENGTH)
        self._judge(key, delta)
        return at

    def _headers(self, at: int, end: int) -> int:
        count, at = self._varint(at, end, 32, BAD_HEADERS)
        if count < 0 or count * 2 > end - at:
            raise _Malformed(BAD_HEADERS)
        self._take_steps(count)
        for _ in range(count):
            length, at = self._field(at, end, BAD_HEADERS)
            if length < 0:
                raise _Malformed(BAD_HEADERS)
            _, at = self._field(at, end, BAD_HEADERS)
        return at

    def _judge(self, key: int, delta: int) -> None:
        """Note what the topic does not take of a record, and its timestamp."""
        asked = self._question
        exact = asked.base_timestamp + delta
        timestamp = (exact + _INT64_SIGN & _INT64_BITS) - _INT64_SIGN
        problem = 0
        if key < 0 and asked.needs_keys:
            problem = NO_KEY
        elif timestamp != exact:
            problem = TIMESTAMP_OVERFLOW
        elif timestamp != NO_TIMESTAMP and not asked.earliest <= timestamp <= asked.latest:
            problem = TIMESTAMP_OUT_OF_RANGE
        if problem:
            self._refused_count += 1
            if len(self._refused) < LISTED_MAX:
                self._refused.append(RefusedRecord(self._record, problem, timestamp))
        self._greatest = max(self._greatest, timestamp)

    def _take_steps(self, count: int) -> None:
        self._steps -= count
        if self._steps < 0:
            raise _Malformed(UNFINISHED)

    def _field(self, at: int, end: int, status: int) -> tuple[int, int]:
        """Return the length of a field, or -1 if it is null, and the position behind the field."""
        length, at = self._varint(at, end, 32, status)
        if not -1 <= length <= end - at:
            raise _Malformed(status)
        return length, at + max(length, 0)

    def _varint(self, at: int, end: int, bits: int, status: int) -> tuple[int, int]:
        raw = shift = 0
        while at < end:
            byte = self._records[at]
            at += 1
            if shift + 7 > bits and byte >> (bits - shift):
                break
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1), at
            shift += 7
        raise _Malformed(status)
