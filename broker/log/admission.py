"""What may enter a log: a request is checked whole before any of it is appended.

Beyond what ``iterate_batches`` refuses of anybody, a producer's batches must be such as clients may
write, and a leader's must continue the log.
"""

from typing import Final

from broker.errors import KafkaError
from broker.log.empty_batches import is_empty_span, span_from
from broker.log.options import Records
from broker.log.record_batch import Batch, BatchHeader, corrupt, iterate_batches, too_large
from quorate_proto.v1 import errors_pb2

_LAST_COMPRESSION: Final = 4
_TRANSACTIONAL: Final = 0x10


def produced_batches(records: Records, max_batch_bytes: int, where: str) -> list[Batch]:
    """The batches of a producer's request, at least one.

    Raises:
        KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT, or as ``check_produced``.
    """
    batches: list[Batch] = []
    position = 0
    for batch in iterate_batches(records, where):
        header = batch.header
        check_produced(header, position, max_batch_bytes, where)
        batches.append(batch)
        position += header.size
    return _not_empty(batches, where)


def replicated_batches(
    records: Records, log_start_offset: int, log_end_offset: int, where: str
) -> list[Batch]:
    """The batches of a leader's response, at least one.

    The leader sends whole batches, and the first may begin before this log's end. Where it says
    nothing about its offsets (compaction left an empty span), what is missing is cut from it. Where
    this log is empty and begins inside of it, as its leader's does, it is taken as it is.

    Raises:
        KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT, MESSAGE_TOO_LARGE,
            OFFSET_OUT_OF_RANGE.
    """
    batches: list[Batch] = []
    position = 0
    for batch in iterate_batches(records, where):
        header = batch.header
        size = header.size
        if header.base_offset < log_end_offset <= header.last_offset:
            if is_empty_span(header):
                batch = span_from(header, log_end_offset)
                header = batch.header
            elif log_start_offset == log_end_offset:
                log_end_offset = header.base_offset
        check_replicated(header, position, log_end_offset, where)
        batches.append(batch)
        position += size
        log_end_offset = header.last_offset + 1
    return _not_empty(batches, where)


def check_produced(header: BatchHeader, position: int, max_bytes: int, where: str) -> None:
    """Refuse what a producer must not send, beyond what ``iterate_batches`` refuses.

    Raises:
        KafkaError: MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD or
            TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    if header.size > max_bytes:
        raise too_large(where, position, header.size, max_bytes)
    if header.compression > _LAST_COMPRESSION:
        raise KafkaError(
            errors_pb2.UNSUPPORTED_COMPRESSION_TYPE,
            f"{where}: batch at byte {position} of the request has compression type "
            f"{header.compression}; known are 0 (none) to {_LAST_COMPRESSION} (zstd)",
        )
    if header.is_control:
        raise _invalid(where, position, "is a control batch, which clients may not write")
    if header.attributes & _TRANSACTIONAL:
        # Nothing would ever end its transaction.
        raise KafkaError(
            errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"{where}: batch at byte {position} of the request is part of a transaction; this "
            "cluster has none",
        )
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise _invalid(
            where,
            position,
            f"of producer {header.producer_id} has epoch {header.producer_epoch} and base sequence "
            f"{header.base_sequence}; both begin at 0",
        )
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise _invalid(
            where,
            position,
            f"has {header.record_count} records and last offset delta {header.last_offset_delta}; "
            "a producer's batch has at least one record and numbers them from 0 without gaps",
        )


def check_replicated(header: BatchHeader, position: int, log_end_offset: int, where: str) -> None:
    """Refuse a leader's batch that does not continue a log that ends at ``log_end_offset``.

    Raises:
        KafkaError: OFFSET_OUT_OF_RANGE or CORRUPT_MESSAGE.
    """
    if header.last_offset_delta < 0:
        raise corrupt(where, position, f"last offset delta is {header.last_offset_delta}")
    if header.base_offset != log_end_offset:
        raise KafkaError(
            errors_pb2.OFFSET_OUT_OF_RANGE,
            f"{where}: batch at byte {position} of the leader's response begins at offset "
            f"{header.base_offset}, this log ends at {log_end_offset}; fetch from there",
        )


def _not_empty(batches: list[Batch], where: str) -> list[Batch]:
    if not batches:
        raise KafkaError(errors_pb2.INVALID_RECORD, f"{where}: the request has no record batch")
    return batches


def _invalid(where: str, position: int, problem: str) -> KafkaError:
    return KafkaError(
        errors_pb2.INVALID_RECORD, f"{where}: batch at byte {position} of the request {problem}"
    )
