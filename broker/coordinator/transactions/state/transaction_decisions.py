"""Decides the effect of requests, timeouts and completions on a transactional id.

Each function decides and changes nothing. ``Write`` holds the next state, which is valid once the
log has it. While it is being written, the shell refuses every other request with
CONCURRENT_TRANSACTIONS. The error codes are Kafka's.
"""

from collections.abc import Mapping, Set
from typing import Final, NamedTuple

from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    AT_REST,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTIONS_V2,
    ProducerEpoch,
    TransactionMetadata,
    TransactionState,
)
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class Refused(NamedTuple):
    code: int


class Done(NamedTuple):
    """Nothing has to be written: the state is already as requested."""

    transaction: TransactionMetadata


class Write(NamedTuple):
    """Write ``transaction``; the client receives ``code`` after that, and not before."""

    transaction: TransactionMetadata
    code: int = errors_pb2.NONE


class NeedsProducerId(NamedTuple):
    """Take a new producer id and decide again with it; the state may have changed meanwhile."""


Decision = Refused | Done | Write


def init_producer(
    found: TransactionMetadata | None,
    expected: ProducerEpoch | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int | None = None,
) -> Decision | NeedsProducerId:
    """Start a producer, or let it recover (``expected`` is its present id and epoch, KIP-360).

    An open transaction of its predecessor is aborted first, and the client has to retry.
    """
    if found is None:
        if new_producer_id is None:
            return NeedsProducerId()
        return Write(_empty(new_producer_id, 0, timeout_ms, now_ms))
    if expected is not None and not _is_own(found, expected):
        return Refused(errors_pb2.PRODUCER_FENCED)
    if found.is_prepared:
        return Refused(errors_pb2.CONCURRENT_TRANSACTIONS)
    if found.state is TransactionState.ONGOING:
        return _fence_before_init(found, expected, now_ms)
    return _next_producer(found, expected, timeout_ms, now_ms, new_producer_id)


def _is_own(found: TransactionMetadata, expected: ProducerEpoch) -> bool:
    """Return whether ``expected`` can be the producer that received the id last.

    After the epochs of an id were used up, the producer may not know its new id yet.
    """
    if expected.producer_id == found.producer_id:
        return True
    was_last = expected.producer_id == found.previous_producer_id
    return was_last and expected.epoch >= LAST_EPOCH - 1


def _fence_before_init(
    found: TransactionMetadata, expected: ProducerEpoch | None, now_ms: int
) -> Refused | Write:
    """Abort the open transaction, unless a newer producer owns it: a zombie must not end that
    one."""
    if expected is not None and expected.epoch != found.epoch:
        return Refused(errors_pb2.PRODUCER_FENCED)
    fenced = _fenced(found, now_ms)
    if expected is not None:
        fenced = fenced._replace(last_epoch=found.epoch)
    return Write(fenced, errors_pb2.CONCURRENT_TRANSACTIONS)


def _next_producer(
    found: TransactionMetadata,
    expected: ProducerEpoch | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int | None,
) -> Refused | Write | NeedsProducerId:
    is_present = expected is None or expected == (found.producer_id, found.epoch)
    if not is_present:
        if expected is None or expected.epoch != found.last_epoch:
            return Refused(errors_pb2.PRODUCER_FENCED)
        if found.epoch < LAST_EPOCH:
            # The answer to its last request was lost; no other producer can have asked since.
            again = _empty(found.producer_id, found.epoch, timeout_ms, now_ms)
            return Write(_remember(again, found.last_epoch, found.previous_producer_id))
    last_epoch = NO_EPOCH if expected is None else found.epoch
    if not found.epochs_are_used_up:
        bumped = _empty(found.producer_id, found.epoch + 1, timeout_ms, now_ms)
        return Write(_remember(bumped, last_epoch, found.previous_producer_id))
    if new_producer_id is None:
        return NeedsProducerId()
    rotated = _empty(new_producer_id, 0, timeout_ms, now_ms)
    return Write(_remember(rotated, last_epoch, found.producer_id))


def _remember(
    empty: TransactionMetadata, last_epoch: int, previous_producer_id: int
) -> TransactionMetadata:
    return empty._replace(last_epoch=last_epoch, previous_producer_id=previous_producer_id)


def _empty(producer_id: int, epoch: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=_NOTHING,
        updated_ms=now_ms,
    )


def add_partitions(
    found: TransactionMetadata | None,
    producer: ProducerEpoch,
    partitions: Set[TopicPartition],
    now_ms: int,
    client_version: int = 0,
) -> Decision:
    """Add ``partitions`` to the transaction; the first ones begin it.

    With transactions v2 the leader of a partition asks, when it gets the first batch. That batch
    may be late, so no transaction begins in an epoch that has had one which ended without a new
    epoch. Kafka's clients start a new epoch before their first transaction v2.
    """
    if found is not None and found.is_prepared and producer == found.next_producer:
        return Refused(errors_pb2.CONCURRENT_TRANSACTIONS)
    refused = _refusal(found, producer)
    if refused is not None or found is None:
        return refused or Refused(errors_pb2.INVALID_PRODUCER_ID_MAPPING)
    if found.is_prepared:
        return Refused(errors_pb2.CONCURRENT_TRANSACTIONS)
    if found.state is TransactionState.ONGOING:
        if partitions <= found.partitions:
            return Done(found)
        return Write(
            found._replace(
                partitions=found.partitions | partitions,
                updated_ms=now_ms,
                client_version=client_version,
            )
        )
    if client_version >= TRANSACTIONS_V2 and _has_used_its_epoch(found):
        return Refused(errors_pb2.TRANSACTION_ABORTABLE)
    return Write(
        found._replace(
            state=TransactionState.ONGOING,
            partitions=frozenset(partitions),
            started_ms=now_ms,
            updated_ms=now_ms,
            previous_producer_id=NO_PRODUCER_ID,
            client_version=client_version,
        )
    )


