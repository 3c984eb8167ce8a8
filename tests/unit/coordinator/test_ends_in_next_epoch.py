"""Transactions v2 (KIP-890): each end begins an epoch, and what becomes of what comes late."""

import pytest

from quorate.broker.coordinator.transactions.state import transaction_decisions as decisions
from quorate.broker.coordinator.transactions.state.ends_in_next_epoch import end_in_next_epoch
from quorate.broker.coordinator.transactions.state.transaction_decisions import (
    Done,
    NeedsProducerId,
    Refused,
    Write,
)
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    LAST_EPOCH,
    ProducerEpoch,
    TransactionMetadata,
    TransactionState,
)
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

State = TransactionState
TP = TopicPartition("orders", 0)
NOW_MS = 1_000_000
OWN, NEXT = ProducerEpoch(7, 4), ProducerEpoch(7, 5)
ONGOING = TransactionMetadata(
    7, 4, 60_000, State.ONGOING, frozenset({TP}), NOW_MS, NOW_MS, client_version=2
)
EMPTY = ONGOING._replace(state=State.EMPTY, partitions=frozenset(), started_ms=-1)

MAPPING = Refused(errors_pb2.INVALID_PRODUCER_ID_MAPPING)
FENCED = Refused(errors_pb2.PRODUCER_FENCED)
CONCURRENT = Refused(errors_pb2.CONCURRENT_TRANSACTIONS)
INVALID_STATE = Refused(errors_pb2.INVALID_TXN_STATE)
ABORTABLE = Refused(errors_pb2.TRANSACTION_ABORTABLE)


def end(
    found: TransactionMetadata | None, producer: ProducerEpoch, *, commit: bool
) -> decisions.Decision | NeedsProducerId:
    return end_in_next_epoch(found, producer, NOW_MS + 9, commit=commit)


def prepared(found: TransactionMetadata = ONGOING, *, commit: bool = True) -> TransactionMetadata:
    decision = end(found, found.producer, commit=commit)
    assert isinstance(decision, Write), decision
    return decision.transaction


def ended(found: TransactionMetadata = ONGOING, *, commit: bool = True) -> TransactionMetadata:
    return prepared(found, commit=commit).completed(NOW_MS + 10)


def add(found: TransactionMetadata, producer: ProducerEpoch, version: int) -> decisions.Decision:
    return decisions.add_partitions(found, producer, {TP}, NOW_MS + 20, version)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_begins_the_next_epoch(commit: bool) -> None:
    decided = prepared(commit=commit)
    assert (decided.producer, decided.last_epoch) == (NEXT, 4)
    assert decided.partitions == {TP}
    assert decided.is_commit is commit
    assert decided.next_producer == NEXT
    decided.check_follows("pay", ONGOING)
    done = decided.completed(NOW_MS + 10)
    assert (done.producer, done.is_commit, done.partitions) == (NEXT, commit, frozenset())


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_is_repeated_is_told_the_epoch_again(commit: bool) -> None:
    decided, done = prepared(commit=commit), ended(commit=commit)
    assert end(decided, OWN, commit=commit) == CONCURRENT
    assert end(done, OWN, commit=commit) == Done(done)
    for found in (decided, done):
        assert end(found, OWN, commit=not commit) == INVALID_STATE
        assert end(found, ProducerEpoch(7, 3), commit=commit) == FENCED
        assert end(found, ProducerEpoch(8, 4), commit=commit) == MAPPING


@pytest.mark.parametrize("found", [EMPTY, ended(commit=True), ended(commit=False)])
def test_an_abort_of_nothing_begins_an_epoch_and_a_commit_is_refused(
    found: TransactionMetadata,
) -> None:
    assert end(found, found.producer, commit=True) == INVALID_STATE
    aborted = prepared(found, commit=False)
    aborted.check_follows("pay", found)
    assert (aborted.epoch, aborted.partitions) == (found.epoch + 1, frozenset())
    assert aborted.started_ms == aborted.updated_ms == NOW_MS + 9


def test_while_markers_are_sent_the_producer_waits_in_its_next_epoch() -> None:
    assert end(prepared(), NEXT, commit=False) == CONCURRENT
    assert add(prepared(), NEXT, 2) == CONCURRENT
    assert add(prepared(), OWN, 2) == FENCED


def test_before_the_end_of_its_next_transaction_the_former_epoch_is_fenced() -> None:
    decision = add(ended(), NEXT, 2)
    assert isinstance(decision, Write)
    begun = decision.transaction
    assert end(begun, OWN, commit=True) == FENCED
    assert end(EMPTY, ProducerEpoch(7, 3), commit=True) == FENCED
    assert end(None, OWN, commit=True) == MAPPING


