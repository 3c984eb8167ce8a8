"""Steps of a reassignment: each whole, by compare-and-set, never without what was in sync (C11)."""

import msgspec
import pytest

from quorate.common.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition
from quorate.metadata_log.partitions import Partition, Reassignment
from quorate.metadata_log.records import (
    IsrChange,
    IsrMember,
    PartitionReassignment,
    PartitionRemovalPending,
    ResultCode,
    TopicRemoved,
)
from tests.support.metadata import MetadataLogBuilder, topic_id_of

TP = TopicPartition("orders", 0)


@pytest.fixture
def log() -> MetadataLogBuilder:
    """Five brokers, 5 the controller; one partition on 3, 2 and 1, led by 3, all in sync."""
    log = MetadataLogBuilder()
    for broker_id in range(6):
        log.start_broker(broker_id)
    log.elect_controller(5)
    assert log.create_topic("orders", (3, 2, 1), (1, 2, 3)).ok
    return log


def partition(log: MetadataLogBuilder) -> Partition:
    found = log.image.partition(TP)
    assert found is not None
    return found


def set_isr(log: MetadataLogBuilder, *isr: int) -> None:
    before = partition(log)
    leader = log.image.brokers[before.leader]
    members = (
        IsrMember(broker_id=BrokerId(b), broker_epoch=log.image.brokers[BrokerId(b)].epoch)
        for b in isr
    )
    change = IsrChange(
        topic=TP.topic,
        topic_id=topic_id_of(TP.topic),
        partition=TP.partition,
        expected_version=before.version,
        leader=before.leader,
        leader_broker_epoch=leader.epoch,
        leader_epoch=before.leader_epoch,
        isr=tuple(members),
    )
    assert log.write(change).ok


def begin(log: MetadataLogBuilder) -> None:
    """3, 2, 1 are to become 0, 2, 1 (scenario 8)."""
    assert log.reassign(TP, replicas=(3, 2, 1, 0), target=(0, 2, 1)).ok


def test_c11_a_reassignment_begins_with_replicas_and_record_in_one_step(
    log: MetadataLogBuilder,
) -> None:
    begin(log)
    assert partition(log).replicas == (3, 2, 1, 0)
    assert (partition(log).leader, partition(log).leader_epoch) == (3, 1)
    assert partition(log).isr == (3, 2, 1)
    assert partition(log).version == 1
    pending = log.image.reassignment(TP)
    assert pending == Reassignment((0, 2, 1), (3, 2, 1), log.image.offset)  # type: ignore[arg-type]
    assert (pending.adding, pending.removing) == ((0,), (3,))
    assert log.image.reassignment(TopicPartition("orders", 1)) is None


def test_c11_it_ends_where_every_replica_is_in_sync(log: MetadataLogBuilder) -> None:
    begin(log)
    early = log.reassign(TP, replicas=(0, 2, 1), leader=2, isr=(2, 1))
    assert early.results[0].code is ResultCode.INVALID
    assert "not all in the ISR" in early.results[0].detail
    set_isr(log, 3, 2, 1, 0)
    assert log.reassign(TP, replicas=(0, 2, 1), leader=0).ok
    assert partition(log).replicas == (0, 2, 1)
    assert set(partition(log).isr) == {0, 1, 2}
    assert not log.image.reassignments


def test_c11_a_dead_old_replica_does_not_matter(log: MetadataLogBuilder) -> None:
    begin(log)
    set_isr(log, 3, 2, 1, 0)
    set_isr(log, 3, 2, 0, 1)
    log.stop_broker(3)
    assert log.reassign(TP, replicas=(0, 2, 1), leader=0).ok


def test_c11_it_can_go_back_to_where_it_came_from(log: MetadataLogBuilder) -> None:
    begin(log)
    set_isr(log, 3, 0)
    assert log.reassign(TP, replicas=(3, 2, 1)).ok
    assert partition(log).replicas == (3, 2, 1)
    assert partition(log).isr == (3,)
    assert not log.image.reassignments


def test_c11_a_new_plan_keeps_where_it_came_from(log: MetadataLogBuilder) -> None:
    begin(log)
    set_isr(log, 3, 0)
    assert log.reassign(TP, replicas=(3, 2, 1, 4), target=(4, 2, 1)).ok
    pending = log.image.reassignment(TP)
    assert pending is not None
    assert pending.original == (3, 2, 1)
    assert partition(log).isr == (3,)


