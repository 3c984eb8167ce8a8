"""leaderAndISR: who may write it, under which epoch, and by compare-and-set (C1, C15)."""

import msgspec
import pytest

from quorate.common.types import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition
from quorate.metadata_log.records import IsrChange, IsrMember, PartitionChange, ResultCode
from tests.support.metadata import MetadataLogBuilder, topic_id_of

TP = TopicPartition("orders", 0)


@pytest.fixture
def log() -> MetadataLogBuilder:
    """Brokers 1 to 4, controller 4; partition 0 led by 1 at epoch 0 with ISR [1, 2, 3]."""
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3, 4):
        log.start_broker(broker_id)
    log.elect_controller(4)
    assert log.create_topic("orders", (1, 2, 3)).ok
    return log


def broker_epoch(log: MetadataLogBuilder, broker_id: int) -> BrokerEpoch:
    return log.image.brokers[BrokerId(broker_id)].epoch


def isr_change(log: MetadataLogBuilder, *isr: int, leader: int = 1) -> IsrChange:
    """What ``leader`` would write now to make ``isr`` the ISR."""
    partition = log.image.partition(TP)
    assert partition is not None
    return IsrChange(
        topic="orders",
        topic_id=topic_id_of("orders"),
        partition=0,
        expected_version=partition.version,
        leader=BrokerId(leader),
        leader_broker_epoch=broker_epoch(log, leader),
        leader_epoch=partition.leader_epoch,
        isr=tuple(
            IsrMember(broker_id=BrokerId(b), broker_epoch=broker_epoch(log, b))
            if BrokerId(b) in log.image.brokers
            else IsrMember(broker_id=BrokerId(b))
            for b in isr
        ),
    )


def leader_change(log: MetadataLogBuilder, leader: int, *isr: int) -> PartitionChange:
    """What the controller would write now to make ``leader`` lead with ``isr``."""
    partition = log.image.partition(TP)
    assert partition is not None
    return PartitionChange(
        topic="orders",
        topic_id=topic_id_of("orders"),
        partition=0,
        expected_version=partition.version,
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        isr=tuple(map(BrokerId, isr)),
        controller_id=log.image.controller_id,
        controller_epoch=log.image.controller_epoch,
    )


def state(log: MetadataLogBuilder) -> tuple[int, int, tuple[int, ...], int]:
    partition = log.image.partition(TP)
    assert partition is not None
    return partition.leader, partition.leader_epoch, partition.isr, partition.version


def code_of_isr(log: MetadataLogBuilder, change: IsrChange) -> ResultCode:
    return log.write(change).results[0].code


def code_of_leader(log: MetadataLogBuilder, change: PartitionChange) -> ResultCode:
    return log.write_as_controller(change).results[0].code


# --- the leader ---------------------------------------------------------------------------------


def test_c1_leader_changes_its_isr_and_nothing_else(log: MetadataLogBuilder) -> None:
    assert log.write(isr_change(log, 1, 2)).results[0].version == 1
    assert state(log) == (1, 0, (1, 2), 1)
    assert code_of_isr(log, isr_change(log, 1, 2, 3)) is ResultCode.OK
    assert state(log) == (1, 0, (1, 2, 3), 2)


def test_c1_record_keeps_naming_the_controller_that_decided(log: MetadataLogBuilder) -> None:
    log.stop_broker(4)
    log.elect_controller(3)
    log.write(isr_change(log, 1, 2))
    partition = log.image.partition(TP)
    assert partition is not None
    assert (partition.controller_id, partition.controller_epoch) == (4, 1)
    log.write_as_controller(leader_change(log, 2, 2))
    partition = log.image.partition(TP)
    assert partition is not None
    assert (partition.controller_id, partition.controller_epoch) == (3, 2)


def test_c1_two_writers_at_one_version_the_second_conflicts(log: MetadataLogBuilder) -> None:
    by_leader, by_controller = isr_change(log, 1, 2), leader_change(log, 2, 2, 3)
    assert code_of_isr(log, by_leader) is ResultCode.OK
    assert code_of_leader(log, by_controller) is ResultCode.VERSION_CONFLICT
    assert state(log) == (1, 0, (1, 2), 1)


