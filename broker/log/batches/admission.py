"""Checks of the batches that are to be appended. A request is checked whole before any of it is
appended.

``iterate_batches`` refuses what is no valid batch, whoever sends it. Beyond that, a producer's
batches must be such as clients may write, and a leader's batches must continue the log.
"""

import enum
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.empty_batches import is_empty_span, span_from
from quorate.broker.log.batches.record_batch import (
    CONTROL,
    LAST_COMPRESSION,
    TRANSACTIONAL,
    Batch,
    BatchHeader,
    Where,
    corrupt,
    iterate_batches,
    too_large,
)
from quorate.broker.log.options import Records
from quorate_proto.v1 import errors_pb2


class AppendOrigin(enum.Enum):
    """The writer that has a leader append. It determines which batches may be appended."""

    CLIENT = ("a producer without transactions", True)
    TRANSACTIONAL_CLIENT = (
        "a producer that may use its transactional id, in a transaction or not",
        True,
    )
    COORDINATOR = ("a coordinator, also for a producer whose transaction it is part of", False)
    MARKERS = ("a coordinator that ends transactions", False)

    def __init__(self, description: str, is_client: bool) -> None:
        self.is_client = is_client


CLIENT: Final = AppendOrigin.CLIENT
MARKERS: Final = AppendOrigin.MARKERS
"""A constant, because it is compared for every batch and looking up an enum member by its class
costs more."""


def produced_batches(
    records: Records, max_batch_bytes: int, where: Where, origin: AppendOrigin = CLIENT
) -> list[Batch]:
    """Return the batches of a request to append, at least one.

    Raises:
        KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT, or what ``check_produced``
            raises.
    """
    batches: list[Batch] = []
    position = 0
    for batch in iterate_batches(records, where):
        header = batch.header
        check_produced(header, position, max_batch_bytes, where, origin)
        batches.append(batch)
        position += header.size
    return _not_empty(batches, where)


def replicated_batches(
    records: Records, log_start_offset: int, log_end_offset: int, where: Where
) -> list[Batch]:
    """Return the batches of a leader's response, at least one.

    The leader sends whole batches, and the first may begin before the end of this log. If that
    first batch is an empty span (compaction left nothing of its offsets), the part that this log
    already has is cut off. If this log is empty and starts inside the first batch, as the leader's
    log does, the batch is taken whole.

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


def check_produced(
    header: BatchHeader, position: int, max_bytes: int, where: Where, origin: AppendOrigin = CLIENT
) -> None:
    """Refuse a batch that ``origin`` must not send, beyond what ``iterate_batches`` refuses.

    Raises:
        KafkaError: MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD or
            TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    if header.size > max_bytes and origin is not MARKERS:
        raise too_large(where, position, header.size, max_bytes)
    if header.compression > LAST_COMPRESSION:
        raise KafkaError(
            errors_pb2.UNSUPPORTED_COMPRESSION_TYPE,
            f"{where}: batch at byte {position} of the request has compression type "
            f"{header.compression}; known are 0 (none) to {LAST_COMPRESSION} (zstd)",
        )
    if header.attributes & (TRANSACTIONAL | CONTROL) or origin is not CLIENT:
        _check_origin(header, position, where, origin)
    if header.producer_id >= 0 and (
        header.producer_epoch < 0 or (header.base_sequence < 0 and origin.is_client)
    ):
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


def _check_origin(header: BatchHeader, position: int, where: Where, origin: AppendOrigin) -> None:
    """Refuse control batches and transactional batches from a writer that may not append them.

    Only the writer of markers may append control batches. Only a client whose transaction can be
    ended may append transactional batches, and one batch at a time, as in Kafka: whether a
    transaction may begin here is decided for the producer of the first batch alone.
    """
    if header.is_control != (origin is MARKERS):
        problem = "a control batch, which clients may not write"
        if not header.is_control:
            problem = "no control batch, which the end of a transaction is"
        raise _invalid(where, position, f"is {problem}")
    if position and origin is AppendOrigin.TRANSACTIONAL_CLIENT:
        problem = "follows another one; a request with a transactional id has one per partition"
        raise _invalid(where, position, problem)
    if not header.is_transactional:
        return
    if origin is CLIENT:
        raise KafkaError(
            errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"{where}: batch at byte {position} of the request is part of a transaction, but the "
            "request names no transactional id",
        )
    if header.producer_id < 0:
        raise _invalid(where, position, "is part of a transaction, but has no producer id")


def check_replicated(header: BatchHeader, position: int, log_end_offset: int, where: Where) -> None:
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


def _not_empty(batches: list[Batch], where: Where) -> list[Batch]:
    if not batches:
        raise KafkaError(errors_pb2.INVALID_RECORD, f"{where}: the request has no record batch")
    return batches


def _invalid(where: Where, position: int, problem: str) -> KafkaError:
    return KafkaError(
        errors_pb2.INVALID_RECORD, f"{where}: batch at byte {position} of the request {problem}"
    )
