"""Topics that grow and shrink: pending first, then whole, and old partitions stay told apart."""

import pytest

from quorate.common.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition
from quorate.metadata_log.partitions import RemovedPartitions, Topic
from quorate.metadata_log.records import (
    NewPartition,
    Operation,
    PartitionAdditionPending,
    PartitionChange,
    PartitionRemovalPending,
    PartitionsAdded,
    PartitionsRemoved,
    Record,
    ResultCode,
    TopicRemoved,
)
from tests.support.metadata import MetadataLogBuilder, topic_id_of

OTHER_ID = topic_id_of("orders", 1)


@pytest.fixture
def log() -> MetadataLogBuilder:
    """Three brokers, 1 the controller; topic "orders" of two partitions on brokers 1 and 2."""
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(1)
    assert log.create_topic("orders", (1, 2), (2, 1)).ok
    return log


def orders(log: MetadataLogBuilder) -> Topic:
    return log.image.topics["orders"]


def elect(log: MetadataLogBuilder, number: int, leader: int) -> ResultCode:
    """The controller gives a partition another leader, one epoch up."""
    before = orders(log).partitions[number]
    change = PartitionChange(
        topic="orders",
        topic_id=orders(log).topic_id,
        partition=number,
        expected_version=before.version,
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(before.leader_epoch + 1),
        isr=before.isr,
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(1),
    )
    return code(log, change)


def code(log: MetadataLogBuilder, *records: Record) -> ResultCode:
    return log.write_as_controller(*records).results[0].code


def grow(log: MetadataLogBuilder, *replicas: tuple[int, ...]) -> None:
    assert log.add_partitions("orders", *replicas).ok
    assert log.complete_addition("orders").ok


def shrink(log: MetadataLogBuilder, first: int) -> None:
    assert log.remove_partitions("orders", first).ok
    assert log.complete_removal("orders").ok


# --- additions ----------------------------------------------------------------------------------


def test_c14_partitions_are_pending_until_they_are_the_topics(log: MetadataLogBuilder) -> None:
    before = orders(log)
    offset = log.add_partitions("orders", (3, 1), (1, 3)).offset
    assert orders(log) is before, "nobody sees them yet"
    assert log.image.additions["orders"].replicas == ((3, 1), (1, 3))
    assert log.image.additions["orders"].version == offset
    done = log.complete_addition("orders")
    assert not log.image.additions
    assert orders(log).partitions[:2] == before.partitions
    assert [(one.replicas, one.leader, one.isr) for one in orders(log).partitions[2:]] == [
        ((3, 1), 3, (3, 1)),
        ((1, 3), 1, (1, 3)),
    ]
    assert orders(log).version == done.offset


def test_c14_what_completes_is_what_is_pending(log: MetadataLogBuilder) -> None:
    """Also if two controllers, or one that asks twice, carry it out."""
    log.add_partitions("orders", (3, 1))
    leaf = NewPartition(replicas=(BrokerId(3), BrokerId(2)), leader=BrokerId(3), isr=(BrokerId(3),))
    other = PartitionsAdded(
        topic="orders",
        topic_id=orders(log).topic_id,
        first_partition=2,
        partitions=(leaf,),
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(1),
    )
    assert code(log, other) is ResultCode.CONDITION_FAILED
    pending = log.image.additions["orders"]
    assert log.complete_addition("orders").ok
    again = PartitionsAdded(
        topic="orders",
        topic_id=orders(log).topic_id,
        first_partition=2,
        partitions=(
            NewPartition(replicas=pending.replicas[0], leader=BrokerId(3), isr=(BrokerId(3),)),
        ),
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(1),
    )
    assert code(log, again) is ResultCode.CONDITION_FAILED
    assert len(orders(log).partitions) == 3


@pytest.mark.parametrize(
    ("first", "replicas", "expected"),
    [
        (1, ((1,),), ResultCode.INVALID),
        (3, ((1,),), ResultCode.INVALID),
        (2, (), ResultCode.INVALID),
        (2, ((),), ResultCode.INVALID),
        (2, ((1, 1),), ResultCode.INVALID),
    ],
)
def test_c14_an_addition_follows_what_is_there(
    log: MetadataLogBuilder,
    first: int,
    replicas: tuple[tuple[int, ...], ...],
    expected: ResultCode,
) -> None:
    addition = PartitionAdditionPending(
        topic="orders",
        topic_id=orders(log).topic_id,
        first_partition=first,
        replicas=tuple(tuple(map(BrokerId, ids)) for ids in replicas),
    )
    assert code(log, addition) is expected
    assert not log.image.additions


