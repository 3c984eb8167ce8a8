"""Reassignments over the wire: the controller's outcomes, partition by partition (C11)."""

from typing import Any

import pytest

from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.unit.kafka.conftest import Ask

ALTER, LIST = 45, 46


def altering(version: int, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    def partition(index: int, replicas: list[int] | None) -> dict[str, Any]:
        return {"partition_index": index, "replicas": replicas}

    topics = [
        {"name": "a", "partitions": [partition(0, [1, 2]), partition(1, None), partition(7, [])]},
        {"name": "b", "partitions": [partition(0, [3])]},
    ]
    values: dict[str, Any] = {"topics": topics, "timeout": 4321}
    return values if version == 0 else {**values, **fields}


@pytest.mark.parametrize("version", range(2))
async def test_c11_every_partition_has_an_outcome(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    inside.metadata.add_topic("a", partitions=2)
    values = altering(version, allow_replication_factor_change=False)
    response = await ask(ALTER, version, values)
    found = {
        (topic.name, one.partition_index): (one.error_code, one.error_message)
        for topic in response.responses
        for one in topic.partitions
    }
    unknown = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {
        ("a", 0): (0, None),
        ("a", 1): (0, None),
        ("a", 7): (unknown, "there is no partition a-7"),
        ("b", 0): (unknown, "there is no partition b-0"),
    }
    (request,) = inside.forwarder.reassignments
    assert [(list(one.replicas), one.cancel) for one in request.partitions] == [
        ([1, 2], False),
        ([], True),
        ([], False),
        ([3], False),
    ]
    assert request.allow_replication_factor_change == (version == 0)
    assert request.context.timeout_ms == 4321
    assert request.context.api_name == "AlterPartitionReassignments"


async def test_c11_what_is_under_way_is_listed_by_topic(inside: FakeBrokerInside, ask: Ask) -> None:
    inside.forwarder.ongoing = [
        admin_pb2.OngoingReassignment(
            topic=topic,
            partition=partition,
            replicas=[3, 2, 1, 0],
            adding_replicas=[0],
            removing_replicas=[3],
        )
        for topic, partition in (("a", 0), ("a", 1), ("b", 4))
    ]
    response = await ask(LIST, 0, {"topics": None, "timeout": 99})
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in response.topics] == [
        ("a", [0, 1]),
        ("b", [4]),
    ]
    one = response.topics[1].partitions[0]
    assert tuple(one.replicas) == (3, 2, 1, 0)
    assert (tuple(one.adding_replicas), tuple(one.removing_replicas)) == ((0,), (3,))
    (request,) = inside.forwarder.lists
    assert request.all


async def test_c11_partitions_can_be_asked_for_by_name(inside: FakeBrokerInside, ask: Ask) -> None:
    topics = [{"name": "a", "partition_indexes": [2, 5]}]
    await ask(LIST, 0, {"topics": topics, "timeout": 99})
    await ask(LIST, 0, {"topics": [], "timeout": 99})
    named, none = inside.forwarder.lists
    assert [(one.topic, one.partition) for one in named.partitions] == [("a", 2), ("a", 5)]
    assert not named.all
    assert not none.all
    assert not none.partitions