@pytest.mark.parametrize(
    ("isr", "code"),
    [
        ((2, 3), ResultCode.INVALID),  # the leader itself is missing
        ((1, 4), ResultCode.INVALID),  # 4 is no replica
        ((1, 2, 2), ResultCode.INVALID),
        ((), ResultCode.INVALID),
    ],
)
def test_c1_scenario_6_isr_must_hold_the_leader_and_only_replicas(
    log: MetadataLogBuilder, isr: tuple[int, ...], code: ResultCode
) -> None:
    assert code_of_isr(log, isr_change(log, *isr)) is code
    assert state(log) == (1, 0, (1, 2, 3), 0)


def test_c1_scenario_6_isr_change_of_a_broker_that_does_not_lead_is_invalid(
    log: MetadataLogBuilder,
) -> None:
    assert code_of_isr(log, isr_change(log, 1, 2, leader=2)) is ResultCode.INVALID


@pytest.mark.parametrize(
    ("leader_epoch", "code"),
    [(4, ResultCode.FENCED_LEADER_EPOCH), (6, ResultCode.NEWER_LEADER_EPOCH)],
)
def test_c1_scenario_6_isr_change_carries_exactly_the_leader_epoch(
    log: MetadataLogBuilder, leader_epoch: int, code: ResultCode
) -> None:
    log.write_as_controller(
        msgspec.structs.replace(leader_change(log, 1, 1, 2, 3), leader_epoch=LeaderEpoch(5))
    )
    change = msgspec.structs.replace(isr_change(log, 1, 2), leader_epoch=LeaderEpoch(leader_epoch))
    assert code_of_isr(log, change) is code


def test_c1_scenario_6_isr_change_at_an_old_version_conflicts(log: MetadataLogBuilder) -> None:
    stale = isr_change(log, 1)
    log.write(isr_change(log, 1, 2))
    assert code_of_isr(log, stale) is ResultCode.VERSION_CONFLICT
    assert state(log) == (1, 0, (1, 2), 1)


def test_c15_deposed_leader_cannot_commit(log: MetadataLogBuilder) -> None:
    """It believes it leads, and so did its change when it was made."""
    shrink = isr_change(log, 1)
    assert code_of_leader(log, leader_change(log, 2, 2, 3)) is ResultCode.OK
    assert code_of_isr(log, shrink) is ResultCode.FENCED_LEADER_EPOCH
    fresh_version = msgspec.structs.replace(shrink, expected_version=1)
    assert code_of_isr(log, fresh_version) is ResultCode.FENCED_LEADER_EPOCH
    assert state(log) == (2, 1, (2, 3), 1)


def test_c15_leader_whose_process_was_replaced_cannot_commit(log: MetadataLogBuilder) -> None:
    """The record still names broker 1 in the same epoch, but that broker is another process now."""
    old = isr_change(log, 1)
    log.stop_broker(1)
    assert code_of_isr(log, old) is ResultCode.STALE_BROKER_EPOCH
    log.start_broker(1, incarnation=1)
    assert code_of_isr(log, old) is ResultCode.STALE_BROKER_EPOCH
    assert code_of_isr(log, isr_change(log, 1, 2, 3)) is ResultCode.OK


def test_scenario_6_dead_member_cannot_be_added(log: MetadataLogBuilder) -> None:
    log.write(isr_change(log, 1, 2))
    log.stop_broker(3)
    assert code_of_isr(log, isr_change(log, 1, 2, 3)) is ResultCode.INELIGIBLE_REPLICA


def test_scenario_6_restarted_member_cannot_be_added_under_its_old_epoch(
    log: MetadataLogBuilder,
) -> None:
    log.write(isr_change(log, 1, 2))
    seen_before_the_restart = isr_change(log, 1, 2, 3)
    log.stop_broker(3)
    log.start_broker(3, incarnation=1)
    assert code_of_isr(log, seen_before_the_restart) is ResultCode.INELIGIBLE_REPLICA
    assert code_of_isr(log, isr_change(log, 1, 2, 3)) is ResultCode.OK