# --- removals -----------------------------------------------------------------------------------


def test_c14_a_removal_is_pending_until_the_partitions_are_gone(log: MetadataLogBuilder) -> None:
    grow(log, (3, 1))
    assert log.image.kept(orders(log)) == 3
    assert log.remove_partitions("orders", 1).ok
    assert len(orders(log).partitions) == 3
    assert log.image.kept(orders(log)) == 1
    done = log.complete_removal("orders")
    assert len(orders(log).partitions) == 1
    assert not log.image.removals
    assert orders(log).version == done.offset
    assert orders(log).removals == (RemovedPartitions(1, done.offset),)
    assert log.image.kept(orders(log)) == 1


def test_c14_what_is_removed_is_what_is_pending(log: MetadataLogBuilder) -> None:
    grow(log, (1, 2))
    log.remove_partitions("orders", 2)
    topic_id = orders(log).topic_id
    other = PartitionsRemoved(topic="orders", topic_id=topic_id, first_partition=1)
    assert code(log, other) is ResultCode.CONDITION_FAILED
    assert len(orders(log).partitions) == 3


@pytest.mark.parametrize("first", [0, 2, 5, -1])
def test_c14_the_highest_go_and_some_stay(log: MetadataLogBuilder, first: int) -> None:
    assert log.remove_partitions("orders", first).results[0].code is ResultCode.INVALID
    assert not log.image.removals


def test_c14_what_is_about_to_go_has_no_more_elections(log: MetadataLogBuilder) -> None:
    """The StopReplica for it names its leader epoch."""
    log.remove_partitions("orders", 1)
    assert elect(log, 1, 1) is ResultCode.UNKNOWN_TOPIC
    assert elect(log, 0, 2) is ResultCode.OK
    moving = log.reassign(TopicPartition("orders", 1), replicas=(2, 1, 3), target=(3,))
    assert moving.results[0].code is ResultCode.UNKNOWN_TOPIC


def test_c11_c14_a_partition_on_the_move_is_not_removed(log: MetadataLogBuilder) -> None:
    assert log.reassign(TopicPartition("orders", 1), replicas=(2, 1, 3), target=(3, 1)).ok
    assert log.remove_partitions("orders", 1).results[0].code is ResultCode.CONDITION_FAILED


def test_c14_one_change_of_a_topic_at_a_time(log: MetadataLogBuilder) -> None:
    topic_id = orders(log).topic_id
    removal = PartitionRemovalPending(topic="orders", topic_id=topic_id, first_partition=1)
    addition = PartitionAdditionPending(
        topic="orders", topic_id=topic_id, first_partition=2, replicas=((BrokerId(1),),)
    )
    log.write_as_controller(addition)
    assert code(log, addition) is ResultCode.CONDITION_FAILED
    assert code(log, removal) is ResultCode.CONDITION_FAILED
    log.complete_addition("orders")
    log.remove_partitions("orders", 1)
    assert log.add_partitions("orders", (1,)).results[0].code is ResultCode.CONDITION_FAILED
    assert code(log, removal) is ResultCode.CONDITION_FAILED
    log.complete_removal("orders")
    log.create_topic("other", (1,), (1,))
    log.delete_topic("other")
    assert log.add_partitions("other", (1,)).results[0].code is ResultCode.CONDITION_FAILED
    assert log.remove_partitions("other", 1).results[0].code is ResultCode.CONDITION_FAILED


def test_c14_the_topics_id_counts(log: MetadataLogBuilder) -> None:
    removal = PartitionRemovalPending(topic="orders", topic_id=OTHER_ID, first_partition=1)
    addition = PartitionAdditionPending(
        topic="orders", topic_id=OTHER_ID, first_partition=2, replicas=((BrokerId(1),),)
    )
    assert code(log, removal) is ResultCode.UNKNOWN_TOPIC
    assert code(log, addition) is ResultCode.UNKNOWN_TOPIC


