"""Partitions added and removed, decided without a cluster (C14, scenario 9)."""

import pytest

from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.partition_count_manager import (
    add_partitions,
    additions,
    removals,
    remove_partitions,
)
from quorate.broker.controller.managers.placement import PlacementStart
from quorate.broker.controller.managers.topic_manager import TopicDecision
from quorate.common.types import BrokerId, ControllerEpoch, TopicPartition
from quorate.metadata_log.records import Operation
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder

TENURE = ControllerTenure(BrokerId(1), ControllerEpoch(1))


@pytest.fixture
def log() -> MetadataLogBuilder:
    """Brokers 1 to 4; "orders" of 4 partitions, "bills" of 2, two replicas each."""
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3, 4):
        log.start_broker(broker_id)
    log.elect_controller(1)
    log.admit_all()
    log.create_topic("orders", (1, 2), (2, 3), (3, 4), (4, 1))
    log.create_topic("bills", (1, 2), (2, 1))
    return log


def more(name: str, count: int, *assignments: tuple[int, ...]) -> admin_pb2.NewPartitions:
    return admin_pb2.NewPartitions(
        name=name,
        count=count,
        assignments=[admin_pb2.Replicas(broker_ids=ids) for ids in assignments],
    )


def add(log: MetadataLogBuilder, *wanted: admin_pb2.NewPartitions) -> list[TopicDecision]:
    return add_partitions(log.image, wanted, tenure=TENURE, draw=lambda: PlacementStart(0, 0))


def less(name: str, *partitions: int) -> admin_pb2.TopicPartitions:
    return admin_pb2.TopicPartitions(topic=name, partitions=partitions)


def remove(log: MetadataLogBuilder, *wanted: admin_pb2.TopicPartitions) -> list[TopicDecision]:
    return remove_partitions(log.image, wanted, tenure=TENURE)


def codes(decisions: list[TopicDecision]) -> list[int]:
    return [decision.result.error_code for decision in decisions]


def count(log: MetadataLogBuilder, name: str) -> int:
    return len(log.image.topics[name].partitions)


def write(log: MetadataLogBuilder, operation: Operation | None) -> None:
    assert operation is not None
    assert log.transact(operation).ok


# --- adding -------------------------------------------------------------------------------------


def test_c14_scenario_9_one_bad_topic_never_stops_its_siblings(log: MetadataLogBuilder) -> None:
    decisions = add(
        log,
        more("orders", 3),
        more("bills", 2),
        more("none", 9),
        more("orders", 6, (1, 2)),
    )
    assert codes(decisions) == [
        errors_pb2.INVALID_PARTITIONS,
        errors_pb2.INVALID_PARTITIONS,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.INVALID_REPLICA_ASSIGNMENT,
    ]
    assert "1 assignments for 2 new partitions" in decisions[3].result.error_message
    good = add(log, more("orders", 3), more("bills", 5))
    assert codes(good) == [errors_pb2.INVALID_PARTITIONS, errors_pb2.NONE]
    assert good[1].operation is not None


def test_c14_a_number_beyond_all_reason_is_refused_before_anything_is_made_of_it(
    log: MetadataLogBuilder,
) -> None:
    """Placing two thousand million partitions would take all of the controller's memory."""
    (decision,) = add(log, more("orders", 200_000))
    assert decision.result.error_code == errors_pb2.INVALID_PARTITIONS
    assert "175000 are the most" in decision.result.error_message


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_a_coordinators_topic_keeps_its_partitions(log: MetadataLogBuilder, name: str) -> None:
    """Groups and transactional ids are found by their number."""
    log.create_topic(name, (1, 2), (2, 3))
    decisions = [*add(log, more(name, 3)), *remove(log, less(name, 1))]
    assert codes(decisions) == [errors_pb2.INVALID_TOPIC_EXCEPTION] * 2
    assert f"topic {name!r} keeps its 2 partitions" in decisions[0].result.error_message
    assert [decision.operation for decision in decisions] == [None, None]


@pytest.mark.parametrize(
    "assignment",
    [(1, 1), (1, 9), (1,), (1, 2, 3)],
    ids=["twice", "not live", "too few", "too many"],
)
def test_c14_scenario_9_an_assignment_must_fit_the_topic(
    log: MetadataLogBuilder, assignment: tuple[int, ...]
) -> None:
    (decision,) = add(log, more("bills", 3, assignment))
    assert decision.result.error_code == errors_pb2.INVALID_REPLICA_ASSIGNMENT
    assert "partition 2" in decision.result.error_message


def test_c14_added_partitions_are_pending_then_led_by_who_lives(log: MetadataLogBuilder) -> None:
    (decision,) = add(log, more("bills", 4, (3, 4), (4, 3)))
    write(log, decision.operation)
    assert count(log, "bills") == 2
    log.stop_broker(3)
    (operation,) = additions(log.image, TENURE, ["bills", "orders"])
    write(log, operation)
    third, fourth = log.image.topics["bills"].partitions[2:]
    assert (third.replicas, third.leader, third.isr) == ((3, 4), 4, (4,))
    assert (fourth.replicas, fourth.leader, fourth.isr) == ((4, 3), 4, (4,))
    assert additions(log.image, TENURE, ["bills"]) == []


