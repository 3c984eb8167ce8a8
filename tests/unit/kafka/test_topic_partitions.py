"""DescribeTopicPartitions: pages of a bounded size that meet each partition once."""

import dataclasses
from typing import Any

import pytest

from quorate.common.types import NO_BROKER, BrokerId
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import BROKER, FakeBrokerInside
from tests.unit.kafka.conftest import Ask

KEY = 75


def asking(
    *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> dict[str, Any]:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    topics = [{"name": name} for name in names]
    return {"topics": topics, "response_partition_limit": limit, "cursor": at}


def described(response: Any) -> list[tuple[str, list[int]]]:  # noqa: ANN401
    return [(one.name, [p.partition_index for p in one.partitions]) for one in response.topics]


def next_page(response: Any) -> tuple[str, int] | None:  # noqa: ANN401
    at = response.next_cursor
    return None if at is None else (at.topic_name, at.partition_index)


@pytest.fixture
def topics(inside: FakeBrokerInside) -> None:
    for name, partitions in (("c", 1), ("a", 3), ("b", 2)):
        inside.metadata.add_topic(name, partitions)


@pytest.mark.usefixtures("topics")
async def test_every_topic_is_described_in_order(ask: Ask) -> None:
    response = await ask(KEY, 0, asking())
    assert described(response) == [("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])]
    assert next_page(response) is None


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 100])
async def test_pages_meet_every_partition_once(ask: Ask, limit: int) -> None:
    met: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    while True:
        response = await ask(KEY, 0, asking(limit=limit, cursor=cursor))
        page = [(name, number) for name, numbers in described(response) for number in numbers]
        assert len(page) <= limit
        met += page
        cursor = next_page(response)
        if cursor is None:
            break
    assert met == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]


@pytest.mark.usefixtures("topics")
async def test_a_cursor_at_a_topic_that_is_gone_goes_on_with_the_next(ask: Ask) -> None:
    response = await ask(KEY, 0, asking(cursor=("aa", 7)))
    assert described(response) == [("b", [0, 1]), ("c", [0])]
    beyond = await ask(KEY, 0, asking(cursor=("z", 0)))
    assert (described(beyond), next_page(beyond)) == ([], None)


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("limit", [0, -5])
async def test_a_limit_below_one_still_makes_progress(ask: Ask, limit: int) -> None:
    response = await ask(KEY, 0, asking("b", limit=limit))
    assert (described(response), next_page(response)) == ([("b", [0])], ("b", 1))


async def test_no_answer_describes_more_than_two_thousand_partitions(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.metadata.add_topic("big", 2_001)
    response = await ask(KEY, 0, asking("big", limit=1_000_000))
    assert next_page(response) == ("big", 2_000)


async def test_leaders_and_replicas_that_are_away_are_named(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    topic = inside.metadata.add_topic("t", 2)
    away = BrokerId(99)
    lost = dataclasses.replace(
        topic.partitions[0], leader=away, replicas=(BROKER, away), isr=(away,)
    )
    inside.metadata.topics["t"] = dataclasses.replace(topic, partitions=(lost, topic.partitions[1]))
    unknown, known = (await ask(KEY, 0, asking("none", "t"))).topics
    assert (unknown.error_code, unknown.partitions) == (errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, ())
    first, second = known.partitions
    assert (first.error_code, first.leader_id) == (errors_pb2.LEADER_NOT_AVAILABLE, -1)
    assert (first.replica_nodes, first.isr_nodes) == ((BROKER, away), (away,))
    assert first.offline_replicas == (away,)
    assert (second.error_code, second.leader_id) == (errors_pb2.NONE, BROKER)
    assert known.topic_id.bytes == topic.topic_id

    failed = dataclasses.replace(topic.partitions[0], leader=NO_BROKER, isr=(BROKER,))
    inside.metadata.topics["t"] = dataclasses.replace(topic, partitions=(failed,))
    (described,) = (await ask(KEY, 0, asking("t"))).topics
    assert described.partitions[0].offline_replicas == (BROKER,), "its log directory has failed"
