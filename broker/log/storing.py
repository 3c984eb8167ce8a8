"""How a topic has clients' batches stored, where that is not just as they come.

What a producer says of its times is believed as far as the batch's header goes, as everywhere in
the log; single records are looked at only where a topic has a lower bound, or to name those that
are refused.
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.errors import InvalidRecords, KafkaError, RecordError
from broker.log.codecs import UndecodableRecords
from broker.log.record_batch import CRC_FROM, LOG_APPEND_TIME, Batch, BatchHeader
from broker.log.records import plain_records, walk
from quorate_proto.v1 import errors_pb2

NO_LIMIT_MS: Final = 2**63 - 1
MOST_BYTES: Final = 64 << 20
"""Decompressed."""

_NO_TIMESTAMP: Final = -1
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35


class Storing(NamedTuple):
    """``log_append_time``: records have the time at which they came, not their producer's, which
    else may lie so far before and after it (``message.timestamp.*``). ``codec``: of all batches
    (``compression.type``), see ``recoding``; None: that of their producer."""

    log_append_time: bool = False
    before_max_ms: int = NO_LIMIT_MS
    after_max_ms: int = NO_LIMIT_MS
    codec: int | None = None


AS_SENT: Final = Storing()


def timed(batches: list[Batch], storing: Storing, now_ms: int, where: str) -> list[Batch]:
    """``batches`` with the times that the topic wants. ``now_ms``: wall clock.

    Where a batch can be written to, it is changed in place.

    Raises:
        InvalidRecords: INVALID_TIMESTAMP; names the records.
        KafkaError: INVALID_TIMESTAMP; INVALID_RECORD if records cannot be looked at that must be.
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
        return [_stamped(batch, now_ms) for batch in batches]
    if must_look:
        _check_records(batches, storing, now_ms, where)
    return batches


def _stamped(batch: Batch, now_ms: int) -> Batch:
    """All its records came now: so the header says, theirs are not looked at any more."""
    header, data = batch
    if data.readonly:
        data = memoryview(bytearray(data))
    attributes = header.attributes | LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(data, CRC_FROM, attributes)
    _MAX_TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_AT, now_ms)
    crc = crc32c(data[CRC_FROM:])
    _CRC.pack_into(data, _CRC_AT, crc)
    return Batch(header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc), data)


def _check_records(batches: list[Batch], storing: Storing, now_ms: int, where: str) -> None:
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
            if (problem := _untimely(time_ms, storing, now_ms))
        ]
        count += header.record_count
        if not found and header.max_timestamp - now_ms > storing.after_max_ms:
            found = [RecordError(count - 1, _untimely(header.max_timestamp, storing, now_ms))]
        refused += found
    if refused:
        raise InvalidRecords(
            errors_pb2.INVALID_TIMESTAMP,
            f"{where}: {len(refused)} of {count} records have timestamps that the topic does not "
            f"take; record {refused[0].place}: {refused[0].message}",
            refused,
        )


def _times(header: BatchHeader, data: memoryview) -> list[int]:
    """Of all its records, in order."""
    records = plain_records(header, data, MOST_BYTES)
    base = header.base_timestamp
    return [base + place[3] for place in walk(records, header.record_count)]


def _untimely(time_ms: int, storing: Storing, now_ms: int) -> str:
    """What is wrong with a record's time; empty: nothing."""
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
