"""Decides the end of a transaction by a client with transactions v2 (KIP-890), so by EndTxn 5.

Each end begins a new epoch of the producer, which the answer tells. Markers have the new epoch, so
that a batch of this transaction that comes late is refused wherever it arrives. A repeated request
comes in the epoch before, and is told the new one again:

                     current epoch                 epoch before, repeated
    ONGOING          ends, new epoch               PRODUCER_FENCED
    prepared         CONCURRENT_TRANSACTIONS       CONCURRENT_TRANSACTIONS if it is the same end
    EMPTY            abort: ends, new epoch        PRODUCER_FENCED
    COMPLETE         abort: ends, new epoch        the new epoch if it is the same end

A commit where nothing was begun, and a repeated request for the other end, are refused with
INVALID_TXN_STATE. Kafka also takes an epoch for that of a repeated request if a newer producer has
begun the epoch after it: it tells a producer that is fenced that its commit succeeded. Here
``client_version`` says whether an end has begun the epoch.
"""

from typing import Final

from quorate.broker.coordinator.transactions.state.transaction_decisions import (
    Decision,
    Done,
    NeedsProducerId,
    Refused,
    Write,
)
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    LAST_EPOCH,
    TRANSACTIONS_V2,
    ProducerEpoch,
    TransactionMetadata,
    TransactionState,
)
from quorate_proto.v1 import errors_pb2

_CONCURRENT: Final = Refused(errors_pb2.CONCURRENT_TRANSACTIONS)
_FENCED: Final = Refused(errors_pb2.PRODUCER_FENCED)
_INVALID_STATE: Final = Refused(errors_pb2.INVALID_TXN_STATE)
_OTHER_PRODUCER: Final = Refused(errors_pb2.INVALID_PRODUCER_ID_MAPPING)


def end_in_next_epoch(
    found: TransactionMetadata | None,
    producer: ProducerEpoch,
    now_ms: int,
    *,
    commit: bool,
    new_producer_id: int | None = None,
) -> Decision | NeedsProducerId:
    """Decide the end. The client goes on as ``next_producer`` of what is written, or is there."""
    if found is None:
        return _OTHER_PRODUCER
    if _is_repeated(found, producer):
        return _repeated(found, commit=commit)
    if found.is_prepared and producer in (found.producer, found.next_producer):
        return _CONCURRENT
    if producer != found.producer or found.is_prepared:
        return _FENCED if producer.producer_id == found.producer_id else _OTHER_PRODUCER
    if found.state is not TransactionState.ONGOING and commit:
        return _INVALID_STATE
    if found.epochs_are_used_up and new_producer_id is None:
        return NeedsProducerId()
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    return Write(found.ended_in_next_epoch(state, now_ms, new_producer_id))


def _is_repeated(found: TransactionMetadata, producer: ProducerEpoch) -> bool:
    """Return whether ``producer`` is the one before the end that has begun the present epoch."""
    if found.client_version < TRANSACTIONS_V2 or not (found.is_prepared or found.is_complete):
        return False
    if producer.producer_id == found.producer_id:
        return producer.epoch + 1 == found.epoch
    before = ProducerEpoch(found.previous_producer_id, LAST_EPOCH - 1)
    return found.is_complete and found.epoch == 0 and producer == before


def _repeated(found: TransactionMetadata, *, commit: bool) -> Refused | Done:
    if commit is not found.is_commit:
        return _INVALID_STATE
    return _CONCURRENT if found.is_prepared else Done(found)
