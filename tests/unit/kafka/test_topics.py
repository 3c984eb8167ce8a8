"""CreateTopics and DeleteTopics: the controller's outcome, topic by topic, in every version."""

from typing import Any
from uuid import UUID

import pytest

from quorate.broker.config.dynamic_config import ConfigSource
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import Values
from tests.unit.kafka.conftest import Ask

CREATE, DELETE = 19, 20


def new(name: str, partitions: int = 3, **fields: Any) -> Values:  # noqa: ANN401
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
        **fields,
    }


def creating(*topics: Values, validate_only: bool = False) -> Values:
    return {"topics": list(topics), "timeout": 1234, "validate_only": validate_only}


@pytest.mark.parametrize("version", range(2, 8))
async def test_one_bad_topic_never_stops_its_siblings(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    existing = inside.metadata.add_topic("old")
    response = await ask(CREATE, version, creating(new("old"), new("fresh")))
    refused, created = response.topics
    assert (refused.name, refused.error_code) == ("old", errors_pb2.TOPIC_ALREADY_EXISTS)
    assert refused.error_message == "topic old exists"
    assert (created.name, created.error_code, created.error_message) == ("fresh", 0, None)
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (3, 1)
        assert (refused.num_partitions, refused.configs) == (-1, None)
    if version >= 7:
        assert created.topic_id == UUID(bytes=inside.metadata.topics["fresh"].topic_id)
        assert inside.metadata.topics["old"] is existing


async def test_what_the_controller_is_asked(inside: FakeBrokerInside, ask: Ask) -> None:
    topic = new(
        "t",
        -1,
        assignments=[
            {"partition_index": 0, "broker_ids": [1, 2]},
            {"partition_index": 1, "broker_ids": [2, 1]},
        ],
        configs=[{"name": "k", "value": "v"}, {"name": "unset", "value": None}],
    )
    response = await ask(CREATE, 7, creating(topic, validate_only=True))
    (request,) = inside.forwarder.creations
    assert request.validate_only
    assert request.context.timeout_ms == 1234
    assert (request.context.client_id, request.context.client_host) == ("test", "10.0.0.9")
    assert (request.context.api_name, request.context.forwarded_by) == ("CreateTopics", -1)
    (asked,) = request.topics
    assert [list(item.broker_ids) for item in asked.assignments] == [[1, 2], [2, 1]]
    assert dict(asked.configs) == {"k": "v"}
    (created,) = response.topics
    assert [(item.name, item.value, item.config_source) for item in created.configs] == [
        ("k", "v", ConfigSource.TOPIC),
        ("retention.ms", "7", ConfigSource.DEFAULT),
    ]
    assert inside.metadata.topics == {}


async def test_a_topic_named_twice_is_refused_and_not_created(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    response = await ask(CREATE, 5, creating(new("a"), new("b"), new("a")))
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("a", errors_pb2.INVALID_REQUEST),
        ("b", errors_pb2.NONE),
    ]
    assert list(inside.metadata.topics) == ["b"]


@pytest.mark.parametrize("version", range(1, 6))
async def test_delete_by_name(inside: FakeBrokerInside, ask: Ask, version: int) -> None:
    inside.metadata.add_topic("a")
    response = await ask(DELETE, version, {"topic_names": ["a", "b"], "timeout": 5000})
    assert [(item.name, item.error_code) for item in response.responses] == [
        ("a", errors_pb2.NONE),
        ("b", errors_pb2.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert inside.metadata.topics == {}
    assert inside.forwarder.deletions[0].context.timeout_ms == 5000


async def test_delete_by_name_and_id(inside: FakeBrokerInside, ask: Ask) -> None:
    inside.metadata.add_topic("a")
    topic_id = UUID(bytes=inside.metadata.add_topic("b").topic_id)
    topics = [{"name": "a", "topic_id": None}, {"name": None, "topic_id": topic_id}]
    response = await ask(DELETE, 6, {"topics": topics, "timeout": 5000})
    by_name, by_id = response.responses
    assert (by_name.name, by_name.error_code) == ("a", 0)
    assert (by_id.topic_id, by_id.error_code) == (topic_id, 0)
    assert inside.metadata.topics == {}


async def test_kip_516_what_is_named_in_no_way_or_in_both_is_not_deleted(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    topic_id = UUID(bytes=inside.metadata.add_topic("a").topic_id)
    topics = [
        {"name": None, "topic_id": None},
        {"name": "a", "topic_id": topic_id},
        {"name": "b", "topic_id": None},
    ]
    response = await ask(DELETE, 6, {"topics": topics, "timeout": 5000})
    assert [(one.name, one.topic_id, one.error_code) for one in response.responses] == [
        ("b", None, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION),
        (None, None, errors_pb2.INVALID_REQUEST),
        ("a", topic_id, errors_pb2.INVALID_REQUEST),
    ]
    assert "a" in inside.metadata.topics


@pytest.mark.parametrize("others", [0, 60])
async def test_what_is_named_more_than_once_is_not_deleted(
    inside: FakeBrokerInside, ask: Ask, others: int
) -> None:
    """However many others there are, between which the request is divided."""
    topic_id = UUID(bytes=inside.metadata.add_topic("a").topic_id)
    inside.metadata.add_topic("b")
    many = [{"name": f"t{number}", "topic_id": None} for number in range(others)]
    twice = [{"name": None, "topic_id": topic_id}, {"name": "b", "topic_id": None}]
    response = await ask(DELETE, 6, {"topics": [*twice, *many, *twice], "timeout": 5000})
    invalid = errors_pb2.INVALID_REQUEST
    codes = [(one.name, one.topic_id, one.error_code) for one in response.responses]
    assert {(None, topic_id, invalid), ("b", None, invalid)} < {*codes, ("", None, 0)}
    assert len(codes) == others + 2
    assert {"a", "b"} <= inside.metadata.topics.keys()
    by_name = {"topic_names": ["b", *(one["name"] for one in many), "b"], "timeout": 5000}
    response = await ask(DELETE, 5, by_name)
    assert {one.name: one.error_code for one in response.responses}["b"] == invalid
    assert "b" in inside.metadata.topics
