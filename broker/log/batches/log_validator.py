"""Validates what producers send, record by record, before any of it is appended.

The checks and their error codes are those of Kafka's LogValidator. Where consumers would not agree
on what a batch holds, the checks are stricter: offset deltas must be consecutive, varints must fit
their type, and a length below -1 is none. The work per record is done by ``record_walk``.
"""

from typing import Final, NamedTuple, Protocol

from quorate.broker.common.errors import InvalidRecords, KafkaError, RecordError
from quorate.broker.log.batches.admission import AppendOrigin, produced_batches
from quorate.broker.log.batches.codecs import (
    NONE,
    DoesNotFit,
    UndecodableRecords,
    decompress_into,
)
from quorate.broker.log.batches.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    Batch,
    BatchHeader,
    Where,
)
from quorate.broker.log.batches.schema_prefixes import SchemaNames
from quorate.broker.log.batches.topic_timestamps import TopicStorageOptions, with_timestamp
from quorate.broker.log.options import Records
from quorate.broker.log.record_walk import layout
from quorate.broker.log.record_walk.choice import is_compiled, record_walk
from quorate.broker.log.record_walk.layout import RefusedRecord, WalkAnswer, WalkQuestion
from quorate_proto.v1 import errors_pb2

_EARLIEST_MS: Final = -(2**63)
_LATEST_MS: Final = 2**63 - 1

_GROWTH: Final = 8
"""The buffer for decompressed records grows by this factor until the records fit."""

_PROBLEMS: Final = {
    layout.FEWER_RECORDS: "is not there",
    layout.MORE_BYTES: "is the last one, but more bytes follow",
    layout.BAD_LENGTH: "has a length that is malformed or goes beyond the batch",
    layout.BAD_TIMESTAMP_DELTA: "has a malformed timestamp delta",
    layout.BAD_OFFSET_DELTA: "has another offset delta than its place in the batch",
    layout.BAD_KEY: "has a key that goes beyond the record",
    layout.BAD_VALUE: "has a value that goes beyond the record",
    layout.BAD_HEADERS: "has headers that go beyond the record",
    layout.WRONG_LENGTH: "is longer than its fields",
}


class Effort(NamedTuple):
    """The most work that one validation may do."""

    steps: int
    """The records and headers of a batch."""
    compressed_bytes: int
    """The size of a compressed batch."""
    buffer_bytes: int
    """The size of the buffer for decompressed records."""
    is_limited: bool
    """Whether the buffer stays as it is, instead of growing up to the limit of the topic."""


AT_ONCE: Final = Effort(20_000, 4 << 10, 64 << 10, is_limited=True)
"""The work of a fraction of a millisecond, which the event loop may do itself."""
AT_ONCE_IN_PYTHON: Final = AT_ONCE._replace(steps=100)
"""The same where the walk is not compiled."""
IN_A_THREAD: Final = Effort(2**62, 2**62, 1 << 20, is_limited=False)
"""Whatever it takes. The buffer shrinks again after a batch that needed more."""


class TooMuchAtOnce(Exception):
    """The validation is more work than this validator may do."""


class ProducedLog(Protocol):
    """The part of a log that a validator needs to judge the batches for it."""

    max_batch_bytes: int
    needs_keys: bool
    storing: TopicStorageOptions