def _has_used_its_epoch(found: TransactionMetadata) -> bool:
    """Return whether the present epoch of a producer at rest has had a transaction."""
    return found.state is not TransactionState.EMPTY and found.client_version < TRANSACTIONS_V2


def end(
    found: TransactionMetadata | None, producer: ProducerEpoch, now_ms: int, *, commit: bool
) -> Decision:
    """Decide the end of a transaction by a client without transactions v2, which keeps its epoch.

    A repeated request learns whether the end is complete.
    """
    refused = _refusal(found, producer)
    if refused is not None or found is None:
        return refused or Refused(errors_pb2.INVALID_PRODUCER_ID_MAPPING)
    if found.state is TransactionState.ONGOING:
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        return Write(found._replace(state=state, updated_ms=now_ms, client_version=0))
    if found.state is TransactionState.EMPTY or found.is_commit is not commit:
        return Refused(errors_pb2.INVALID_TXN_STATE)
    return Refused(errors_pb2.CONCURRENT_TRANSACTIONS) if found.is_prepared else Done(found)


def verify(
    found: TransactionMetadata | None, producer: ProducerEpoch, partitions: Set[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """Return an error code for each partition that tells whether it is part of the open transaction
    (KIP-890)."""
    refused = _refusal(found, producer)
    if refused is not None or found is None:
        code = errors_pb2.INVALID_PRODUCER_ID_MAPPING if refused is None else refused.code
        return dict.fromkeys(partitions, code)
    if found.is_prepared:
        return dict.fromkeys(partitions, errors_pb2.CONCURRENT_TRANSACTIONS)
    return {
        tp: errors_pb2.NONE if tp in found.partitions else errors_pb2.TRANSACTION_ABORTABLE
        for tp in partitions
    }


def abort(
    found: TransactionMetadata | None,
    now_ms: int,
    *,
    version: int = 0,
    new_producer_id: int | None = None,
) -> Refused | Write | NeedsProducerId:
    """Abort a transaction for an operator, before its timeout."""
    if found is None:
        return Refused(errors_pb2.TRANSACTIONAL_ID_NOT_FOUND)
    if found.is_prepared:
        return Refused(errors_pb2.CONCURRENT_TRANSACTIONS)
    if found.state is not TransactionState.ONGOING:
        return Refused(errors_pb2.INVALID_TXN_STATE)
    return _ended_for(found, now_ms, version, new_producer_id)


def time_out(
    found: TransactionMetadata | None,
    now_ms: int,
    *,
    version: int = 0,
    new_producer_id: int | None = None,
) -> Refused | Write | NeedsProducerId:
    """Abort a transaction that is open for too long; refused if it is not."""
    if found is None or not found.is_overdue(now_ms):
        return Refused(errors_pb2.INVALID_TXN_STATE)
    return _ended_for(found, now_ms, version, new_producer_id)


def _ended_for(
    found: TransactionMetadata, now_ms: int, version: int, new_producer_id: int | None
) -> Write | NeedsProducerId:
    """Abort in the producer's place.

    ``version`` is the cluster's transaction.version. From 2 on the producer may learn the new epoch
    by asking for the abort itself, and go on, as in Kafka. Below that it is fenced.
    """
    if version < TRANSACTIONS_V2:
        return Write(_fenced(found, now_ms))
    if found.epochs_are_used_up and new_producer_id is None:
        return NeedsProducerId()
    state = TransactionState.PREPARE_ABORT
    return Write(found.ended_in_next_epoch(state, now_ms, new_producer_id))


def complete(found: TransactionMetadata, now_ms: int) -> Write:
    """Complete the prepared transaction ``found``, whose markers are all written."""
    return Write(found.completed(now_ms))


def is_expired(found: TransactionMetadata, expiration_ms: int, now_ms: int) -> bool:
    """Return whether the transactional id was unused for so long that it can be forgotten."""
    return found.state in AT_REST and found.updated_ms <= now_ms - expiration_ms


def _refusal(found: TransactionMetadata | None, producer: ProducerEpoch) -> Refused | None:
    """Return the reason why ``producer`` is refused in every state, or None if it is accepted."""
    if found is None or producer.producer_id != found.producer_id:
        return Refused(errors_pb2.INVALID_PRODUCER_ID_MAPPING)
    if producer.epoch != found.epoch:
        return Refused(errors_pb2.PRODUCER_FENCED)
    return None


def _fenced(found: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return the transaction prepared for abort, in an epoch that its producer does not have.

    ``client_version`` says that this producer cannot learn that epoch by a repeated end.
    """
    return found._replace(
        state=TransactionState.PREPARE_ABORT,
        epoch=found.epoch + 1,
        last_epoch=NO_EPOCH,
        updated_ms=now_ms,
        client_version=0,
    )
