"""ElectLeaders: the controller's outcome, partition by partition, in every version."""

from typing import Any

import pytest

from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.unit.kafka.conftest import Ask

ELECT = 43


def electing(version: int, topics: Any, election_type: int = 0) -> dict[str, Any]:  # noqa: ANN401
    values = {"topic_partitions": topics, "timeout": 4321}
    return values if version == 0 else {**values, "election_type": election_type}


@pytest.mark.parametrize("version", range(3))
async def test_c2_every_partition_has_an_outcome(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    inside.metadata.add_topic("a", partitions=2)
    topics = [{"topic": "a", "partitions": [0, 1, 2]}, {"topic": "b", "partitions": [0]}]
    response = await ask(ELECT, version, electing(version, topics))
    found = {
        (topic.topic, one.partition_id): one.error_code
        for topic in response.replica_election_results
        for one in topic.partition_result
    }
    unknown = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {("a", 0): 0, ("a", 1): 0, ("a", 2): unknown, ("b", 0): unknown}
    (request,) = inside.forwarder.elections
    assert request.election_type == admin_pb2.ELECTION_PREFERRED
    assert (request.context.timeout_ms, request.context.api_name) == (4321, "ElectLeaders")
    assert not request.all_partitions


@pytest.mark.parametrize("version", range(3))
async def test_c2_no_list_means_all_partitions(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    await ask(ELECT, version, electing(version, None))
    (request,) = inside.forwarder.elections
    assert request.all_partitions


@pytest.mark.parametrize("version", [1, 2])
async def test_c2_unclean_elections_are_said_so(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    inside.metadata.add_topic("a")
    topics = [{"topic": "a", "partitions": [0]}]
    response = await ask(ELECT, version, electing(version, topics, election_type=1))
    assert response.error_code == errors_pb2.NONE
    (request,) = inside.forwarder.elections
    assert request.election_type == admin_pb2.ELECTION_UNCLEAN


async def test_c2_an_unknown_kind_of_election_is_refused(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    topics = [{"topic": "a", "partitions": [0]}]
    response = await ask(ELECT, 2, electing(2, topics, election_type=7))
    assert response.error_code == errors_pb2.INVALID_REQUEST
    (topic,) = response.replica_election_results
    assert topic.partition_result[0].error_message == "election type 7: 0 or 1 is served"
    assert not inside.forwarder.elections
