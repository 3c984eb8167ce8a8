"""Records found by their timestamps: the first at or after one, the first of the greatest.

One batch per question, found by its header: only this one is decompressed and walked.
"""

from collections.abc import Iterable, Iterator

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
    if header.max_timestamp < timestamp_ms:
        return None
    for offset, timestamp in _timestamps(header, batch, from_offset, up_to_offset):
        if timestamp >= timestamp_ms:
            return offset, timestamp
    return None


def first_of_greatest(
    batches: Iterable[bytes], from_offset: int, up_to_offset: int
) -> tuple[int, int] | None:
    """(offset, timestamp in ms) of the first record in [from, up to) that none is later than.

    Raises:
        KafkaError: as ``first_record_at``.
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
    """(offset, timestamp in ms) of the batch's records in [from, up to).

    Those of a batch with the broker's time all have the same: one of them stands for all.
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
