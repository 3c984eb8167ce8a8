"""Searches records by timestamp: the first record at or after a timestamp, and the first record
with the greatest timestamp.

Each search decompresses only one batch, which the caller finds by the batch headers.
"""

from collections.abc import Iterable, Iterator

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.codecs import UndecodableRecords
from quorate.broker.log.batches.record_batch import BatchHeader, read_header
from quorate.broker.log.batches.records import plain_records, walk
from quorate_proto.v1 import errors_pb2


def first_record_at(
    batch: bytes, timestamp_ms: int, from_offset: int, up_to_offset: int
) -> tuple[int, int] | None:
    """Return (offset, timestamp in ms) of the first record at or after the timestamp.

    Only offsets in [from, up to) count. Return None if there is no such record.

    Raises:
        KafkaError: CORRUPT_MESSAGE if the records cannot be decoded. The CRC was right, so the
            producer wrote them that way.
    """
    header = read_header(batch)
    if header.max_timestamp < timestamp_ms:
        return None
    for offset, timestamp in _timestamps(header, batch, from_offset, up_to_offset):
        if timestamp >= timestamp_ms:
            return offset, timestamp
    return None


def first_of_greatest(
    batches: Iterable[bytes], from_offset: int, up_to_offset: int
) -> tuple[int, int] | None:
    """Return (offset, timestamp in ms) of the first record that has the greatest timestamp.

    Only offsets in [from, up to) count. Return None if there is no such record.

    Raises:
        KafkaError: what ``first_record_at`` raises.
    """
    best: tuple[int, int] | None = None
    for batch in batches:
        header = read_header(batch)
        if best is not None and header.max_timestamp <= best[1]:
            continue
        for offset, timestamp in _timestamps(header, batch, from_offset, up_to_offset):
            if best is None or timestamp > best[1]:
                best = offset, timestamp
    return best


def _timestamps(
    header: BatchHeader, batch: bytes, from_offset: int, up_to_offset: int
) -> Iterator[tuple[int, int]]:
    """Yield (offset, timestamp in ms) of the records of the batch in [from, up to).

    With timestamp type LogAppendTime all records have the same timestamp, so only the first is
    yielded.
    """
    if not header.record_count:
        return
    if header.is_log_append_time:
        offset = max(header.base_offset, from_offset)
        if offset < min(up_to_offset, header.last_offset + 1):
            yield offset, header.max_timestamp
        return
    try:
        records = plain_records(header, batch)
        for _, _, _, timestamp_delta, offset_delta, *_ in walk(records, header.record_count):
            offset = header.base_offset + offset_delta
            if offset >= up_to_offset:
                return
            if offset >= from_offset:
                yield offset, header.base_timestamp + timestamp_delta
    except UndecodableRecords as error:
        raise KafkaError(
            errors_pb2.CORRUPT_MESSAGE,
            f"batch at offset {header.base_offset}: its records cannot be decoded ({error})",
        ) from error
