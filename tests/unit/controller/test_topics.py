"""Creating and deleting topics: what is decided from one image."""

from collections.abc import Sequence

import pytest

from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.placement import NewIds, PlacementStart
from quorate.broker.controller.managers.topic_manager import (
    TopicDecision,
    TopicDefaults,
    create_topics,
    delete_topics,
    removals,
    repeated_names,
)
from quorate.common.types import BrokerId, TopicId
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import Operation, TopicCreated
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder, topic_id_of


class Topics:
    """A cluster of so many brokers whose controller is broker 1."""

    def __init__(self, brokers: int = 3) -> None:
        self.log = MetadataLogBuilder()
        for broker_id in range(1, brokers + 1):
            self.log.start_broker(broker_id)
        self.log.elect_controller(1)
        self._drawn = 0

    @property
    def image(self) -> Image:
        return self.log.image

    @property
    def tenure(self) -> ControllerTenure:
        return ControllerTenure(BrokerId(1), self.image.controller_epoch)

    def _draw(self) -> NewIds:
        self._drawn += 1
        return NewIds(TopicId(f"id {self._drawn:13}".encode()), PlacementStart(0, 0))

    def create(self, *topics: admin_pb2.NewTopic) -> list[admin_pb2.TopicResult]:
        decisions = create_topics(
            self.image,
            topics,
            tenure=self.tenure,
            defaults=lambda: TopicDefaults(4, 2),
            draw=self._draw,
            repeated=repeated_names(one.name for one in topics),
        )
        return self.write(decisions)

    def delete(
        self, names: Sequence[str] = (), ids: Sequence[bytes] = (), *, enabled: bool = True
    ) -> list[admin_pb2.TopicResult]:
        decisions = delete_topics(
            self.image, names, ids, tenure=self.tenure, deletion_enabled=enabled
        )
        return self.write(decisions)

    def write(self, decisions: list[TopicDecision]) -> list[admin_pb2.TopicResult]:
        operations: list[Operation] = [d.operation for d in decisions if d.operation is not None]
        if operations:
            assert self.log.transact(*operations, atomic=False).ok
        return [decision.result for decision in decisions]


def topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    assigned: Sequence[Sequence[int]] = (),
    **configs: str,
) -> admin_pb2.NewTopic:
    return admin_pb2.NewTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            admin_pb2.ReplicaAssignment(partition=number, broker_ids=replicas)
            for number, replicas in enumerate(assigned)
        ],
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )


def codes(results: list[admin_pb2.TopicResult]) -> list[int]:
    return [result.error_code for result in results]


def test_c4_scenario_5_rf_3_needs_three_live_brokers() -> None:
    none = Topics(brokers=1)
    none.log.stop_broker(1)
    none.log.start_broker(2)
    none.log.elect_controller(2)
    (refused,) = none.create(topic("orders", 1, 3))
    assert refused.error_code == errors_pb2.INVALID_REPLICATION_FACTOR
    assert "replication factor 3" in refused.error_message
    assert "live brokers 1" in refused.error_message
    three = Topics()
    assert codes(three.create(topic("orders", 1, 3))) == [errors_pb2.NONE]
    assert codes(three.create(topic("orders", 1, 3))) == [errors_pb2.TOPIC_ALREADY_EXISTS]


def test_c4_scenario_5_names_that_differ_in_dot_and_underscore_collide() -> None:
    topics = Topics()
    assert codes(topics.create(topic("foo_bar"))) == [errors_pb2.NONE]
    assert codes(topics.create(topic("foo.bar"))) == [errors_pb2.INVALID_TOPIC_EXCEPTION]
    assert codes(topics.create(topic("a.b"), topic("a_b"))) == [
        errors_pb2.NONE,
        errors_pb2.INVALID_TOPIC_EXCEPTION,
    ]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "line\n"])
def test_c4_illegal_names_are_refused(name: str) -> None:
    (result,) = Topics().create(topic(name))
    assert result.error_code == errors_pb2.INVALID_TOPIC_EXCEPTION
    assert "topic name" in result.error_message


