"""Who may write leaderAndISR, and what an ISR change is told (C1, scenario 6)."""

import pytest

from quorate.broker.common.errors import CODE_OF_RESULT
from quorate.broker.controller.managers import broker_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.partition_change import LiveBrokers
from quorate.common.types import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch
from quorate.metadata_log.records import (
    IsrChange,
    IsrMember,
    Operation,
    OperationResult,
    ResultCode,
    TopicDeletionPending,
)
from quorate_proto.v1 import errors_pb2
from tests.support.metadata import MetadataLogBuilder, topic_id_of


def cluster() -> MetadataLogBuilder:
    """orders-0: replicas 1, 2, 3; leader 1 at leader epoch 1; ISR 1, 2; version 1."""
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3):
        log.start_broker(broker_id)
    log.elect_controller(1)
    log.create_topic("orders", (1, 2, 3))
    log.stop_broker(3)
    operations = changes(log)
    assert log.transact(*operations, atomic=False).ok
    log.start_broker(3, 1)
    return log


def tenure(log: MetadataLogBuilder) -> ControllerTenure:
    return ControllerTenure(log.image.controller_id, log.image.controller_epoch)


def changes(log: MetadataLogBuilder, by: ControllerTenure | None = None) -> list[Operation]:
    live = LiveBrokers(frozenset(log.image.brokers))
    return broker_manager.leadership_changes(
        log.image, by or tenure(log), live, unclean=lambda _topic: False
    )


def isr_change(
    log: MetadataLogBuilder,
    *isr: int,
    leader: int = 1,
    leader_epoch: int = 1,
    version: int = 1,
    stale: int = 0,
) -> OperationResult:
    live = log.image.brokers
    members = tuple(
        IsrMember(
            broker_id=BrokerId(one),
            broker_epoch=BrokerEpoch(
                -1 if BrokerId(one) not in live else live[BrokerId(one)].epoch - (one == stale)
            ),
        )
        for one in isr
    )
    (result,) = log.write(
        IsrChange(
            topic="orders",
            topic_id=topic_id_of("orders"),
            partition=0,
            expected_version=version,
            leader=BrokerId(leader),
            leader_broker_epoch=live[BrokerId(leader)].epoch,
            leader_epoch=LeaderEpoch(leader_epoch),
            isr=members,
        )
    ).results
    return result


def test_c1_the_leader_changes_its_isr_by_conditional_write() -> None:
    log = cluster()
    before = log.image.topics["orders"].partitions[0]
    assert isr_change(log, 1, 2, 3).ok
    after = log.image.topics["orders"].partitions[0]
    assert after.isr == (1, 2, 3)
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert (after.controller_id, after.controller_epoch) == (1, 1), "the last leadership decision"
    again = isr_change(log, 1, 2)
    assert CODE_OF_RESULT[again.code] == errors_pb2.INVALID_UPDATE_VERSION


@pytest.mark.parametrize(
    ("isr", "arguments", "code"),
    [
        ((1, 2, 3), {"leader_epoch": 2}, errors_pb2.NOT_CONTROLLER),
        ((1, 2, 3), {"leader_epoch": 0}, errors_pb2.FENCED_LEADER_EPOCH),
        ((1, 2, 3), {"version": 0}, errors_pb2.INVALID_UPDATE_VERSION),
        ((1, 2, 3), {"leader": 2}, errors_pb2.INVALID_REQUEST),
        ((2, 3), {}, errors_pb2.INVALID_REQUEST),
        ((1, 2, 3), {"stale": 3}, errors_pb2.INELIGIBLE_REPLICA),
        ((1, 2, 4), {}, errors_pb2.INVALID_REQUEST),
    ],
)
def test_c1_an_isr_change_that_may_not_be_is_refused(
    isr: tuple[int, ...], arguments: dict[str, int], code: int
) -> None:
    """Scenario 6."""
    log = cluster()
    before = log.image.topics
    result = isr_change(log, *isr, **arguments)
    assert CODE_OF_RESULT[result.code] == code
    assert result.detail
    assert log.image.topics == before


def test_c1_a_dead_member_cannot_join() -> None:
    log = cluster()
    log.stop_broker(3, 1)
    assert isr_change(log, 1, 2, 3).code is ResultCode.INELIGIBLE_REPLICA


def test_c1_a_deposed_controller_changes_nothing() -> None:
    log = cluster()
    deposed = tenure(log)
    log.stop_broker(1)
    log.elect_controller(2)
    before = log.image.topics
    operations = changes(log, by=deposed)
    assert operations, "it would move the leadership of broker 1"
    result = log.transact(*operations, atomic=False)
    assert {one.code for one in result.results} == {ResultCode.CONTROLLER_FENCED}
    assert log.image.topics == before


def test_c1_controller_and_leader_race_on_the_version() -> None:
    """Whoever comes second decides again, from a fresh image."""
    log = cluster()
    log.stop_broker(2)
    decided_early = changes(log)
    assert isr_change(log, 1, 3).ok
    assert log.transact(*decided_early, atomic=False).results[0].code is ResultCode.VERSION_CONFLICT
    assert changes(log) == [], "the leader has shrunk the ISR itself"


def test_c5_a_topic_that_is_being_deleted_is_left_as_it_is() -> None:
    log = cluster()
    log.stop_broker(2)
    assert len(changes(log)) == 1
    log.write_as_controller(TopicDeletionPending(name="orders", topic_id=topic_id_of("orders")))
    assert changes(log) == []


def test_e3_controller_epochs_are_never_reused() -> None:
    log = cluster()
    log.stop_broker(1)
    log.elect_controller(2)
    assert tenure(log) == ControllerTenure(BrokerId(2), ControllerEpoch(2))
