"""What a request, a timeout or a completion makes of a transactional id.

Each function decides and changes nothing: ``Write`` has the next state, which is in force once the
log has it. While one is being written every other request is to be refused with
CONCURRENT_TRANSACTIONS: the shell sees to that. Refusals are Kafka's.
"""

from collections.abc import Mapping, Set
from typing import Final, NamedTuple

from broker.coordinator.transactions.transaction import (
    AT_REST,
    LAST_EPOCH,
    NO_EPOCH,
    ProducerEpoch,
    Transaction,
    TransactionState,
)
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class Refused(NamedTuple):
    code: int


class Done(NamedTuple):
    """So it is already: nothing is to be written."""

    transaction: Transaction


class Write(NamedTuple):
    """``transaction`` is what to write. ``code``: what the asker is told then, and not before."""

    transaction: Transaction
    code: int = errors_pb2.NONE


class NeedsProducerId(NamedTuple):
    """Take one, and ask again with it: what is known may have changed meanwhile."""


Decision = Refused | Done | Write


def init_producer(
    found: Transaction | None,
    expected: ProducerEpoch | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int | None = None,
) -> Decision | NeedsProducerId:
    """A producer comes up, or recovers (``expected``: what it was until now, KIP-360).

    What the producer before left open is aborted first; whoever asks is to ask again.
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


def _is_own(found: Transaction, expected: ProducerEpoch) -> bool:
    """Whether it can be the producer that the id was given to last. After the epochs of an id were
    used up it may not have heard of the new id yet."""
    if expected.producer_id == found.producer_id:
        return True
    was_last = expected.producer_id == found.previous_producer_id
    return was_last and expected.epoch >= LAST_EPOCH - 1


def _fence_before_init(
    found: Transaction, expected: ProducerEpoch | None, now_ms: int
) -> Refused | Write:
    """A zombie that recovers must not end the transaction of the producer that replaced it."""
    if expected is not None and expected.epoch != found.epoch:
        return Refused(errors_pb2.PRODUCER_FENCED)
    fenced = _fenced(found, now_ms)
    if expected is not None:
        fenced = fenced._replace(last_epoch=found.epoch)
    return Write(fenced, errors_pb2.CONCURRENT_TRANSACTIONS)


def _next_producer(
    found: Transaction,
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
            # The answer to its last request got lost; nobody else can have asked since.
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


def _remember(empty: Transaction, last_epoch: int, previous_producer_id: int) -> Transaction:
    return empty._replace(last_epoch=last_epoch, previous_producer_id=previous_producer_id)


def _empty(producer_id: int, epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
    return Transaction(
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=_NOTHING,
        updated_ms=now_ms,
    )


def add_partitions(
    found: Transaction | None,
    producer: ProducerEpoch,
    partitions: Set[TopicPartition],
    now_ms: int,
) -> Decision:
    """A producer is about to write to ``partitions``; the first ones begin a transaction."""
    refused = _refusal(found, producer)
    if refused is not None or found is None:
        return refused or Refused(errors_pb2.INVALID_PRODUCER_ID_MAPPING)
    if found.is_prepared:
        return Refused(errors_pb2.CONCURRENT_TRANSACTIONS)
    if found.state is TransactionState.ONGOING:
        if partitions <= found.partitions:
            return Done(found)
        return Write(found._replace(partitions=found.partitions | partitions, updated_ms=now_ms))
    return Write(
        found._replace(
            state=TransactionState.ONGOING,
            partitions=frozenset(partitions),
            started_ms=now_ms,
            updated_ms=now_ms,
        )
    )


def end(
    found: Transaction | None, producer: ProducerEpoch, now_ms: int, *, commit: bool
) -> Decision:
    """Its producer decides. Asked again, it is told whether that is complete."""
    refused = _refusal(found, producer)
    if refused is not None or found is None:
        return refused or Refused(errors_pb2.INVALID_PRODUCER_ID_MAPPING)
    if found.state is TransactionState.ONGOING:
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        return Write(found._replace(state=state, updated_ms=now_ms))
    if found.state is TransactionState.EMPTY or found.is_commit is not commit:
        return Refused(errors_pb2.INVALID_TXN_STATE)
    return Refused(errors_pb2.CONCURRENT_TRANSACTIONS) if found.is_prepared else Done(found)


def verify(
    found: Transaction | None, producer: ProducerEpoch, partitions: Set[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """An error code for each: whether it is in the transaction that is open now (KIP-890)."""
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


def abort(found: Transaction | None, now_ms: int) -> Refused | Write:
    """An operator does not wait until its time is up."""
    if found is None:
        return Refused(errors_pb2.TRANSACTIONAL_ID_NOT_FOUND)
    if found.is_prepared:
        return Refused(errors_pb2.CONCURRENT_TRANSACTIONS)
    if found.state is not TransactionState.ONGOING:
        return Refused(errors_pb2.INVALID_TXN_STATE)
    return Write(_fenced(found, now_ms))


def time_out(found: Transaction, now_ms: int) -> Write | None:
    """Abort what has been open for too long, and fence who left it so; None: it has not been."""
    return Write(_fenced(found, now_ms)) if found.is_overdue(now_ms) else None


def complete(found: Transaction, now_ms: int) -> Write:
    """All its markers are written: ``found`` is prepared."""
    assert found.is_prepared, f"{found.state.title}: only what is prepared can be completed"
    committed = found.state is TransactionState.PREPARE_COMMIT
    state = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    return Write(found._replace(state=state, partitions=_NOTHING, updated_ms=now_ms))


def is_expired(found: Transaction, expiration_ms: int, now_ms: int) -> bool:
    """Nobody has used the transactional id for so long that it is forgotten."""
    return found.state in AT_REST and found.updated_ms <= now_ms - expiration_ms


def _refusal(found: Transaction | None, producer: ProducerEpoch) -> Refused | None:
    """Why ``producer`` may not go on with it, whatever its state; None: it may."""
    if found is None or producer.producer_id != found.producer_id:
        return Refused(errors_pb2.INVALID_PRODUCER_ID_MAPPING)
    if producer.epoch != found.epoch:
        return Refused(errors_pb2.PRODUCER_FENCED)
    return None


def _fenced(found: Transaction, now_ms: int) -> Transaction:
    """To be aborted, in an epoch that its producer does not have."""
    return found._replace(
        state=TransactionState.PREPARE_ABORT,
        epoch=found.epoch + 1,
        last_epoch=NO_EPOCH,
        updated_ms=now_ms,
    )