@pytest.mark.parametrize("name", ["a", "...", "A-1_z.9", "x" * 249, "__consumer_offsets"])
def test_c4_legal_names_are_taken(name: str) -> None:
    assert codes(Topics().create(topic(name))) == [errors_pb2.NONE]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("t", 0), errors_pb2.INVALID_PARTITIONS),
        (topic("t", -2), errors_pb2.INVALID_PARTITIONS),
        (topic("t", 10**6), errors_pb2.INVALID_PARTITIONS),
        (topic("t", 110_000, 3), errors_pb2.INVALID_PARTITIONS),
        (topic("t", 1, 0), errors_pb2.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 4), errors_pb2.INVALID_REPLICATION_FACTOR),
        (topic("t", no_such_key="1"), errors_pb2.INVALID_CONFIG),
        (topic("t", min_insync_replicas="0"), errors_pb2.INVALID_CONFIG),
        (topic("t", assigned=[(1, 1)]), errors_pb2.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assigned=[()]), errors_pb2.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assigned=[(1, 2), (3,)]), errors_pb2.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assigned=[(1, 9)]), errors_pb2.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_c4_one_bad_topic_never_stops_its_siblings(wanted: admin_pb2.NewTopic, code: int) -> None:
    """Scenario 9, for creation."""
    topics = Topics()
    results = topics.create(topic("before"), wanted, topic("after"))
    assert codes(results) == [errors_pb2.NONE, code, errors_pb2.NONE]
    assert results[1].error_message
    assert set(topics.image.topics) == {"before", "after"}


def test_c4_assignments_must_be_numbered_from_zero() -> None:
    wanted = topic("t", assigned=[(1,), (2,)])
    wanted.assignments[1].partition = 2
    assert codes(Topics().create(wanted)) == [errors_pb2.INVALID_REPLICA_ASSIGNMENT]


def test_c4_a_name_given_twice_creates_nothing() -> None:
    topics = Topics()
    results = topics.create(topic("twice"), topic("once"), topic("twice"))
    assert codes(results) == [
        errors_pb2.INVALID_REQUEST,
        errors_pb2.NONE,
        errors_pb2.INVALID_REQUEST,
    ]
    assert set(topics.image.topics) == {"once"}


def test_c4_defaults_assignments_and_configs_take_effect() -> None:
    topics = Topics()
    by_default, by_hand = topics.create(
        topic("d", -1, -1, min_insync_replicas="2"), topic("h", assigned=[(3, 1), (2, 3)])
    )
    assert (by_default.num_partitions, by_default.replication_factor) == (4, 2)
    assert dict(by_default.configs) == {"min.insync.replicas": "2"}
    assert dict(topics.image.config("topic", "d")) == {"min.insync.replicas": "2"}
    assert (by_hand.num_partitions, by_hand.replication_factor) == (2, 2)
    assert [one.replicas for one in topics.image.topics["h"].partitions] == [(3, 1), (2, 3)]
    assert [one.leader for one in topics.image.topics["h"].partitions] == [3, 2]
    for partition in topics.image.topics["d"].partitions:
        assert len(set(partition.replicas)) == 2
        assert partition.leader == partition.preferred_leader
        assert partition.isr == partition.replicas


def test_c4_the_record_names_the_controller() -> None:
    """C1: id and epoch of whoever decided."""
    topics = Topics()
    topics.create(topic("orders"))
    (partition,) = topics.image.topics["orders"].partitions
    assert (partition.controller_id, partition.controller_epoch) == (1, 1)
    assert partition.leader_epoch == 0


def test_c5_deletion_is_accepted_by_name_and_by_id() -> None:
    topics = Topics()
    topics.create(topic("one"), topic("two"))
    topic_id = topics.image.topics["two"].topic_id
    results = topics.delete(["one", "none"], [topic_id, topic_id_of("none")])
    assert codes(results) == [
        errors_pb2.NONE,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.NONE,
        errors_pb2.UNKNOWN_TOPIC_ID,
    ]
    assert results[2].name == "two"
    assert set(topics.image.deletions) == {"one", "two"}
    assert set(topics.image.topics) == {"one", "two"}, "until their replicas are stopped"
    assert codes(topics.delete(["one"])) == [errors_pb2.NONE], "asking again changes nothing"
    assert codes(topics.create(topic("one"))) == [errors_pb2.TOPIC_ALREADY_EXISTS]
    ended = removals(topics.image, topics.tenure, ["two", "none"])
    assert topics.log.transact(*ended, atomic=False).ok
    assert set(topics.image.topics) == {"one"}


def test_c5_a_topic_that_is_not_being_deleted_is_never_removed() -> None:
    topics = Topics()
    topics.create(topic("one"))
    assert removals(topics.image, topics.tenure, ["one"]) == []


def test_c5_deletion_can_be_switched_off() -> None:
    topics = Topics()
    topics.create(topic("one"))
    assert codes(topics.delete(["one"], enabled=False)) == [errors_pb2.TOPIC_DELETION_DISABLED]


def test_c4_nothing_changes_until_applied() -> None:
    topics = Topics()
    before = topics.image
    (decision,) = create_topics(
        before,
        [topic("orders")],
        tenure=topics.tenure,
        defaults=lambda: TopicDefaults(1, 1),
        draw=topics._draw,
    )
    assert decision.operation is not None
    assert isinstance(decision.operation.records[0], TopicCreated)
    assert topics.image is before