def test_member_already_in_the_isr_needs_no_epoch(log: MetadataLogBuilder) -> None:
    log.stop_broker(3)
    keep = msgspec.structs.replace(
        isr_change(log, 1, 2),
        isr=(IsrMember(broker_id=BrokerId(1)), IsrMember(broker_id=BrokerId(2))),
    )
    assert code_of_isr(log, keep) is ResultCode.OK


def test_change_of_an_earlier_topic_of_that_name_is_refused(log: MetadataLogBuilder) -> None:
    wrong_topic = msgspec.structs.replace(
        isr_change(log, 1, 2), topic_id=topic_id_of("orders", generation=1)
    )
    assert code_of_isr(log, wrong_topic) is ResultCode.UNKNOWN_TOPIC
    wrong_partition = msgspec.structs.replace(isr_change(log, 1, 2), partition=1)
    assert code_of_isr(log, wrong_partition) is ResultCode.UNKNOWN_TOPIC
    negative = msgspec.structs.replace(isr_change(log, 1, 2), partition=-1)
    assert log.write(negative).results[0].code is ResultCode.UNKNOWN_TOPIC


# --- the controller -----------------------------------------------------------------------------


def test_c1_controller_alone_changes_the_leader(log: MetadataLogBuilder) -> None:
    change = leader_change(log, 2, 2, 3)
    by_another = msgspec.structs.replace(change, controller_id=BrokerId(2))
    assert code_of_leader(log, by_another) is ResultCode.CONTROLLER_FENCED
    without_epoch = log.write(change)
    assert without_epoch.results[0].code is ResultCode.INVALID
    assert state(log) == (1, 0, (1, 2, 3), 0)
    assert code_of_leader(log, change) is ResultCode.OK
    assert state(log) == (2, 1, (2, 3), 1)


def test_c1_change_of_leader_raises_the_leader_epoch(log: MetadataLogBuilder) -> None:
    same_epoch = msgspec.structs.replace(leader_change(log, 2, 2), leader_epoch=LeaderEpoch(0))
    assert code_of_leader(log, same_epoch) is ResultCode.FENCED_LEADER_EPOCH
    same_leader = msgspec.structs.replace(leader_change(log, 1, 1), leader_epoch=LeaderEpoch(0))
    assert code_of_leader(log, same_leader) is ResultCode.OK
    back = msgspec.structs.replace(leader_change(log, 1, 1), leader_epoch=LeaderEpoch(-1))
    assert code_of_leader(log, back) is ResultCode.FENCED_LEADER_EPOCH


def test_c1_controllers_write_is_a_compare_and_set(log: MetadataLogBuilder) -> None:
    change = leader_change(log, 2, 2, 3)
    for version in (1, -1):
        stale = msgspec.structs.replace(change, expected_version=version)
        assert code_of_leader(log, stale) is ResultCode.VERSION_CONFLICT
    assert code_of_leader(log, change) is ResultCode.OK
    assert code_of_leader(log, change) is ResultCode.VERSION_CONFLICT


@pytest.mark.parametrize("isr", [(1, 3), (2, 4), (2, 2), ()])
def test_c2_new_leader_must_be_in_its_isr(log: MetadataLogBuilder, isr: tuple[int, ...]) -> None:
    assert code_of_leader(log, leader_change(log, 2, *isr)) is ResultCode.INVALID


def test_c2_partition_may_be_left_without_a_leader_with_its_isr_kept(
    log: MetadataLogBuilder,
) -> None:
    assert code_of_leader(log, leader_change(log, -1, 1)) is ResultCode.OK
    assert state(log) == (-1, 1, (1,), 1)
    partition = log.image.partition(TP)
    assert partition is not None
    assert partition.offline


def test_controller_of_an_old_epoch_is_fenced(log: MetadataLogBuilder) -> None:
    stale = msgspec.structs.replace(leader_change(log, 2, 2), controller_epoch=ControllerEpoch(0))
    assert code_of_leader(log, stale) is ResultCode.CONTROLLER_FENCED
