"""CreatePartitions: the controller's outcome, topic by topic, in every version."""

from typing import Any

import pytest

from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.unit.kafka.conftest import Ask

CREATE_PARTITIONS = 37


def more(name: str, count: int, assignments: Any = None) -> dict[str, Any]:  # noqa: ANN401
    return {"name": name, "count": count, "assignments": assignments}


def asking(*topics: dict[str, Any], validate_only: bool = False) -> dict[str, Any]:
    return {"topics": list(topics), "timeout": 1234, "validate_only": validate_only}


@pytest.mark.parametrize("version", range(4))
async def test_c14_one_bad_topic_never_stops_its_siblings(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    inside.metadata.add_topic("a")
    response = await ask(CREATE_PARTITIONS, version, asking(more("none", 2), more("a", 3)))
    assert [(one.name, one.error_code, one.error_message) for one in response.results] == [
        ("none", errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, "unknown"),
        ("a", errors_pb2.NONE, None),
    ]
    assert response.throttle_time.total_seconds() == 0.007
    assert len(inside.metadata.topics["a"].partitions) == 3


async def test_c14_what_the_controller_is_asked(inside: FakeBrokerInside, ask: Ask) -> None:
    by_hand = [{"broker_ids": [1, 2]}, {"broker_ids": [2, 1]}]
    await ask(CREATE_PARTITIONS, 3, asking(more("a", 3, by_hand), validate_only=True))
    (request,) = inside.forwarder.additions
    assert request.validate_only
    assert (request.context.timeout_ms, request.context.api_name) == (1234, "CreatePartitions")
    assert list(request.topics) == [
        admin_pb2.NewPartitions(
            name="a",
            count=3,
            assignments=[
                admin_pb2.Replicas(broker_ids=[1, 2]),
                admin_pb2.Replicas(broker_ids=[2, 1]),
            ],
        )
    ]


async def test_c14_a_topic_named_twice_is_refused_and_not_changed(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    for name in ("a", "b"):
        inside.metadata.add_topic(name)
    response = await ask(CREATE_PARTITIONS, 3, asking(more("a", 2), more("b", 2), more("a", 3)))
    assert [(one.name, one.error_code) for one in response.results] == [
        ("a", errors_pb2.INVALID_REQUEST),
        ("b", errors_pb2.NONE),
    ]
    assert len(inside.metadata.topics["a"].partitions) == 1