def test_a_producer_that_was_replaced_is_not_told_that_its_commit_succeeded() -> None:
    """Its epoch is one below that of a transaction whose end has begun no epoch."""
    fenced = ONGOING._replace(state=State.COMPLETE_COMMIT, client_version=0)
    assert end(fenced, ProducerEpoch(7, 3), commit=True) == FENCED


def test_a_late_batch_begins_no_transaction_in_an_epoch_that_had_one() -> None:
    had_one = ONGOING._replace(state=State.COMPLETE_COMMIT, client_version=0)
    assert add(had_one, OWN, 2) == ABORTABLE
    assert isinstance(add(had_one, OWN, 0), Write), "its client announces it"
    recovered = ended(had_one, commit=False)
    assert isinstance(add(recovered, recovered.producer, 2), Write), "it aborts, and goes on"
    assert isinstance(add(EMPTY, OWN, 2), Write)
    assert add(ended(), OWN, 2) == FENCED


# -- epochs that are used up -----------------------------------------------------------------------

LAST = ONGOING._replace(epoch=LAST_EPOCH - 1)
LAST_OWN = LAST.producer
AFTER = ProducerEpoch(12, 0)


def rotated(*, commit: bool = True) -> TransactionMetadata:
    assert end(LAST, LAST_OWN, commit=commit) == NeedsProducerId()
    decision = end_in_next_epoch(LAST, LAST_OWN, NOW_MS, commit=commit, new_producer_id=12)
    assert isinstance(decision, Write)
    return decision.transaction


def test_after_the_last_epoch_the_producer_gets_another_id() -> None:
    decided = rotated()
    assert (decided.producer, decided.next_producer) == (ProducerEpoch(7, LAST_EPOCH), AFTER)
    assert add(decided, AFTER, 2) == CONCURRENT
    assert end(decided, AFTER, commit=False) == CONCURRENT
    assert end(decided, LAST_OWN, commit=True) == CONCURRENT
    done = decided.completed(NOW_MS)
    done.check_follows("pay", decided)
    assert (done.producer, done.next_producer) == (AFTER, AFTER)
    assert end(done, LAST_OWN, commit=True) == Done(done)
    assert end(done, LAST_OWN, commit=False) == INVALID_STATE
    assert end(done, ProducerEpoch(7, LAST_EPOCH - 2), commit=True) == MAPPING
    recovers = decisions.init_producer(done, LAST_OWN, 30_000, NOW_MS)
    assert isinstance(recovers, Write)
    assert recovers.transaction.producer == AFTER


def test_the_former_id_is_forgotten_when_the_next_transaction_begins() -> None:
    decision = add(rotated().completed(NOW_MS), AFTER, 0)
    assert isinstance(decision, Write)
    committed = decisions.end(decision.transaction, AFTER, NOW_MS, commit=True)
    assert isinstance(committed, Write)
    done = committed.transaction.completed(NOW_MS)
    assert end(done, LAST_OWN, commit=True) == MAPPING


# -- ends in the producer's place ------------------------------------------------------------------

LATE_MS = NOW_MS + 60_001


def test_a_producer_whose_time_is_up_may_go_on_once_it_aborts() -> None:
    decision = decisions.time_out(ONGOING, LATE_MS, version=2)
    assert isinstance(decision, Write)
    done = decision.transaction.completed(LATE_MS)
    assert end(done, OWN, commit=True) == INVALID_STATE
    assert end(done, OWN, commit=False) == Done(done)
    assert done.producer == NEXT
    assert decisions.time_out(LAST, LATE_MS, version=2) == NeedsProducerId()
    last = decisions.time_out(LAST, LATE_MS, version=2, new_producer_id=12)
    assert isinstance(last, Write)
    assert last.transaction.next_producer == AFTER


@pytest.mark.parametrize("version", [0, 1])
def test_below_level_2_it_is_fenced(version: int) -> None:
    decision = decisions.time_out(ONGOING, LATE_MS, version=version)
    assert isinstance(decision, Write)
    assert end(decision.transaction.completed(LATE_MS), OWN, commit=False) == FENCED


def test_a_producer_that_another_one_replaces_is_fenced() -> None:
    decision = decisions.init_producer(ONGOING, None, 30_000, NOW_MS)
    assert isinstance(decision, Write)
    assert end(decision.transaction, OWN, commit=False) == FENCED
    assert end(decision.transaction.completed(NOW_MS), OWN, commit=False) == FENCED