def test_c14_what_is_pending_goes_with_its_topic(log: MetadataLogBuilder) -> None:
    log.create_topic("other", (1,), (1,))
    log.add_partitions("orders", (1,))
    log.remove_partitions("other", 1)
    for name in ("orders", "other"):
        topic_id = log.image.topics[name].topic_id
        assert log.write_as_controller(TopicRemoved(name=name, topic_id=topic_id)).ok
    assert not log.image.additions
    assert not log.image.removals


# --- removed and added again ---------------------------------------------------------------------


def test_c14_epochs_go_on_where_the_removed_partitions_ended(log: MetadataLogBuilder) -> None:
    for leader in (1, 2, 1):
        elect(log, 1, leader)
    shrink(log, 1)
    assert orders(log).leader_epoch_floor == 4
    grow(log, (3, 1), (3, 2))
    assert [one.leader_epoch for one in orders(log).partitions] == [0, 4, 4]
    shrink(log, 2)
    grow(log, (3, 1))
    assert [one.leader_epoch for one in orders(log).partitions] == [0, 4, 5]


def test_c14_the_floor_of_epochs_never_sinks(log: MetadataLogBuilder) -> None:
    grow(log, (1, 2))
    for leader in (2, 1):
        elect(log, 2, leader)
    shrink(log, 2)
    shrink(log, 1)
    assert orders(log).leader_epoch_floor == 3, "2 had more elections than 1"


def test_c14_the_last_removal_of_each_number_is_known(log: MetadataLogBuilder) -> None:
    grow(log, *[(1,)] * 4)
    offsets = {}
    for first in (5, 2, 4, 3):
        if first >= len(orders(log).partitions):
            grow(log, *[(1,)] * (6 - len(orders(log).partitions)))
        log.remove_partitions("orders", first)
        offsets[first] = log.complete_removal("orders").offset
    known = [orders(log).removed_at(number) for number in range(7)]
    assert known == [0, 0, offsets[2], *[offsets[3]] * 4]
    assert len(orders(log).removals) == 2, "those that a later one covers are forgotten"


def test_c14_leadership_changed_in_the_transaction_that_removes_it_counts(
    log: MetadataLogBuilder,
) -> None:
    """Leaves that were changed just before are drafted, not yet in their topic."""
    topic_id, leaves = orders(log).topic_id, orders(log).partitions
    changes = [
        PartitionChange(
            topic="orders",
            topic_id=topic_id,
            partition=number,
            expected_version=0,
            leader=leaf.leader,
            leader_epoch=LeaderEpoch(7),
            isr=leaf.isr,
            controller_id=BrokerId(1),
            controller_epoch=ControllerEpoch(1),
        )
        for number, leaf in enumerate(leaves)
    ]
    removal = PartitionRemovalPending(topic="orders", topic_id=topic_id, first_partition=1)
    removed = PartitionsRemoved(topic="orders", topic_id=topic_id, first_partition=1)
    assert code(log, *changes, removal, removed) is ResultCode.OK
    assert orders(log).leader_epoch_floor == 8
    assert [one.leader_epoch for one in orders(log).partitions] == [7]


def test_c14_a_refused_transaction_removes_nothing(log: MetadataLogBuilder) -> None:
    before = orders(log)
    topic_id = before.topic_id
    removal = PartitionRemovalPending(topic="orders", topic_id=topic_id, first_partition=1)
    removed = PartitionsRemoved(topic="orders", topic_id=topic_id, first_partition=1)
    assert code(log, removal, removed, removed) is ResultCode.CONDITION_FAILED
    assert orders(log) == before
    assert not log.image.removals


def test_c14_only_the_controller_changes_a_topics_partitions(log: MetadataLogBuilder) -> None:
    topic_id = orders(log).topic_id
    removal = PartitionRemovalPending(topic="orders", topic_id=topic_id, first_partition=1)
    assert log.transact(Operation(records=(removal,))).results[0].code is ResultCode.INVALID
    log.add_partitions("orders", (1,))
    stale = PartitionsAdded(
        topic="orders",
        topic_id=topic_id,
        first_partition=2,
        partitions=(NewPartition(replicas=(BrokerId(1),), leader=BrokerId(1), isr=(BrokerId(1),)),),
        controller_id=BrokerId(2),
        controller_epoch=ControllerEpoch(1),
    )
    assert code(log, stale) is ResultCode.CONTROLLER_FENCED