class LogValidator:
    """The validator of one thread."""

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._walk = record_walk(keeps_lock=effort.is_limited)
        self._buffer = memoryview(bytearray(effort.buffer_bytes))

    @classmethod
    def at_once(cls) -> "LogValidator":
        """Return a validator that never keeps the event loop waiting."""
        return cls(AT_ONCE if is_compiled() else AT_ONCE_IN_PYTHON)

    def validate(
        self,
        records: Records,
        log: ProducedLog,
        origin: AppendOrigin,
        now_ms: int,
        where: Where,
        names: SchemaNames | None = None,
    ) -> list[Batch]:
        """Return the batches as they may be appended, with timestamps as the topic wants them.

        A batch whose memory is writable is changed in place: its header gets the greatest timestamp
        of its records, or with LogAppendTime ``now_ms``. ``where`` names the partition in messages.
        ``names`` gets the schemas that the records name.

        Raises:
            TooMuchAtOnce: nothing was decided.
            InvalidRecords: INVALID_RECORD or INVALID_TIMESTAMP. The error lists the records.
            KafkaError: what ``produced_batches`` raises; INVALID_RECORD or INVALID_TIMESTAMP;
                MESSAGE_TOO_LARGE if a batch decompresses to too many bytes.
        """
        batches = produced_batches(records, log.max_batch_bytes, where, origin)
        limits = _timestamp_limits(log.storing, now_ms)
        greatest: list[int] = []
        refused: list[RefusedRecord] = []
        count = refused_count = 0
        try:
            for batch in batches:
                _check_header(batch.header, where)
                answer = self._walked(batch, limits, log, where, names)
                if answer.refused_count:
                    refused_count += answer.refused_count
                    refused += [one._replace(record=one.record + count) for one in answer.refused]
                count += batch.header.record_count
                greatest.append(answer.greatest_timestamp)
        finally:
            if len(self._buffer) > self._effort.buffer_bytes:
                self._buffer = memoryview(bytearray(self._effort.buffer_bytes))
        if refused:
            raise _refusal(refused, refused_count, count, limits, where)
        # Batches are changed when all are decided: a thread may have to begin again.
        return [
            _stamped(batch, log.storing, timestamp_ms, now_ms)
            for batch, timestamp_ms in zip(batches, greatest, strict=True)
        ]

    def _walked(
        self,
        batch: Batch,
        limits: tuple[int, int],
        log: ProducedLog,
        where: Where,
        names: SchemaNames | None,
    ) -> WalkAnswer:
        header, data = batch
        begin, size = HEADER_BYTES, len(data) - HEADER_BYTES
        if header.attributes & COMPRESSION_MASK != NONE:
            size = self._decompress(batch, log.storing.decompressed_max_bytes, where)
            begin, data = 0, self._buffer
        question = WalkQuestion(
            size,
            header.record_count,
            header.base_timestamp,
            *limits,
            log.needs_keys,
            self._effort.steps,
        )
        answer = self._walk(data, begin, question)
        if answer.status != layout.OK:
            if answer.status == layout.UNFINISHED:
                raise TooMuchAtOnce
            raise _invalid(
                where,
                f"record {answer.record} of a batch of {header.record_count}, at byte {answer.at} "
                f"of its records, {_PROBLEMS[answer.status]}",
            )
        if names is not None:
            names.look(data[: begin + size], begin, header.record_count, where)
        return answer

    def _decompress(self, batch: Batch, max_bytes: int, where: Where) -> int:
        """Decompress the records into the buffer, which may grow, and return their size."""
        header, data = batch
        compressed = data[HEADER_BYTES:]
        if len(compressed) > self._effort.compressed_bytes:
            raise TooMuchAtOnce
        while True:
            try:
                return decompress_into(header.compression, compressed, self._buffer[:max_bytes])
            except UndecodableRecords as error:
                raise _invalid(where, f"a batch cannot be decompressed: {error}") from error
            except DoesNotFit as error:
                if self._effort.is_limited:
                    raise TooMuchAtOnce from error
                if len(self._buffer) >= max_bytes:
                    raise _too_large(where, len(compressed), max_bytes) from error
                size = min(max_bytes, _GROWTH * len(self._buffer))
                self._buffer = memoryview(bytearray(size))


def _check_header(header: BatchHeader, where: Where) -> None:
    if header.base_offset:
        raise _invalid(
            where, f"a batch has base offset {header.base_offset}; that of a producer's batch is 0"
        )
    if header.attributes & LOG_APPEND_TIME:
        raise KafkaError(
            errors_pb2.INVALID_TIMESTAMP,
            f"{where}: a batch says that it has its broker's time (LogAppendTime); producers send "
            "CreateTime",
        )


def _timestamp_limits(storing: TopicStorageOptions, now_ms: int) -> tuple[int, int]:
    """Return the first and the last timestamp that a record may have.

    These are Kafka's limits, which take a timestamp before 1970. Without a limit for the past, only
    what is 2^63 ms or more before ``now_ms`` is refused.
    """
    if storing.log_append_time:
        return _EARLIEST_MS, _LATEST_MS
    return (
        max(now_ms - storing.before_max_ms, _EARLIEST_MS),
        min(now_ms + storing.after_max_ms, _LATEST_MS),
    )


def _stamped(batch: Batch, storing: TopicStorageOptions, greatest: int, now_ms: int) -> Batch:
    """Return the batch with the timestamp in its header that the log goes by."""
    header = batch.header
    if storing.log_append_time:
        return with_timestamp(batch, header.attributes | LOG_APPEND_TIME, now_ms)
    if header.max_timestamp != greatest:
        # Kafka puts it right as well: some clients send another one.
        return with_timestamp(batch, header.attributes, greatest)
    return batch


def _refusal(
    refused: list[RefusedRecord],
    refused_count: int,
    count: int,
    limits: tuple[int, int],
    where: Where,
) -> InvalidRecords:
    """Return the error that names the records. One wrong timestamp makes it INVALID_TIMESTAMP."""
    of_keys = all(one.problem == layout.NO_KEY for one in refused)
    errors = [RecordError(one.record, _problem(one, limits)) for one in refused]
    return InvalidRecords(
        errors_pb2.INVALID_RECORD if of_keys else errors_pb2.INVALID_TIMESTAMP,
        f"{where}: {refused_count} of {count} records are refused; record {errors[0].place}: "
        f"{errors[0].message}",
        errors,
    )


def _problem(one: RefusedRecord, limits: tuple[int, int]) -> str:
    if one.problem == layout.NO_KEY:
        return "no key, which a compacted topic needs"
    if one.problem == layout.TIMESTAMP_OVERFLOW:
        return "the sum of base timestamp and timestamp delta has more than 64 bits"
    earliest, latest = limits
    return (
        f"timestamp {one.timestamp} is out of range; the topic takes {earliest} to {latest} now "
        "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)"
    )


def _too_large(where: Where, compressed_bytes: int, max_bytes: int) -> KafkaError:
    return KafkaError(
        errors_pb2.MESSAGE_TOO_LARGE,
        f"{where}: {compressed_bytes} bytes of a batch decompress to more than {max_bytes}; send "
        "smaller batches, or raise message.max.decompressed.bytes",
    )


def _invalid(where: Where, problem: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_RECORD, f"{where}: {problem}")
