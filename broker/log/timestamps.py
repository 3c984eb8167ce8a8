"""The first record of a batch at or after a timestamp.

One batch per question, found by its header: only this one is decompressed and walked.
"""

from broker.errors import KafkaError
from broker.log.codecs import UndecodableRecords
from broker.log.record_batch import BatchHeader, read_header
from broker.log.records import plain_records, walk
from quorate_proto.v1 import errors_pb2


def first_record_at(
    batch: bytes, timestamp_ms: int, from_offset: int, up_to_offset: int
) -> tuple[int, int] | None:
    """(offset, timestamp in ms) of the first record in [from, up to) at or after the timestamp.

    Raises:
        KafkaError: CORRUPT_MESSAGE; the records cannot be decoded. The CRC was right, so it is
            the producer that wrote them so.
    """
    header = read_header(batch)
    if not header.record_count:
        return None
    if header.is_log_append_time:
        offset = max(header.base_offset, from_offset)
        found = header.max_timestamp >= timestamp_ms and offset < up_to_offset
        return (offset, header.max_timestamp) if found else None
    try:
        return _first(header, plain_records(header, batch), timestamp_ms, from_offset, up_to_offset)
    except UndecodableRecords as error:
        raise KafkaError(
            errors_pb2.CORRUPT_MESSAGE,
            f"batch at offset {header.base_offset}: its records cannot be decoded ({error})",
        ) from error


def _first(
    header: BatchHeader, records: bytes, timestamp_ms: int, from_offset: int, up_to_offset: int
) -> tuple[int, int] | None:
    for _, _, _, timestamp_delta, offset_delta, *_ in walk(records, header.record_count):
        timestamp = header.base_timestamp + timestamp_delta
        offset = header.base_offset + offset_delta
        if offset >= up_to_offset:
            return None
        if timestamp >= timestamp_ms and offset >= from_offset:
            return offset, timestamp
    return None
