"""A client that asks the wrong broker is told the leader and its address (KIP-951)."""

import dataclasses
from typing import Any
from uuid import UUID

import pytest

from quorate.broker.kafka.connection import request_dispatcher
from quorate.broker.kafka.records.current_leaders import CurrentLeaders, Leader, Node
from quorate.broker.kafka.records.produce_messages import (
    ProduceResponse,
    encode,
    throttle_place,
)
from quorate.broker.kafka.wire.primitives import at_once
from quorate.broker.replication.api import FetchOutcome, ProduceOutcome
from quorate.common.types import BrokerId, Endpoint, LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBroker, FakeBrokerInside, FakePartition
from tests.support.kafka_wire import by_topic_ids, fetching, producing, read_answer, record_batch
from tests.unit.kafka.conftest import Ask

PRODUCE, FETCH = 0, 1
LEADER, EPOCH = BrokerId(2), LeaderEpoch(7)
NOT_LEADER = errors_pb2.NOT_LEADER_OR_FOLLOWER
TP = TopicPartition("t", 1)


@pytest.fixture
def inside(inside: FakeBrokerInside) -> FakeBrokerInside:
    """Broker 2 leads the partition 1 of the topic."""
    at = Endpoint("127.0.0.2", 9094)
    inside.metadata.brokers[LEADER] = FakeBroker(at, Endpoint("127.0.0.2", 9194), "r2")
    topic = inside.metadata.add_topic("t", 2)
    partitions = (topic.partitions[0], FakePartition(LEADER, EPOCH, (LEADER,)))
    inside.metadata.topics["t"] = dataclasses.replace(topic, partitions=partitions)
    inside.metadata.changed()
    return inside


def endpoints(response: Any) -> list[tuple[int, str, int, str | None]]:  # noqa: ANN401
    return [(one.node_id, one.host, one.port, one.rack) for one in response.node_endpoints]


@pytest.mark.parametrize("version", [9, 10, 12, 13])
async def test_kip_951_a_producer_is_told_the_leader(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    inside.replicas.errors[TP] = ProduceOutcome(NOT_LEADER, "broker 1 does not lead t-1")
    request = producing(record_batch(1), record_batch(1))
    if version >= 13:
        ids = {"t": UUID(bytes=inside.metadata.topics["t"].topic_id)}
        request = by_topic_ids(request, ids)
    response = await ask(PRODUCE, version, request)
    led, other = response.responses[0].partition_responses
    assert (led.error_code, other.error_code) == (0, NOT_LEADER)
    assert other.error_message == "broker 1 does not lead t-1"
    if version < 10:
        return
    assert (led.current_leader.leader_id, led.current_leader.leader_epoch) == (-1, -1)
    assert (other.current_leader.leader_id, other.current_leader.leader_epoch) == (LEADER, EPOCH)
    assert endpoints(response) == [(LEADER, "127.0.0.2", 9094, "r2")]


@pytest.mark.parametrize("code", [NOT_LEADER, errors_pb2.FENCED_LEADER_EPOCH])
@pytest.mark.parametrize("version", [13, 15, 16, 18])
async def test_kip_951_a_consumer_is_told_the_leader(
    inside: FakeBrokerInside, ask: Ask, version: int, code: int
) -> None:
    inside.replicas.fetch_errors[TP] = FetchOutcome(code)
    template = fetching()
    (topic,) = template["topics"]
    (partition,) = topic["partitions"]
    topic_id = UUID(bytes=inside.metadata.topics["t"].topic_id)
    wanted = [{"topic_id": topic_id, "partitions": [{**partition, "partition": 1}]}]
    response = await ask(FETCH, version, {**template, "topics": wanted})
    (refused,) = response.responses[0].partitions
    assert refused.error_code == code
    leader = refused.current_leader
    if version < 16:
        assert leader.leader_id == -1
        return
    assert (leader.leader_id, leader.leader_epoch) == (LEADER, EPOCH)
    assert endpoints(response) == [(LEADER, "127.0.0.2", 9094, "r2")]


async def test_kip_951_nothing_is_told_of_a_partition_without_a_live_leader(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.replicas.errors[TP] = ProduceOutcome(NOT_LEADER)
    del inside.metadata.brokers[LEADER]
    response = await ask(PRODUCE, 12, producing(record_batch(1), record_batch(1)))
    _, other = response.responses[0].partition_responses
    assert other.current_leader.leader_id == -1
    assert endpoints(response) == []


def test_the_throttle_time_is_found_beside_the_addresses() -> None:
    leaders = CurrentLeaders(
        {("t", 0): Leader(LEADER, EPOCH)}, (Node(LEADER, Endpoint("h", 1), ""),)
    )
    answer = ProduceResponse([("t", [(0, None)])], [ProduceOutcome(NOT_LEADER)], leaders)
    encoded = at_once(encode(12, answer))
    place = throttle_place(12)
    assert place is not None
    request_dispatcher._put_throttle_time(encoded, place, 1_234)
    _, response = read_answer(PRODUCE, 12, bytes(4) + b"\0" + b"".join(encoded))
    assert response.throttle_time.total_seconds() == 1.234
    assert endpoints(response) == [(LEADER, "h", 1, None)]


def test_the_leaders_of_the_parts_of_a_request_are_told_together() -> None:
    one = CurrentLeaders({("t", 0): Leader(LEADER, EPOCH)}, (Node(LEADER, Endpoint("h", 1), ""),))
    other = CurrentLeaders({("t", 1): Leader(LEADER, EPOCH)}, one.nodes)
    assert one.and_those(other) == CurrentLeaders({**one.of, **other.of}, one.nodes)
