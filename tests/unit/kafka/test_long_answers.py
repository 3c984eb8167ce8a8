"""Short requests with long responses: what is named again is answered once, and making the response
gives way and holds memory (issue 17)."""

import asyncio
import dataclasses
from typing import Any
from uuid import UUID

import pytest

from quorate.broker.kafka.connection.requests import CloseConnection, RequestContext
from quorate.broker.kafka.metadata import metadata_api
from quorate.broker.kafka.metadata.describe_topic_partitions_api import TOPICS_MAX
from quorate.broker.kafka.metadata.metadata_response import MetadataResponseBuilder
from quorate.broker.quota.client_memory import ClientMemory, RequestMemory, ResponseMemory
from quorate.broker.quota.work_turns import ITEMS_BETWEEN_LOOKS, WorkTurns
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import request_frame
from tests.unit.kafka.test_large_requests import LOOKS_IN_A_SLICE, Ticking, asked, decoded
from tests.unit.test_work_turns import Passes

METADATA, OFFSET_FETCH, FIND_COORDINATOR, LIST_CONFIGS, TOPIC_PARTITIONS = 3, 9, 10, 74, 75


def topics_named(*names: str, create: bool = False) -> dict[str, Any]:
    return {
        "topics": [{"name": name, "topic_id": UUID(int=0)} for name in names],
        "allow_auto_topic_creation": create,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def limited(limit_bytes: int) -> ClientMemory:
    return ClientMemory(RequestMemory(), ResponseMemory(limit_bytes))


@pytest.mark.parametrize("version", [1, 9, 12])
async def test_a_topic_that_is_named_again_is_described_once(
    inside: FakeBrokerInside, version: int
) -> None:
    inside.metadata.add_topic("t", 100)
    answer = await asked(inside, METADATA, version, topics_named(*["t"] * 5_000, "u", "u"))
    assert [topic.name for topic in answer.topics] == ["t", "u"]
    assert len(answer.topics[0].partitions) == 100


@pytest.mark.parametrize("names", [("t",), None])
async def test_a_long_description_of_topics_gives_way_and_holds_memory(
    inside: FakeBrokerInside, names: tuple[str, ...] | None
) -> None:
    inside.metadata.add_topic("t", 5_000)
    memory = limited(1 << 20)
    values = topics_named(*(names or ()))
    if names is None:
        values["topics"] = None
    frame = request_frame(METADATA, 9, values)
    request = decoded(inside, frame, memory=memory, turns=WorkTurns(Ticking()))
    with Passes() as passes:
        size = sum(map(len, await request.run()))
    assert passes.count > 5
    assert memory.responses.held_bytes >= size > 100_000


async def test_each_stage_of_a_description_of_many_topics_gives_way(
    inside: FakeBrokerInside,
) -> None:
    """Names are told apart, looked up among the rights and among the topics, given an error,
    counted and encoded.
    """
    count = 2_000
    services = dataclasses.replace(inside.services, turns=WorkTurns(Ticking()))
    values = topics_named(*[f"no-such-{number}" for number in range(count)], create=True)
    with Passes() as passes:
        context = RequestContext(9, "c", "h")
        encoded = await metadata_api.MetadataApi().handle(services, context, values)
    assert encoded.count(b"no-such-") == count
    stage = count // ITEMS_BETWEEN_LOOKS // LOOKS_IN_A_SLICE
    encoding = count // LOOKS_IN_A_SLICE
    passes_of_a_turn = 2
    assert passes.count > passes_of_a_turn * (5 * stage + encoding) - stage


async def test_many_topics_are_described_like_few(inside: FakeBrokerInside) -> None:
    names = [f"t{number}" for number in range(300)]
    for name in names[::2]:
        inside.metadata.add_topic(name, 2)
    answer = await asked(inside, METADATA, 9, topics_named(*names))
    few = [await asked(inside, METADATA, 9, topics_named(name)) for name in names]
    assert answer.topics == tuple(one.topics[0] for one in few)


async def test_a_description_of_topics_that_is_too_long_is_refused(
    inside: FakeBrokerInside,
) -> None:
    inside.metadata.add_topic("t", 5_000)
    request = decoded(inside, request_frame(METADATA, 9, topics_named("t")), memory=limited(1_000))
    with pytest.raises(CloseConnection, match="ask for less at once"):
        await request.run()


async def test_clients_that_want_all_topics_at_the_same_time_have_them_encoded_once(
    inside: FakeBrokerInside, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside.metadata.add_topic("t", 5_000)
    encodings: list[object] = []
    encode = MetadataResponseBuilder.encode

    def counted(builder: Any, topics: Any) -> Any:  # noqa: ANN401
        encodings.append(builder)
        return encode(builder, topics)

    monkeypatch.setattr(MetadataResponseBuilder, "encode", counted)
    handler = metadata_api.MetadataApi()
    asks = [
        handler.handle(inside.services, RequestContext(9, "c", "h"), {"topics": None})
        for _ in range(3)
    ]
    first, *others = await asyncio.gather(*asks)
    assert all(other is first for other in others)
    assert len(encodings) == 1


async def test_one_request_creates_few_topics(inside: FakeBrokerInside) -> None:
    names = [f"new-{number}" for number in range(150)]
    answer = await asked(inside, METADATA, 9, topics_named(*names, create=True))
    codes = {topic.error_code for topic in answer.topics}
    assert codes == {errors_pb2.NONE, errors_pb2.LEADER_NOT_AVAILABLE}
    assert len(inside.metadata.topics) == 100


async def test_the_offsets_of_a_group_that_is_named_again_are_answered_once(
    inside: FakeBrokerInside,
) -> None:
    groups = [{"group_id": "g", "topics": None}] * 300 + [{"group_id": "h", "topics": None}]
    answer = await asked(inside, OFFSET_FETCH, 8, {"groups": groups, "require_stable": False})
    assert [group.group_id for group in answer.groups] == ["g", "h"]


@pytest.mark.parametrize("version", [5, 8])
async def test_offsets_of_many_partitions_give_way_and_hold_memory(
    inside: FakeBrokerInside, version: int
) -> None:
    group = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [*range(900)]}]}
    values = {**group, "groups": [group], "require_stable": False}
    memory = limited(1 << 20)
    frame = request_frame(OFFSET_FETCH, version, values)
    request = decoded(inside, frame, memory=memory, turns=WorkTurns(Ticking()))
    with Passes() as passes:
        size = sum(map(len, await request.run()))
    assert passes.count > 5
    assert memory.responses.held_bytes == size
    answer = await asked(inside, OFFSET_FETCH, version, values)
    (topic,) = (answer if version < 8 else answer.groups[0]).topics
    assert [one.partition_index for one in topic.partitions] == [*range(900)]


async def test_many_coordinators_are_found_in_slices(inside: FakeBrokerInside) -> None:
    keys = [f"g{number}" for number in range(900)]
    values = {"key_type": 0, "coordinator_keys": keys}
    with Passes() as passes:
        turns = WorkTurns(Ticking())
        answer = await asked(inside, FIND_COORDINATOR, 4, values, turns=turns)
    assert [one.key for one in answer.coordinators] == keys
    assert passes.count > 5


async def test_topics_without_partitions_are_described_page_by_page_too(
    inside: FakeBrokerInside,
) -> None:
    names = [f"t{number:05}" for number in range(TOPICS_MAX + 1)]
    values = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": 10,
        "cursor": None,
    }
    answer = await asked(inside, TOPIC_PARTITIONS, 0, values)
    assert [topic.name for topic in answer.topics] == names[:-1]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == (names[-1], 0)
