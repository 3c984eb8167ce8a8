"""The share coordinator forgets the states of topics that are gone, and no others."""

import asyncio

from quorate.broker.coordinator.share.share_coordinator import (
    ShareCoordinator,
    ShareCoordinatorSettings,
)
from quorate.broker.coordinator.share.share_questions import Initialize, Read
from quorate.broker.coordinator.share.share_state_shard import ShardSettings
from quorate.broker.coordinator.share.state.stored_state import SharePartitionKey
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.consumer_world import FakeTopics
from tests.unit.coordinator.memory_log import Led, MemoryLog

SETTINGS = ShareCoordinatorSettings(ShardSettings(3, 1_000), 1_000, 1_000)


async def nothing(_partition: int, _offset: int) -> None:
    """Delete no records."""


async def coordinating(topics: FakeTopics) -> tuple[ShareCoordinator, SharePartitionKey]:
    """A coordinator that has the state of one share-partition."""
    coordinator = ShareCoordinator(SETTINGS, topics, lambda _: 1, lambda: 0, nothing)
    coordinator.lead(0, Led(MemoryLog()))
    key = SharePartitionKey("g", topics.create("orders", 1), 0)
    await pass_time(1)
    assert (await coordinator.ask(Initialize(key, 1, 0))).error_code == errors_pb2.NONE
    return coordinator, key


async def test_states_of_deleted_topics_go_at_the_second_look() -> None:
    topics = FakeTopics()
    coordinator, key = await coordinating(topics)
    (shard,) = coordinator.loaded_shards()
    topics.delete("orders")
    await coordinator.maintain()
    assert shard.topic_ids() == {key.topic_id}
    await coordinator.maintain()
    assert not shard.topic_ids()
    await coordinator.close()


async def test_nothing_is_forgotten_before_the_topics_are_known() -> None:
    topics = FakeTopics()
    coordinator, key = await coordinating(topics)
    topics.hide()
    looks = [asyncio.create_task(coordinator.maintain()) for _ in range(3)]
    await pass_time(60)
    topics.show()
    await asyncio.gather(*looks)
    await coordinator.maintain()
    assert (await coordinator.ask(Read(key, 1))).error_code == errors_pb2.NONE
    await coordinator.close()
