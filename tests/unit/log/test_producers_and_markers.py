"""What transactions' markers say of producers, and who may have a leader append what (KIP-98)."""

import msgspec
import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.admission import AppendOrigin, check_produced
from quorate.broker.log.batches.control_batches import EndMarker, encode_marker
from quorate.broker.log.batches.record_batch import iterate_batches
from quorate.broker.log.state.producer_state_manager import ProducerStateManager
from quorate_proto.v1 import errors_pb2
from tests.support.log_stores import batch
from tests.support.record_batches import CONTROL, TRANSACTIONAL
from tests.unit.log.test_producers import EVERYTHING, ME, Partition, sent


def end(epoch: int = 0, coordinator_epoch: int = 0, *, committed: bool = False) -> EndMarker:
    return EndMarker(ME, epoch, committed, coordinator_epoch)


@pytest.fixture
def partition() -> Partition:
    return Partition()


def mark(partition: Partition, marker: EndMarker) -> None:
    partition.producers.check_marker(marker)
    partition.producers.record_marker(marker, partition.end_offset)
    partition.end_offset += 1


def code_of(partition: Partition, marker: EndMarker) -> int:
    with pytest.raises(KafkaError, match="orders-3") as refused:
        partition.producers.check_marker(marker)
    return refused.value.code


