"""Elections asked for by operators, and the balance of leaders, decided without a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.election_manager import (
    ElectionType,
    elect,
    electable,
    imbalanced,
)
from quorate.common.types import BrokerId, ControllerEpoch, TopicIdPartition, TopicPartition
from quorate.metadata_log.records import Operation, PartitionChange
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder

TENURE = ControllerTenure(BrokerId(1), ControllerEpoch(1))
PREFERRED, UNCLEAN = admin_pb2.ELECTION_PREFERRED, admin_pb2.ELECTION_UNCLEAN


def metadata(*replicas: tuple[int, ...], brokers: int = 4) -> MetadataLogBuilder:
    """Brokers 1 to ``brokers``, admitted; topic "orders", each partition led by its first."""
    log = MetadataLogBuilder()
    for broker_id in range(1, brokers + 1):
        log.start_broker(broker_id)
    log.elect_controller(1)
    log.admit_all()
    log.create_topic("orders", *replicas)
    return log


def candidates(log: MetadataLogBuilder) -> frozenset[BrokerId]:
    return frozenset(log.image.brokers)


def move(log: MetadataLogBuilder, number: int, leader: int, *isr: int) -> None:
    """Another leader, or the same of another ISR."""
    before = log.image.topics["orders"].partitions[number]
    log.write_as_controller(
        PartitionChange(
            topic="orders",
            topic_id=log.image.topics["orders"].topic_id,
            partition=number,
            expected_version=before.version,
            leader=BrokerId(leader),
            leader_epoch=type(before.leader_epoch)(before.leader_epoch + 1),
            isr=tuple(map(BrokerId, isr)) or before.isr,
            controller_id=BrokerId(1),
            controller_epoch=ControllerEpoch(1),
        )
    )


def codes(log: MetadataLogBuilder, kind: ElectionType, *wanted: TopicPartition) -> list[int]:
    decisions = elect(log.image, wanted, kind, tenure=TENURE, candidates=candidates(log))
    return [decision.result.error_code for decision in decisions]


def test_c2_one_partition_that_cannot_have_an_election_stops_no_other() -> None:
    log = metadata((2, 3), (2, 3), (4, 3))
    move(log, 0, 3)
    move(log, 2, 3, 3)
    wanted = [TopicPartition("orders", number) for number in range(4)]
    wanted.append(TopicPartition("none", 0))
    decisions = elect(log.image, wanted, PREFERRED, tenure=TENURE, candidates=candidates(log))
    assert [one.result.error_code for one in decisions] == [
        errors_pb2.NONE,
        errors_pb2.ELECTION_NOT_NEEDED,
        errors_pb2.PREFERRED_LEADER_NOT_AVAILABLE,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [one.operation is not None for one in decisions] == [True] + [False] * 4
    for decision in decisions[1:]:
        assert f"{decision.result.topic}-{decision.result.partition}" in (
            decision.result.error_message
        )


def test_c2_an_election_raises_the_leader_epoch_and_keeps_the_isr() -> None:
    log = metadata((2, 3))
    move(log, 0, 3)
    (decision,) = elect(
        log.image,
        [TopicPartition("orders", 0)],
        PREFERRED,
        tenure=TENURE,
        candidates=candidates(log),
    )
    assert isinstance(decision.operation, Operation)
    assert log.transact(decision.operation).ok
    after = log.image.topics["orders"].partitions[0]
    assert (after.leader, after.leader_epoch, after.isr) == (2, 2, (2, 3))


def test_c2_a_broker_that_wants_to_stop_is_nobodys_preferred_leader() -> None:
    log = metadata((2, 3))
    move(log, 0, 3)
    (decision,) = elect(
        log.image,
        [TopicPartition("orders", 0)],
        PREFERRED,
        tenure=TENURE,
        candidates=candidates(log) - {2},
    )
    assert decision.result.error_code == errors_pb2.PREFERRED_LEADER_NOT_AVAILABLE


def test_c2_a_topic_that_is_being_deleted_has_no_elections() -> None:
    log = metadata((2, 3))
    move(log, 0, 3)
    log.delete_topic("orders")
    assert codes(log, PREFERRED, TopicPartition("orders", 0)) == [
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    ]
    assert electable(log.image, PREFERRED, candidates=candidates(log)) == []
    assert imbalanced(log.image, candidates=candidates(log), per_broker_percentage=0) == []


def test_c2_scenario_7_an_unclean_election_is_for_partitions_without_a_live_leader() -> None:
    log = metadata((3, 4), (4, 2))
    log.stop_broker(3)
    move(log, 0, -1, 3)
    all_of_it = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    assert codes(log, UNCLEAN, *all_of_it) == [errors_pb2.NONE, errors_pb2.ELECTION_NOT_NEEDED]
    assert electable(log.image, UNCLEAN, candidates=candidates(log)) == all_of_it[:1]
    log.stop_broker(4)
    assert codes(log, UNCLEAN, *all_of_it) == [
        errors_pb2.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        errors_pb2.NONE,
    ]


@pytest.mark.parametrize(
    ("elsewhere", "percentage", "expected"),
    [(1, 10, 0), (2, 10, 2), (2, 20, 0), (3, 20, 3), (1, 0, 1)],
)
def test_c2_leadership_goes_back_above_the_imbalance_alone(
    elsewhere: int, percentage: int, expected: int
) -> None:
    log = metadata(*[(2, 3)] * 10, *[(3, 2)] * 10)
    for number in range(elsewhere):
        move(log, number, 3)
    found = imbalanced(log.image, candidates=candidates(log), per_broker_percentage=percentage)
    assert found == [TopicPartition("orders", number) for number in range(expected)]


def test_c2_leadership_that_cannot_go_back_now_stays() -> None:
    log = metadata((2, 3), (4, 3), (2, 3))
    move(log, 0, 3, 3)
    move(log, 1, 3)
    move(log, 2, 3)
    found = imbalanced(log.image, candidates=candidates(log) - {4}, per_broker_percentage=0)
    assert found == [TopicPartition("orders", 2)], "of 0 the ISR lacks it, 4 wants to stop"


def test_leadership_does_not_go_back_to_a_replica_that_is_offline() -> None:
    """KIP-858. It is offline in one partition; its broker leads others."""
    log = metadata((2, 3), (2, 3))
    move(log, 0, -1, 2)
    move(log, 1, 3)
    tip = TopicIdPartition(log.image.topics["orders"].topic_id, 0)
    offline = {tip: frozenset({BrokerId(2)})}
    found = imbalanced(
        log.image, candidates=candidates(log), per_broker_percentage=0, offline=offline
    )
    assert found == [TopicPartition("orders", 1)]
    wanted = [TopicPartition("orders", number) for number in range(2)]
    assert electable(log.image, PREFERRED, candidates=candidates(log), offline=offline) == wanted
    decisions = elect(
        log.image,
        wanted,
        PREFERRED,
        tenure=TENURE,
        candidates=candidates(log),
        offline=offline,
    )
    assert [one.result.error_code for one in decisions] == [
        errors_pb2.PREFERRED_LEADER_NOT_AVAILABLE,
        errors_pb2.NONE,
    ]


@given(data=st.data(), percentage=st.integers(0, 100))
def test_c2_after_a_balance_nobody_leads_too_few(data: st.DataObject, percentage: int) -> None:
    replicas = data.draw(
        st.lists(
            st.permutations([1, 2, 3]).map(lambda ids: tuple(ids[:2])), min_size=1, max_size=12
        )
    )
    log = metadata(*replicas, brokers=3)
    for number, assigned in enumerate(replicas):
        if data.draw(st.booleans()):
            move(log, number, assigned[1])
    found = imbalanced(log.image, candidates=candidates(log), per_broker_percentage=percentage)
    for decision in elect(log.image, found, PREFERRED, tenure=TENURE, candidates=candidates(log)):
        assert decision.operation is not None, "every one of them can be led by its preferred"
        assert log.transact(decision.operation).ok
    for broker_id in (1, 2, 3):
        preferring = [
            p for p in log.image.topics["orders"].partitions if p.replicas[0] == broker_id
        ]
        elsewhere = [one for one in preferring if one.leader != broker_id]
        assert 100 * len(elsewhere) <= percentage * len(preferring)