def test_c14_added_partitions_go_on_with_the_topics_stripes(log: MetadataLogBuilder) -> None:
    log.create_topic("late", (3, 4), (4, 1))
    (decision,) = add(log, more("late", 6))
    write(log, decision.operation)
    replicas = log.image.additions["late"].replicas
    assert [ids[0] for ids in replicas] == [1, 2, 3, 4], "after 3 and 4"
    assert (decision.result.num_partitions, decision.result.replication_factor) == (6, 2)


def test_c14_more_replicas_than_live_brokers_are_refused(log: MetadataLogBuilder) -> None:
    for broker_id in (2, 3, 4):
        log.stop_broker(broker_id)
    (decision,) = add(log, more("orders", 5))
    assert decision.result.error_code == errors_pb2.INVALID_REPLICATION_FACTOR


def test_c14_a_topic_named_twice_is_changed_neither_time(log: MetadataLogBuilder) -> None:
    decisions = add_partitions(
        log.image,
        [more("orders", 5), more("bills", 3)],
        tenure=TENURE,
        draw=lambda: PlacementStart(0, 0),
        repeated=frozenset({"orders"}),
    )
    assert codes(decisions) == [errors_pb2.INVALID_REQUEST, errors_pb2.NONE]
    twice = remove(log, less("orders", 3), less("orders", 3), less("bills", 1))
    assert codes(twice) == [errors_pb2.INVALID_REQUEST] * 2 + [errors_pb2.NONE]


def test_c14_who_asks_again_for_what_is_pending_waits_for_it(log: MetadataLogBuilder) -> None:
    (decision,) = add(log, more("bills", 4))
    write(log, decision.operation)
    (removal,) = remove(log, less("orders", 3))
    write(log, removal.operation)
    again = [*add(log, more("bills", 4)), *remove(log, less("orders", 3))]
    assert codes(again) == [errors_pb2.NONE] * 2
    assert [one.operation for one in again] == [None, None]
    others = [
        *add(log, more("bills", 5)),
        *add(log, more("bills", 4, (1, 2), (1, 2))),
        *remove(log, less("bills", 1)),
        *add(log, more("orders", 9)),
        *remove(log, less("orders", 2, 3)),
    ]
    assert codes(others) == [errors_pb2.REASSIGNMENT_IN_PROGRESS] * 5


def test_c11_c14_a_topic_on_the_move_keeps_its_partitions(log: MetadataLogBuilder) -> None:
    assert log.reassign(TopicPartition("orders", 0), replicas=(1, 2, 3), target=(1, 3)).ok
    assert (
        codes([*add(log, more("orders", 5)), *remove(log, less("orders", 3))])
        == [errors_pb2.REASSIGNMENT_IN_PROGRESS] * 2
    )


def test_c14_a_topic_that_is_being_deleted_does_not_change(log: MetadataLogBuilder) -> None:
    (addition,) = add(log, more("bills", 4))
    write(log, addition.operation)
    (removal,) = remove(log, less("orders", 3))
    write(log, removal.operation)
    for name in ("orders", "bills"):
        log.delete_topic(name)
    assert (
        codes([*add(log, more("bills", 4)), *remove(log, less("orders", 3))])
        == [errors_pb2.UNKNOWN_TOPIC_OR_PARTITION] * 2
    )
    assert additions(log.image, TENURE, ["bills"]) == []
    assert removals(log.image, TENURE, ["orders"]) == []


def test_c14_what_does_not_fit_into_one_transaction_is_refused(log: MetadataLogBuilder) -> None:
    (decision,) = add(log, more("bills", 150_000))
    assert decision.result.error_code == errors_pb2.INVALID_PARTITIONS
    assert "add fewer at a time" in decision.result.error_message


def test_b4_c14_topics_change_from_the_metadata_version_on_that_has_the_records() -> None:
    old = MetadataLogBuilder(begun=False)
    old.start_broker(1)
    old.elect_controller(1)
    old.create_topic("orders", (1,), (1,))
    assert (
        codes([*add(old, more("orders", 3)), *remove(old, less("orders", 1))])
        == [errors_pb2.UNSUPPORTED_VERSION] * 2
    )


# --- removing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "code"),
    [
        ((3,), errors_pb2.NONE),
        ((3, 1, 2), errors_pb2.NONE),
        ((3, 3), errors_pb2.NONE),
        ((2,), errors_pb2.INVALID_PARTITIONS),
        ((1, 3), errors_pb2.INVALID_PARTITIONS),
        ((0, 1, 2, 3), errors_pb2.INVALID_PARTITIONS),
        ((), errors_pb2.INVALID_PARTITIONS),
        ((3, 4), errors_pb2.UNKNOWN_TOPIC_OR_PARTITION),
        ((-1,), errors_pb2.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_c14_the_highest_partitions_alone_can_be_removed(
    log: MetadataLogBuilder, partitions: tuple[int, ...], code: int
) -> None:
    decisions = remove(log, less("orders", *partitions), less("none", 0), less("bills", 1))
    assert codes(decisions) == [code, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, errors_pb2.NONE]
    assert (decisions[0].operation is None) == bool(code)


def test_c14_removed_partitions_are_pending_then_gone(log: MetadataLogBuilder) -> None:
    (decision,) = remove(log, less("orders", 2, 3))
    write(log, decision.operation)
    assert decision.result.num_partitions == 2
    assert count(log, "orders") == 4
    (operation,) = removals(log.image, TENURE, ["orders", "bills"])
    write(log, operation)
    assert count(log, "orders") == 2
    assert removals(log.image, TENURE, ["orders"]) == []
