"""Comparing logs with their leader's, partition by partition: what one meets is its own."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from quorate.broker.replication.fetching.partition_fetch_state import (
    BACKOFF_FIRST_MS,
    PartitionFetchState,
)
from quorate.broker.replication.fetching.truncator import Truncator
from quorate_proto.v1 import replication_pb2
from tests.support.broker_replicas import BrokerReplicas, tip_of
from tests.support.fetch_states import followed
from tests.support.replica_cluster import batch
from tests.unit.replication.test_produce import settle


class Leader:
    """Answers every question about an epoch with the same ``(epoch, end offset)``."""

    def __init__(self, answer: tuple[int, int]) -> None:
        self.answer = answer

    async def ask(
        self, request: replication_pb2.OffsetsForLeaderEpochRequest
    ) -> replication_pb2.OffsetsForLeaderEpochResponse:
        response = replication_pb2.OffsetsForLeaderEpochResponse()
        for _ in request.queries:
            response.answers.add(leader_epoch=self.answer[0], end_offset=self.answer[1])
        return response


class Checking:
    """A truncator at work for partitions that broker 1 led with two records, and now follows."""

    def __init__(self, broker: BrokerReplicas, leader: Leader) -> None:
        self.ready: list[str] = []
        self._broker = broker
        may_ask = asyncio.Event()
        may_ask.set()
        self.truncator = Truncator(broker.manager.table, self._on_ready, may_ask)
        self.leader = leader

    async def begin(self, topics: Sequence[str]) -> "asyncio.Task[None]":
        for topic in topics:
            await self._broker.lead(topic)
            for value in ("a", "b"):
                await self._broker.produce(topic, batch(value), acks=0)
        self._broker.store.flush()
        for topic in topics:
            await self._broker.command(topic, leader=2, epoch=1, version=1)
            following = followed(self._broker.hosted(topic))
            self.truncator.add(following)
        return asyncio.create_task(self.truncator.run(self.leader.ask))

    def _on_ready(self, following: PartitionFetchState) -> None:
        self.ready.append(following.hosted.tp.topic)


@pytest.fixture
async def tasks() -> AsyncIterator[list["asyncio.Task[None]"]]:
    tasks: list[asyncio.Task[None]] = []
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_c12_a_log_that_cannot_be_compared_leaves_the_others_alone(
    broker: BrokerReplicas, tasks: list["asyncio.Task[None]"]
) -> None:
    checking = Checking(broker, Leader((0, 1)))
    log = broker.store.create(tip_of("bad"), "bad")
    cut = log.truncate_to

    async def failing(offset: int) -> None:
        raise ZeroDivisionError(f"a mistake of ours, met at {offset}")

    log.truncate_to = failing  # type: ignore[method-assign]
    tasks.append(await checking.begin(["bad", "good"]))
    await settle()
    assert checking.ready == ["good"]
    assert broker.hosted("good").log.log_end_offset == 1
    assert not tasks[0].done()
    log.truncate_to = cut  # type: ignore[method-assign]
    broker.now_ms += 2 * BACKOFF_FIRST_MS
    tasks[0].cancel()
    tasks.append(asyncio.create_task(checking.truncator.run(checking.leader.ask)))
    await settle()
    assert checking.ready == ["good", "bad"]


async def test_c12_what_will_be_dropped_is_not_reported_as_durable(
    broker: BrokerReplicas, tasks: list["asyncio.Task[None]"]
) -> None:
    """The leader knows nothing of this log: counting it would commit what only looks the same."""
    checking = Checking(broker, Leader((-1, -1)))
    tasks.append(await checking.begin(["orders"]))
    await settle()
    assert checking.ready == ["orders"]
    following = followed(broker.hosted("orders"))
    position = following.position(can_append=True)
    assert (position.fetch_offset, position.flushed_offset) == (-1, -1)
