"""Idempotent producers: what a partition takes, what it has already, and what it refuses."""

from collections.abc import Callable

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.record_batch import Batch, iterate_batches
from quorate.broker.log.state.producer_state_manager import (
    REMEMBERED_BATCHES,
    DuplicateBatch,
    ProducerStateManager,
)
from quorate_proto.v1 import errors_pb2
from tests.support.log_stores import batch

ME = 7
LAST = 2**31 - 1
EVERYTHING = 2**63


def sent(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = ME) -> Batch:
    (found,) = iterate_batches(batch(count, producer=(producer_id, epoch, sequence)), "orders-3")
    return found


class Partition:
    """The producers of a log that gives offsets from 100 on."""

    def __init__(self) -> None:
        self.producers = ProducerStateManager("orders-3")
        self.end_offset = 100

    def append(self, *batches: Batch) -> list[DuplicateBatch | None]:
        """As a leader does; what was found instead of each batch."""
        originals = self.producers.find_duplicates(batches)
        for one, original in zip(batches, originals, strict=True):
            if original is None:
                self.record(one)
        return originals

    def record(self, one: Batch) -> None:
        """As a follower does."""
        self.producers.record(one.header, self.end_offset)
        self.end_offset += one.header.last_offset_delta + 1

    def refusal(self, *batches: Batch) -> int:
        before = self.producers.pack_before(EVERYTHING)
        with pytest.raises(KafkaError, match="orders-3") as refused:
            self.producers.find_duplicates(batches)
        assert self.producers.pack_before(EVERYTHING) == before
        return refused.value.code


@pytest.fixture
def partition() -> Partition:
    return Partition()


