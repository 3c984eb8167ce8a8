"""Which refusals explain that a batch comes before those that its producer sent earlier."""

import pytest

from quorate.broker.log.batches.record_batch import Batch, iterate_batches
from quorate.broker.log.state.producer_state_manager import ProducerStateManager
from quorate.broker.replication.serving.sequence_gaps import (
    PARTITIONS_MAX,
    PRODUCERS_MAX,
    REMEMBERED_MS,
    SEQUENCES_MAX,
    SequenceGaps,
)
from quorate.common.types import TopicPartition
from tests.support.log_stores import batch

TP = TopicPartition("orders", 0)
ME = 7
LAST = 2**31 - 1


class Leader:
    """A leader's producers, and what it has refused."""

    def __init__(self) -> None:
        self.gaps = SequenceGaps()
        self.producers = ProducerStateManager("orders-0")
        self.now_ms = 0

    def refuse(self, sequence: int, *, epoch: int = 0, producer_id: int = ME) -> None:
        self.gaps.note(TP, batch(producer=(producer_id, epoch, sequence)), self.now_ms)

    def append(self, sequence: int, *, epoch: int = 0) -> None:
        (one,) = iterate_batches(batch(producer=(ME, epoch, sequence)), "orders-0")
        self.producers.record(Batch(*one).header, 100 + sequence)

    def explains(self, sequence: int, *, epoch: int = 0, producer_id: int = ME) -> bool:
        records = batch(producer=(producer_id, epoch, sequence))
        return self.gaps.explain(TP, records, self.producers, self.now_ms)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_a_batch_behind_a_refused_one_is_not_appended_before_it(leader: Leader) -> None:
    leader.append(0)
    leader.refuse(1)
    assert leader.explains(2)
    assert leader.explains(5)
    assert not leader.explains(1), "this is the one that is missing"
    assert not leader.explains(0), "this one is in the log"


def test_a_leader_that_does_not_know_the_producer_would_append_anything(leader: Leader) -> None:
    leader.refuse(0)
    leader.refuse(1)
    assert leader.explains(1)
    assert leader.explains(2)
    assert not leader.explains(0)


def test_a_refusal_that_was_made_up_for_explains_nothing(leader: Leader) -> None:
    leader.refuse(0)
    leader.append(0)
    assert not leader.explains(1)
    assert not leader.explains(3), "that 1 is missing has another reason"


def test_every_refused_batch_leaves_its_own_gap(leader: Leader) -> None:
    leader.append(0)
    for sequence in (1, 2, 3):
        leader.refuse(sequence)
    leader.append(1)
    assert not leader.explains(2)
    assert leader.explains(3)
    assert leader.explains(4)


def test_another_epoch_and_another_producer_have_gaps_of_their_own(leader: Leader) -> None:
    leader.append(0)
    leader.refuse(1)
    assert not leader.explains(2, epoch=1)
    assert not leader.explains(2, producer_id=8)
    leader.refuse(0, epoch=1)
    assert leader.explains(1, epoch=1)
    assert not leader.explains(2), "the producer is past this epoch"


def test_sequences_begin_again_after_the_last(leader: Leader) -> None:
    leader.append(LAST - 1)
    leader.refuse(LAST)
    assert leader.explains(0)
    assert not leader.explains(LAST - 1)


def test_a_producer_that_gave_up_on_a_batch_is_told_after_a_while(leader: Leader) -> None:
    leader.append(0)
    leader.refuse(1)
    leader.now_ms = REMEMBERED_MS
    assert not leader.explains(2)
    assert not leader.gaps.by_partition, "and nothing slows producers down"


def test_a_refusal_for_a_gap_does_not_keep_the_gap(leader: Leader) -> None:
    """Otherwise a producer that sends on and on would never be told."""
    leader.append(0)
    leader.refuse(1)
    leader.now_ms = REMEMBERED_MS - 1
    assert leader.explains(2)
    leader.refuse(2)
    leader.now_ms = REMEMBERED_MS
    assert not leader.explains(2)
    assert not leader.explains(3)


def test_only_idempotent_producers_have_gaps(leader: Leader) -> None:
    leader.gaps.note(TP, batch(), 0)
    leader.gaps.note(TP, b"not a batch", 0)
    assert not leader.gaps.by_partition
    leader.refuse(0)
    assert not leader.gaps.explain(TP, b"not a batch", leader.producers, 0)
    assert not leader.gaps.explain(TP, batch(), leader.producers, 0)


def test_what_is_remembered_is_bounded(leader: Leader) -> None:
    for producer_id in range(PRODUCERS_MAX + 1):
        leader.refuse(0, producer_id=producer_id)
    assert len(leader.gaps.by_partition[TP]) == PRODUCERS_MAX
    assert 0 not in leader.gaps.by_partition[TP]
    for sequence in range(2 * SEQUENCES_MAX):
        leader.refuse(sequence)
    remembered = list(leader.gaps.by_partition[TP][ME].until_ms)
    assert remembered == list(range(SEQUENCES_MAX, 2 * SEQUENCES_MAX))
    one = batch(producer=(ME, 0, 0))
    for partition in range(1, PARTITIONS_MAX + 1):
        leader.gaps.note(TopicPartition("orders", partition), one, 0)
    assert len(leader.gaps.by_partition) == PARTITIONS_MAX
    assert TP not in leader.gaps.by_partition