def test_c11_what_is_in_sync_already_needs_no_pending_record(log: MetadataLogBuilder) -> None:
    assert log.reassign(TP, replicas=(2, 1), leader=2).ok
    assert partition(log).replicas == (2, 1)
    set_isr(log, 2)
    assert log.reassign(TP, replicas=(1, 2)).ok, "the order alone"
    assert (partition(log).replicas, partition(log).isr) == ((1, 2), (2,))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"expected_version": 7}, ResultCode.VERSION_CONFLICT),
        ({"leader_epoch": LeaderEpoch(0)}, ResultCode.FENCED_LEADER_EPOCH),
        ({"topic_id": topic_id_of("orders", 1)}, ResultCode.UNKNOWN_TOPIC),
        ({"partition": 9}, ResultCode.UNKNOWN_TOPIC),
        ({"controller_id": BrokerId(4)}, ResultCode.CONTROLLER_FENCED),
        ({"controller_epoch": ControllerEpoch(9)}, ResultCode.CONTROLLER_FENCED),
        ({"replicas": (3, 2, 1, 0, 0)}, ResultCode.INVALID),
        ({"replicas": (3, 2, 1)}, ResultCode.INVALID),
        ({"replicas": (3, 2, 1, 0, 4)}, ResultCode.INVALID),
        ({"target": (0, 0, 2, 1)}, ResultCode.INVALID),
        ({"target": (-1, 2, 1), "replicas": (3, 2, 1, -1)}, ResultCode.INVALID),
        ({"original": (2, 1)}, ResultCode.INVALID),
        ({"original": (1, 2, 3)}, ResultCode.INVALID),
        ({"isr": (3, 2)}, ResultCode.INVALID),
        ({"isr": (3, 2, 1, 0)}, ResultCode.INVALID),
        ({"leader": BrokerId(0)}, ResultCode.INVALID),
        ({"target": (), "replicas": (3, 2, 1)}, ResultCode.INVALID),
        ({"target": (), "original": ()}, ResultCode.INVALID),
        ({"target": (), "original": (), "replicas": (), "isr": ()}, ResultCode.INVALID),
    ],
)
def test_c11_a_step_that_does_not_fit_changes_nothing(
    log: MetadataLogBuilder, fields: dict[str, object], code: ResultCode
) -> None:
    good = PartitionReassignment(
        topic="orders",
        topic_id=topic_id_of("orders"),
        partition=0,
        expected_version=0,
        replicas=tuple(map(BrokerId, (3, 2, 1, 0))),
        leader=BrokerId(3),
        leader_epoch=LeaderEpoch(1),
        isr=tuple(map(BrokerId, (3, 2, 1))),
        target=tuple(map(BrokerId, (0, 2, 1))),
        original=tuple(map(BrokerId, (3, 2, 1))),
        controller_id=BrokerId(5),
        controller_epoch=ControllerEpoch(1),
    )
    before = log.image
    refused = log.write_as_controller(msgspec.structs.replace(good, **fields))
    assert refused.results[0].code is code, refused
    assert (log.image.topics, log.image.reassignments) == (before.topics, before.reassignments)
    assert log.write_as_controller(good).ok


def test_c11_the_last_in_sync_replica_cannot_be_moved_away(log: MetadataLogBuilder) -> None:
    begin(log)
    set_isr(log, 3, 0)
    log.stop_broker(3)
    assert log.reassign(TP, replicas=(3, 2, 1, 0), target=(0, 2, 1), leader=0).ok
    set_isr(log, 0)
    lost = log.reassign(TP, replicas=(3, 2, 1), leader=-1)
    assert lost.results[0].code is ResultCode.INVALID


def test_c11_only_the_controller_writes_it(log: MetadataLogBuilder) -> None:
    record = PartitionReassignment(
        topic="orders",
        topic_id=topic_id_of("orders"),
        partition=0,
        expected_version=0,
        replicas=(BrokerId(3),),
        leader=BrokerId(3),
        leader_epoch=LeaderEpoch(1),
        isr=(BrokerId(3),),
        target=(),
        original=(),
        controller_id=BrokerId(5),
        controller_epoch=ControllerEpoch(1),
    )
    assert log.write(record).results[0].code is ResultCode.INVALID


def test_c11_c14_a_partition_that_goes_is_not_moved(log: MetadataLogBuilder) -> None:
    removal = PartitionRemovalPending(
        topic="orders", topic_id=topic_id_of("orders"), first_partition=1
    )
    assert log.write_as_controller(removal).ok
    refused = log.reassign(TopicPartition("orders", 1), replicas=(1, 2, 3, 0), target=(0,))
    assert refused.results[0].code is ResultCode.UNKNOWN_TOPIC
    begin(log)


def test_c11_a_topic_takes_its_pending_reassignments_with_it(log: MetadataLogBuilder) -> None:
    begin(log)
    other = TopicPartition("orders", 1)
    assert log.reassign(other, replicas=(1, 2, 3, 4), target=(4,)).ok
    assert set(log.image.reassignments["orders"]) == {0, 1}
    removed = TopicRemoved(name="orders", topic_id=topic_id_of("orders"))
    assert log.write_as_controller(removed).ok
    assert not log.image.reassignments