def test_kip_98_sequences_count_records_from_batch_to_batch(partition: Partition) -> None:
    assert partition.append(sent(0, 3)) == [None]
    assert partition.append(sent(3, 2)) == [None]
    assert partition.append(sent(5)) == [None]
    assert partition.refusal(sent(7)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refusal(sent(5, 2)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_kip_98_a_batch_that_is_sent_again_is_where_it_was(partition: Partition) -> None:
    for sequence in (0, 3, 6):
        partition.append(sent(sequence, 3))
    assert partition.append(sent(3, 3)) == [DuplicateBatch(103, 105)]
    assert partition.append(sent(6, 3)) == [DuplicateBatch(106, 108)]
    assert partition.append(sent(9)) == [None]


def test_a_batch_that_ends_where_another_did_is_not_the_same(partition: Partition) -> None:
    partition.append(sent(0, 3))
    assert partition.refusal(sent(1, 2)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_as_many_batches_are_remembered_as_may_be_in_flight(partition: Partition) -> None:
    for sequence in range(8):
        partition.append(sent(sequence))
    for sequence in range(8 - REMEMBERED_BATCHES, 8):
        assert partition.append(sent(sequence)) == [DuplicateBatch(100 + sequence, 100 + sequence)]
    assert partition.refusal(sent(2)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(("first", "count", "then"), [(LAST, 1, 0), (LAST - 1, 4, 2)])
def test_sequences_go_on_at_0_behind_the_last(
    partition: Partition, first: int, count: int, then: int
) -> None:
    partition.append(sent(first, count))
    assert partition.append(sent(first, count)) == [DuplicateBatch(100, 99 + count)]
    assert partition.refusal(sent(then + 1)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(sent(then)) == [None]


def test_kip_360_of_an_unknown_producer_any_sequence_is_taken(partition: Partition) -> None:
    assert partition.append(sent(41, 2, epoch=3)) == [None]
    assert partition.append(sent(43, epoch=3)) == [None]


def test_kip_360_a_new_epoch_begins_at_0_and_ends_the_one_before(partition: Partition) -> None:
    partition.append(sent(0))
    assert partition.refusal(sent(1, epoch=1)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(sent(0, epoch=1)) == [None]
    assert partition.append(sent(0, epoch=1)) == [DuplicateBatch(101, 101)]
    for zombie in (sent(0), sent(1)):
        assert partition.refusal(zombie) == errors_pb2.INVALID_PRODUCER_EPOCH


def test_producers_do_not_get_in_each_others_way(partition: Partition) -> None:
    mine, other = sent(0, 2), sent(0, 2, producer_id=8)
    nobody = sent(-1, producer_id=-1, epoch=-1)
    assert partition.append(mine, other, nobody, sent(2)) == [None] * 4
    assert partition.append(other) == [DuplicateBatch(102, 103)]
    assert partition.append(nobody, nobody) == [None, None]
    assert len(partition.producers) == 2


def test_of_several_batches_what_is_there_is_skipped(partition: Partition) -> None:
    """Where leadership moves, replicas may have got a part of an append only."""
    parts = [sent(0, 2), sent(2, 2), sent(4, 2)]
    partition.append(parts[0])
    assert partition.append(*parts) == [DuplicateBatch(100, 101), None, None]
    assert partition.append(*parts) == [DuplicateBatch(100 + 2 * n, 101 + 2 * n) for n in range(3)]


@pytest.mark.parametrize(
    "batches",
    [
        (sent(0), sent(2)),
        (sent(1), sent(0)),
        (sent(0), sent(0)),
        (sent(0), sent(1, epoch=1)),
        (sent(0, producer_id=8), sent(5)),
    ],
)
def test_several_batches_are_taken_all_or_none(
    partition: Partition, batches: tuple[Batch, ...]
) -> None:
    partition.append(sent(2**31 - 1))
    assert partition.refusal(*batches) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_follower_believes_the_log(partition: Partition) -> None:
    for one in (sent(0, epoch=2), sent(9, epoch=2), sent(4, epoch=1)):
        partition.record(one)
    assert partition.append(sent(4, epoch=1)) == [DuplicateBatch(102, 102)]
    assert partition.append(sent(5, epoch=1)) == [None]


@pytest.mark.parametrize("kept", range(9))
def test_what_was_truncated_is_what_comes_next(partition: Partition, kept: int) -> None:
    """The last five were in flight: the producer sends them again, whatever was truncated."""
    for sequence in range(0, 16, 2):
        partition.append(sent(sequence, 2))
    partition.producers.truncate_from_end(100 + 2 * kept)
    partition.end_offset = 100 + 2 * kept
    for sequence in range(6, 16, 2):
        if sequence >= 2 * kept:
            assert partition.append(sent(sequence, 2)) == [None]
        elif kept > 3:
            assert partition.append(sent(sequence, 2)) == [
                DuplicateBatch(100 + sequence, 101 + sequence)
            ]
    assert partition.append(sent(16)) == [None]


def test_an_epoch_that_was_truncated_begins_again(partition: Partition) -> None:
    partition.append(sent(0))
    partition.append(sent(0, epoch=1))
    partition.producers.truncate_from_end(101)
    assert partition.refusal(sent(1, epoch=1)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(sent(0, epoch=1)) == [None]


def test_of_an_emptied_log_nothing_is_known(partition: Partition) -> None:
    partition.append(sent(0))
    partition.producers.clear()
    assert partition.append(sent(5)) == [None]


def _at(partition: Partition, *times_ms: int) -> int:
    for now_ms in times_ms:
        partition.producers.expire(now_ms, 100)
    return len(partition.producers)


@pytest.mark.parametrize(
    ("between", "left"),
    [(lambda _: None, 0), (lambda partition: partition.append(sent(1)), 1)],
    ids=["silent", "active"],
)
def test_who_is_silent_for_long_is_forgotten(
    partition: Partition, between: Callable[[Partition], object], left: int
) -> None:
    partition.append(sent(0))
    assert _at(partition, 1000, 1099) == 1
    between(partition)
    assert _at(partition, 1100) == left
    assert _at(partition, 1199) == left
    assert _at(partition, 1200) == 0


def test_what_deleted_batches_said_can_be_put_away(partition: Partition) -> None:
    for sequence in range(4):
        partition.append(sent(sequence), sent(sequence, 2, producer_id=8 + sequence))
    packed = partition.producers.pack_before(105)
    again = Partition()
    again.producers = ProducerStateManager.unpack("orders-3", packed)
    assert again.append(sent(1)) == [DuplicateBatch(103, 103)]
    assert again.append(sent(0, 2, producer_id=8)) == [DuplicateBatch(101, 102)]
    assert len(again.producers) == 2
    assert again.refusal(sent(3)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.producers.pack_before(100) == b""
    assert not len(ProducerStateManager.unpack("orders-3", b""))


def original(partition: Partition, *batches: Batch) -> DuplicateBatch | None:
    return partition.producers.find_originals(batches)


def doubt(partition: Partition, *batches: Batch) -> int:
    with pytest.raises(KafkaError, match="orders-3") as raised:
        partition.producers.find_originals(batches)
    return raised.value.code


def test_kip_98_an_original_is_found_among_the_last_five(partition: Partition) -> None:
    for sequence in range(0, 12, 2):
        partition.append(sent(sequence, 2))
    assert original(partition, sent(2, 2)) == DuplicateBatch(102, 103)
    assert original(partition, sent(10, 2)) == DuplicateBatch(110, 111)
    assert original(partition, sent(4, 2), sent(6, 2)) == DuplicateBatch(104, 107)


def test_kip_98_what_is_new_or_ahead_is_certainly_not_in_the_log(partition: Partition) -> None:
    assert original(partition, sent(0)) is None, "of an unknown producer"
    partition.append(sent(0, 2))
    assert original(partition, sent(2)) is None
    assert original(partition, sent(9)) is None, "2 is missing"
    assert original(partition, sent(0, epoch=1)) is None
    assert original(partition, sent(4, epoch=1)) is None
    partition.record(sent(LAST - 1, 2))
    assert original(partition, sent(0)) is None, "after the last sequence comes 0"


def test_kip_98_what_may_be_in_the_log_is_never_called_new(partition: Partition) -> None:
    """Whoever hears that a batch is not in the log may send its records in another one."""
    out_of_order = errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in range(0, 14, 2):
        partition.append(sent(sequence, 2))
    assert doubt(partition, sent(0, 2)) == out_of_order, "no longer remembered"
    assert doubt(partition, sent(13, 2)) == out_of_order, "the first of two is there"
    assert doubt(partition, sent(12)) == out_of_order, "a part of another one"
    appended = errors_pb2.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert doubt(partition, sent(12, 2), sent(14)) == appended, "one of two is there"
    partition.append(sent(0, epoch=1))
    assert doubt(partition, sent(12, 2)) == errors_pb2.INVALID_PRODUCER_EPOCH


def test_kip_98_after_a_truncation_what_was_cut_off_is_new(partition: Partition) -> None:
    for sequence in (0, 2, 4):
        partition.append(sent(sequence, 2))
    partition.producers.truncate_from_end(103)
    assert original(partition, sent(0, 2)) == DuplicateBatch(100, 101)
    assert original(partition, sent(2, 2)) is None
    assert original(partition, sent(4, 2)) is None
    assert partition.append(sent(2, 2), sent(4, 2)) == [None, None]


def test_kip_360_after_a_real_loss_a_new_epoch_begins_at_0(partition: Partition) -> None:
    """The log lost what was acknowledged: the producer goes on in the next epoch."""
    partition.append(sent(0, 2))
    partition.append(sent(2, 2))
    partition.producers.truncate_from_end(100)
    assert partition.refusal(sent(4)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert original(partition, sent(0, epoch=1)) is None
    assert partition.append(sent(0, epoch=1)) == [None]
    assert original(partition, sent(0, epoch=1)) is not None
