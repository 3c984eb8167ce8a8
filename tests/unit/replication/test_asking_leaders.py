"""When logs are compared with their leaders': not while a command goes on (KIP-101)."""

import asyncio

import pytest

from quorate.broker.log.state.leader_epoch_cache import LeaderEpochCache
from quorate.broker.replication.fetching.partition_fetch_state import PartitionFetchState
from quorate.broker.replication.fetching.truncator import Truncator
from quorate.broker.replication.pace import STEPS_IN_A_ROW
from quorate.common.types import LeaderEpoch
from quorate_proto.v1 import control_pb2, replication_pb2
from tests.support.broker_replicas import BrokerReplicas, tip_of
from tests.support.fetch_states import followed
from tests.support.replica_cluster import batch
from tests.unit.replication.test_produce import settle


async def nobody_is_asked(
    request: replication_pb2.OffsetsForLeaderEpochRequest,
) -> replication_pb2.OffsetsForLeaderEpochResponse:
    raise AssertionError("an empty log has nothing to compare")


async def test_kip_101_comparing_waits_for_the_end_of_a_command(broker: BrokerReplicas) -> None:
    await broker.command("orders", leader=2)
    following = followed(broker.hosted("orders"))
    may_ask = asyncio.Event()
    ready: list[PartitionFetchState] = []
    truncator = Truncator(broker.manager.table, ready.append, may_ask)
    truncator.add(following)
    running = asyncio.create_task(truncator.run(nobody_is_asked))
    await settle()
    assert not ready
    may_ask.set()
    await settle()
    assert ready == [following]
    running.cancel()


async def test_kip_101_nobody_asks_until_all_of_a_command_is_told(
    broker: BrokerReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked too early a leader refuses, and thousands of partitions have to ask again."""
    may_ask = broker.manager._fetchers._may_ask
    request = control_pb2.LeaderAndIsrRequest()
    topic = request.topics.add(topic="orders", topic_id=tip_of("orders").topic_id)
    for number in range(2 * STEPS_IN_A_ROW):
        topic.partitions.add(partition=number, leader=2, isr=[1, 2], replicas=[1, 2])
    commanded = asyncio.ensure_future(broker.manager.apply_leader_and_isr(request))
    turns = []
    while not commanded.done():
        await asyncio.sleep(0)
        turns.append(may_ask.is_set())
    assert turns[:2] == [False, False]
    assert may_ask.is_set()
    monkeypatch.setattr(broker.manager.table, "host", None)
    with pytest.raises(TypeError):
        await broker.manager.apply_leader_and_isr(request)
    assert may_ask.is_set(), "a command that fails does not stop replication"


async def test_kip_279_an_epoch_without_records_does_not_keep_it_asking(
    broker: BrokerReplicas,
) -> None:
    """This broker led epoch 5 and wrote nothing; its leader has never heard of it."""
    await broker.lead("orders", isr=(1,), replicas=(1, 2), epoch=1)
    for value in ("a", "b"):
        await broker.produce("orders", batch(value), acks=0)
    broker.store.flush()
    await broker.lead("orders", isr=(1,), replicas=(1, 2), epoch=5, version=1)
    await broker.command("orders", leader=2, epoch=6, version=2, isr=(2,), replicas=(1, 2))
    hosted = broker.hosted("orders")
    assert hosted.log.leader_epochs.entries == [(1, 0), (5, 2)]
    of_leader = LeaderEpochCache([(1, 0), (3, 1), (6, 4)])
    asked: list[int] = []

    async def ask(
        request: replication_pb2.OffsetsForLeaderEpochRequest,
    ) -> replication_pb2.OffsetsForLeaderEpochResponse:
        (query,) = request.queries
        asked.append(query.leader_epoch)
        assert len(asked) < 10, "it asks without an end"
        epoch, end_offset = of_leader.end_offset_for(LeaderEpoch(query.leader_epoch), 4)
        answer = replication_pb2.EpochAnswer(leader_epoch=epoch, end_offset=end_offset)
        return replication_pb2.OffsetsForLeaderEpochResponse(answers=[answer])

    may_ask = asyncio.Event()
    may_ask.set()
    ready: list[PartitionFetchState] = []
    truncator = Truncator(broker.manager.table, ready.append, may_ask)
    state = followed(hosted)
    truncator.add(state)
    running = asyncio.create_task(truncator.run(ask))
    await settle()
    assert ready == [state]
    assert asked == [5, 1]
    assert hosted.log.log_end_offset == 1
    running.cancel()
