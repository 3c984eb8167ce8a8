"""Transactions of a replicated log: what all replicas know after failovers and restarts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.replication.api import MarkerEntry, ProduceEntry
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.committed_reader import committed_batches
from tests.support.log_stores import batch
from tests.support.record_batches import TRANSACTIONAL
from tests.support.replica_cluster import ReplicaCluster, ReplicaNode
from tests.support.waiting import async_wait_until

pytestmark = pytest.mark.integration

ORDERS = TopicPartition("orders", 0)
ME, OTHER = 7, 8


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ReplicaCluster]:
    async with ReplicaCluster(tmp_path) as cluster:
        await cluster.start(1, 2, 3)
        await cluster.create_topic("orders", (1, 2, 3))
        yield cluster


async def write(node: ReplicaNode, producer_id: int, sequence: int, *, acks: int = -1) -> None:
    data = batch(producer=(producer_id, 0, sequence), attributes=TRANSACTIONAL)
    entry = ProduceEntry(ORDERS, data, AppendOrigin.TRANSACTIONAL_CLIENT)
    (outcome,) = await node.manager.produce([entry], acks, 10_000)
    assert outcome.error_code == errors_pb2.NONE, outcome


async def end(
    node: ReplicaNode, producer_id: int, *, committed: bool, timeout_ms: int = 10_000
) -> int:
    entry = MarkerEntry(ORDERS, EndMarker(producer_id, 0, committed, 0))
    (code,) = await node.manager.write_markers([entry], timeout_ms)
    return code


def known(node: ReplicaNode) -> tuple[int, dict[int, int], list[int]]:
    """The last stable offset, what is under way, and the batches that count."""
    hosted = node.hosted("orders")
    stable, transactions = hosted.last_stable_offset, hosted.log.transactions
    data = node.log_bytes("orders", stable)
    counting = committed_batches(data, transactions.aborted(0, stable))
    return stable, dict(transactions.ongoing), counting


async def test_kip_98_a_marker_that_was_never_committed_has_not_ended_anything(
    cluster: ReplicaCluster,
) -> None:
    """Its leader was deposed, and reads its log back to where the new one began."""
    await write(cluster.nodes[1], ME, 0)
    await write(cluster.nodes[1], OTHER, 0)
    await cluster.settled("orders", 1, 2, 3)
    await cluster.elect("orders", 2, isr=(1, 2, 3), tell=[2, 3])
    assert await end(cluster.nodes[1], ME, committed=True, timeout_ms=200) != errors_pb2.NONE
    deposed = cluster.nodes[1].hosted("orders")
    assert dict(deposed.log.transactions.ongoing) == {OTHER: 1}
    assert deposed.last_stable_offset == 0, "nobody may read what the marker ended"
    await cluster.tell("orders", to=[1])
    await async_wait_until(
        lambda: deposed.log.log_end_offset == 2, "both transactions at the deposed leader"
    )
    assert dict(deposed.log.transactions.ongoing) == {ME: 0, OTHER: 1}
    assert await end(cluster.nodes[2], ME, committed=False) == errors_pb2.NONE
    assert await end(cluster.nodes[2], OTHER, committed=True) == errors_pb2.NONE
    await cluster.settled("orders", 1, 2, 3)
    for broker_id, node in cluster.nodes.items():
        await cluster.watermark_is("orders", broker_id, 4)
        assert known(node) == (4, {}, [1])


async def test_kip_98_a_replica_that_starts_again_knows_what_the_others_know(
    cluster: ReplicaCluster,
) -> None:
    leader = cluster.nodes[1]
    await write(leader, ME, 0)
    assert await end(leader, ME, committed=False) == errors_pb2.NONE
    await write(leader, ME, 1)
    await write(leader, OTHER, 0)
    assert await end(leader, OTHER, committed=True) == errors_pb2.NONE
    await cluster.settled("orders", 1, 2, 3)
    for broker_id in (1, 2, 3):
        await cluster.watermark_is("orders", broker_id, 5)
    before = known(leader)
    assert before == (2, {ME: 2}, [])
    await cluster.stop(3)
    await cluster.elect("orders", 2, isr=(1, 2))
    await cluster.start(3)
    await cluster.elect("orders", 3, isr=(1, 2, 3))
    await cluster.watermark_is("orders", 3, 5)
    assert [known(node) for node in cluster.nodes.values()] == [before] * 3
    assert await end(cluster.nodes[3], ME, committed=True) == errors_pb2.NONE
    await cluster.settled("orders", 1, 2, 3)
    assert known(cluster.nodes[3]) == (6, {}, [2, 3])
