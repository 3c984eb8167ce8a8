"""Timestamps of produced batches: the timestamp type of a topic, and the bounds for timestamps.

The log relies on the timestamps in batch headers, as everywhere. Single records are decoded only
where a topic has a lower bound, or to name the records that are refused.
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from quorate.broker.common.errors import InvalidRecords, KafkaError, RecordError
from quorate.broker.log.batches.codecs import UndecodableRecords
from quorate.broker.log.batches.record_batch import CRC_FROM, LOG_APPEND_TIME, Batch, BatchHeader
from quorate.broker.log.batches.records import plain_records, walk
from quorate_proto.v1 import errors_pb2

NO_LIMIT_MS: Final = 2**63 - 1
MOST_BYTES: Final = 64 << 20
"""The largest size of the decompressed records of one batch, in bytes."""

_NO_TIMESTAMP: Final = -1
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35


class TopicStorageOptions(NamedTuple):
    """The topic configuration that determines how produced batches are stored.

    ``log_append_time`` gives records the time at which they are appended instead of the producer's
    timestamps (timestamp type LogAppendTime). Otherwise a timestamp may be at most
    ``before_max_ms`` before and ``after_max_ms`` after the current time (``message.timestamp.*``).
    ``codec`` is the codec of all batches (``compression.type``, see ``recompression``), or None to
    keep the producer's codec.
    """

    log_append_time: bool = False
    before_max_ms: int = NO_LIMIT_MS
    after_max_ms: int = NO_LIMIT_MS
    codec: int | None = None


AS_SENT: Final = TopicStorageOptions()


def with_topic_timestamps(
    batches: list[Batch], storing: TopicStorageOptions, now_ms: int, where: str
) -> list[Batch]:
    """Return ``batches`` with the timestamps that the topic's configuration requires.

    ``now_ms`` is the wall clock. A batch whose memory is writable is changed in place.

    Raises:
        InvalidRecords: INVALID_TIMESTAMP. The error lists the records.
        KafkaError: INVALID_TIMESTAMP; INVALID_RECORD if records that must be checked cannot be
            decoded.
    """
    latest_ms = now_ms + storing.after_max_ms
    must_look = storing.before_max_ms != NO_LIMIT_MS
    for header, _ in batches:
        if header.attributes & LOG_APPEND_TIME:
            raise KafkaError(
                errors_pb2.INVALID_TIMESTAMP,
                f"{where}: a batch says that it has its broker's time (LogAppendTime); producers "
                "send CreateTime",
            )
        if header.max_timestamp > latest_ms:
            must_look = True
    if storing.log_append_time:
        return [_with_append_time(batch, now_ms) for batch in batches]
    if must_look:
        _check_records(batches, storing, now_ms, where)
    return batches


def _with_append_time(batch: Batch, now_ms: int) -> Batch:
    """Return the batch with timestamp type LogAppendTime. Readers then take the header's timestamp
    and ignore those of the records."""
    header, data = batch
    if data.readonly:
        data = memoryview(bytearray(data))
    attributes = header.attributes | LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(data, CRC_FROM, attributes)
    _MAX_TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_AT, now_ms)
    crc = crc32c(data[CRC_FROM:])
    _CRC.pack_into(data, _CRC_AT, crc)
    return Batch(header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc), data)


def _check_records(
    batches: list[Batch], storing: TopicStorageOptions, now_ms: int, where: str
) -> None:
    refused: list[RecordError] = []
    count = 0
    for header, data in batches:
        try:
            times = _times(header, data)
        except UndecodableRecords as error:
            raise KafkaError(
                errors_pb2.INVALID_RECORD, f"{where}: a batch cannot be decoded: {error}"
            ) from error
        found = [
            RecordError(place, problem)
            for place, time_ms in enumerate(times, count)
            if (problem := _timestamp_problem(time_ms, storing, now_ms))
        ]
        count += header.record_count
        if not found and header.max_timestamp - now_ms > storing.after_max_ms:
            found = [
                RecordError(count - 1, _timestamp_problem(header.max_timestamp, storing, now_ms))
            ]
        refused += found
    if refused:
        raise InvalidRecords(
            errors_pb2.INVALID_TIMESTAMP,
            f"{where}: {len(refused)} of {count} records have timestamps that the topic does not "
            f"take; record {refused[0].place}: {refused[0].message}",
            refused,
        )


def _times(header: BatchHeader, data: memoryview) -> list[int]:
    """Return the timestamps of all records of the batch, in order."""
    records = plain_records(header, data, MOST_BYTES)
    base = header.base_timestamp
    return [base + place[3] for place in walk(records, header.record_count)]


def _timestamp_problem(time_ms: int, storing: TopicStorageOptions, now_ms: int) -> str:
    """Return what is wrong with the timestamp of a record, or an empty string if nothing is."""
    if time_ms == _NO_TIMESTAMP:
        return ""
    if now_ms - time_ms > storing.before_max_ms:
        return (
            f"timestamp {time_ms} is {now_ms - time_ms} ms old, message.timestamp.before.max.ms "
            f"is {storing.before_max_ms}"
        )
    if time_ms - now_ms > storing.after_max_ms:
        return (
            f"timestamp {time_ms} is {time_ms - now_ms} ms ahead, message.timestamp.after.max.ms "
            f"is {storing.after_max_ms}"
        )
    return ""