def test_kip_98_sequences_go_on_behind_a_marker(partition: Partition) -> None:
    partition.append(sent(0, 3))
    mark(partition, end(committed=True))
    assert partition.refusal(sent(4)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(sent(0, 3))[0] is not None, "sent again"
    assert partition.append(sent(3)) == [None]


def test_kip_98_a_marker_of_a_newer_epoch_fences_the_older_one(partition: Partition) -> None:
    """A coordinator that gives up on a producer, or hears of its next instance, writes one."""
    partition.append(sent(0, 3))
    mark(partition, end(epoch=1))
    for zombie in (sent(0, 3), sent(3)):
        assert partition.refusal(zombie) == errors_pb2.INVALID_PRODUCER_EPOCH
    assert partition.refusal(sent(3, epoch=1)) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.append(sent(0, epoch=1)) == [None]
    assert code_of(partition, end(epoch=0)) == errors_pb2.INVALID_PRODUCER_EPOCH


def test_kip_98_a_coordinator_that_was_replaced_ends_nothing(partition: Partition) -> None:
    mark(partition, end(coordinator_epoch=5))
    fenced = errors_pb2.TRANSACTION_COORDINATOR_FENCED
    assert code_of(partition, end(coordinator_epoch=4)) == fenced
    assert code_of(partition, end(epoch=3, coordinator_epoch=4)) == fenced
    partition.append(sent(0, epoch=4))
    assert code_of(partition, end(epoch=4, coordinator_epoch=4)) == fenced, "it stays known"
    mark(partition, end(epoch=4, coordinator_epoch=5))


def test_of_a_producer_that_a_marker_alone_tells_of_any_sequence_is_taken(
    partition: Partition,
) -> None:
    """What it sent before may have been deleted, as where nothing is known of it."""
    mark(partition, end(epoch=3))
    assert partition.append(sent(41, epoch=3)) == [None]
    assert partition.refusal(sent(41, epoch=2)) == errors_pb2.INVALID_PRODUCER_EPOCH


def test_coordinators_batches_have_epochs_and_no_sequences(partition: Partition) -> None:
    """Offsets of a transaction: an older instance of the producer must not add to them."""

    def offsets(epoch: int) -> bytes:
        return batch(producer=(ME, epoch, -1), attributes=TRANSACTIONAL)

    (newer, older) = (next(iterate_batches(offsets(epoch), "")) for epoch in (2, 1))
    assert partition.append(newer) == [None]
    assert partition.append(newer) == [None], "nobody takes it for a retry"
    assert partition.refusal(older) == errors_pb2.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("deleted_to", [101, 103, 104, 105])
def test_what_markers_said_can_be_put_away(partition: Partition, deleted_to: int) -> None:
    partition.append(sent(0, 3))  # At 100 to 102.
    mark(partition, end(coordinator_epoch=5))  # At 103.
    partition.append(sent(3))  # At 104.
    packed = partition.producers.pack_before(deleted_to)
    restored = Partition()
    restored.producers = ProducerStateManager.unpack("orders-3", packed)
    if deleted_to <= 103:
        restored.producers.record_marker(end(coordinator_epoch=5), 103)
    if deleted_to <= 104:
        restored.producers.record(sent(3).header, 104)
    assert restored.append(sent(3))[0] is not None, "sent again"
    assert restored.append(sent(4)) == [None]
    fenced = errors_pb2.TRANSACTION_COORDINATOR_FENCED
    assert code_of(restored, end(coordinator_epoch=4)) == fenced


def test_producers_without_markers_are_put_away_as_older_releases_read_them(
    partition: Partition,
) -> None:
    partition.append(sent(0, 3))
    packed = partition.producers.pack_before(EVERYTHING)
    assert msgspec.msgpack.decode(packed) == [[ME, 0, 2, [2, 102, 2]]]
    mark(partition, end(coordinator_epoch=5))
    packed = partition.producers.pack_before(EVERYTHING)
    assert msgspec.msgpack.decode(packed) == [[ME, 0, 2, [2, 102, 2], 5, 103]]


def test_the_last_marker_of_a_known_producer_must_stay(partition: Partition) -> None:
    """In a compacted log, too: it alone may tell the epoch."""
    partition.append(sent(0))
    mark(partition, end())
    mark(partition, end(epoch=1))
    assert partition.producers.remembered_offsets() == {102}
    partition.producers.truncate_from_end(102)
    assert partition.producers.remembered_offsets() == frozenset()


def test_whoever_is_in_a_transaction_is_not_forgotten(partition: Partition) -> None:
    partition.append(sent(0), sent(0, producer_id=8))
    for now_ms in (0, 100, 200):
        partition.producers.expire(now_ms, 100, busy={ME})
    assert [producer_id for producer_id, _ in partition.producers.items()] == [ME]
    for now_ms in (300, 400):
        partition.producers.expire(now_ms, 100)
    assert not len(partition.producers)


IN_TRANSACTION = batch(producer=(ME, 0, 0), attributes=TRANSACTIONAL)
WITHOUT_SEQUENCE = batch(producer=(ME, 0, -1), attributes=TRANSACTIONAL)
WITHOUT_EPOCH = batch(producer=(ME, -1, -1), attributes=TRANSACTIONAL)
OF_NOBODY = batch(attributes=TRANSACTIONAL)
MARKER = encode_marker(end(), 0)
PLAIN = batch()
REFUSED = errors_pb2.INVALID_RECORD
UNAUTHORIZED = errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("origin", "data", "code"),
    [
        (AppendOrigin.CLIENT, PLAIN, None),
        (AppendOrigin.CLIENT, IN_TRANSACTION, UNAUTHORIZED),
        (AppendOrigin.CLIENT, MARKER, REFUSED),
        (AppendOrigin.TRANSACTIONAL_CLIENT, PLAIN, None),
        (AppendOrigin.TRANSACTIONAL_CLIENT, IN_TRANSACTION, None),
        (AppendOrigin.TRANSACTIONAL_CLIENT, WITHOUT_SEQUENCE, REFUSED),
        (AppendOrigin.TRANSACTIONAL_CLIENT, OF_NOBODY, REFUSED),
        (AppendOrigin.TRANSACTIONAL_CLIENT, MARKER, REFUSED),
        (AppendOrigin.TRANSACTIONAL_CLIENT, batch(attributes=CONTROL), REFUSED),
        (AppendOrigin.COORDINATOR, PLAIN, None),
        (AppendOrigin.COORDINATOR, WITHOUT_SEQUENCE, None),
        (AppendOrigin.COORDINATOR, WITHOUT_EPOCH, REFUSED),
        (AppendOrigin.COORDINATOR, MARKER, REFUSED),
        (AppendOrigin.MARKERS, MARKER, None),
        (AppendOrigin.MARKERS, IN_TRANSACTION, REFUSED),
        (AppendOrigin.MARKERS, PLAIN, REFUSED),
    ],
)
def test_kip_98_who_may_have_what_appended(
    origin: AppendOrigin, data: bytes, code: int | None
) -> None:
    (found,) = iterate_batches(data, "orders-3")
    if code is None:
        check_produced(found.header, 0, 1 << 20, "orders-3", origin)
        return
    with pytest.raises(KafkaError, match="orders-3") as refused:
        check_produced(found.header, 0, 1 << 20, "orders-3", origin)
    assert refused.value.code == code


def test_a_marker_is_written_however_small_a_topics_batches_must_be() -> None:
    """Or its transaction would never be over."""
    (marker,) = iterate_batches(MARKER, "orders-3")
    check_produced(marker.header, 0, 1, "orders-3", AppendOrigin.MARKERS)
