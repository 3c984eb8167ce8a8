"""Consumers read from a follower near to them, and come back if it cannot serve them (KIP-392)."""

import asyncio

import pytest

from quorate.broker.replication.api import FetchOutcome, FetchParams, FetchPartition
from quorate.common.types import BrokerId, TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.replica import ReplicaUnderTest
from tests.support.replica_cluster import batch
from tests.unit.replication.test_produce import settle

NOBODY: frozenset[BrokerId] = frozenset()


def near(*brokers: int) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, brokers))


def leading(**flushed: int) -> ReplicaUnderTest:
    """Broker 1, durable below 10, with 2 and 3 in the ISR."""
    replica = ReplicaUnderTest()
    replica.lead()
    replica.flush(10)
    for name, offset in flushed.items():
        replica.fetch(int(name.removeprefix("broker_")), offset)
    return replica


@pytest.mark.parametrize(
    ("offset", "brokers", "preferred"),
    [
        (5, (2,), 2),
        (5, (2, 3), 3),
        (8, (2, 3), 3),
        (8, (2,), None),
        (5, (1, 2), None),
        (5, (4,), None),
        (5, (), None),
    ],
)
def test_the_furthest_of_those_near_that_have_the_offset(
    offset: int, brokers: tuple[int, ...], preferred: int | None
) -> None:
    replica = leading(broker_2=7, broker_3=9).replica
    assert replica.preferred_read_replica(offset, near(*brokers)) == preferred


def test_who_is_not_in_sync_is_not_preferred() -> None:
    replica = ReplicaUnderTest()
    replica.lead(isr=(1, 3))
    replica.flush(10)
    replica.fetch(2, 3)
    assert replica.replica.preferred_read_replica(0, near(2)) is None


async def fetch(
    broker: BrokerReplicas,
    offset: int,
    nearby: frozenset[BrokerId] | None,
    *,
    epoch: int = -1,
    max_wait_ms: int = 0,
) -> FetchOutcome:
    want = FetchPartition(TopicPartition("orders", 0), offset, 1 << 20, epoch)
    (outcome,) = await broker.manager.fetch(
        [want], FetchParams(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, near=nearby)
    )
    return outcome


async def following(broker: BrokerReplicas, committed: int) -> None:
    """Follows broker 2 in epoch 4, with three batches of which so many are committed."""
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    for value in "abc":
        await broker.produce("orders", batch(value), acks=0)
    broker.store.flush()
    await broker.command("orders", leader=2, epoch=4, version=1, isr=(1, 2), replicas=(1, 2))
    broker.hosted("orders").follow_high_watermark(committed)


async def test_a_leader_sends_readers_to_the_follower_near_to_them(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    await broker.produce("orders", batch("a"), acks=0)
    broker.store.flush()
    broker.follower(2).send("orders", fetch=1)
    sent = await fetch(broker, 0, near(2), max_wait_ms=60_000)
    assert (sent.preferred_read_replica, sent.size, sent.error_code) == (2, 0, errors_pb2.NONE)
    assert (sent.high_watermark, sent.last_stable_offset, sent.log_start_offset) == (1, 1, 0)
    for elsewhere in (None, NOBODY, near(1, 2), near(3)):
        served = await fetch(broker, 0, elsewhere)
        assert (served.preferred_read_replica, served.size > 0) == (-1, True)


async def test_c16_a_follower_serves_what_it_knows_to_be_committed(
    broker: BrokerReplicas,
) -> None:
    await following(broker, committed=2)
    outcome = await fetch(broker, 0, NOBODY)
    assert (outcome.error_code, outcome.high_watermark) == (errors_pb2.NONE, 2)
    stored = broker.store.logs[broker.hosted("orders").tip].batches
    assert b"".join(outcome.chunks) == stored[0][2] + stored[1][2]
    for uncommitted in (2, 3):
        outcome = await fetch(broker, uncommitted, near(1))
        assert (outcome.error_code, outcome.size) == (errors_pb2.NONE, 0)


async def test_c12_who_names_no_rack_reads_from_leaders_alone(broker: BrokerReplicas) -> None:
    await following(broker, committed=2)
    assert (await fetch(broker, 0, None)).error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


async def test_what_a_follower_does_not_have_yet_is_not_out_of_range(
    broker: BrokerReplicas,
) -> None:
    """A consumer would begin again at the end or the start of the log."""
    await following(broker, committed=2)
    assert (await fetch(broker, 4, NOBODY)).error_code == errors_pb2.OFFSET_NOT_AVAILABLE
    assert (await fetch(broker, -1, NOBODY)).error_code == errors_pb2.OFFSET_OUT_OF_RANGE


async def test_a_followers_leader_epoch_is_checked_too(broker: BrokerReplicas) -> None:
    await following(broker, committed=2)
    assert (await fetch(broker, 0, NOBODY, epoch=4)).error_code == errors_pb2.NONE
    old = await fetch(broker, 0, NOBODY, epoch=3)
    assert old.error_code == errors_pb2.FENCED_LEADER_EPOCH
    new = await fetch(broker, 0, NOBODY, epoch=5)
    assert new.error_code == errors_pb2.UNKNOWN_LEADER_EPOCH


async def test_a_reader_at_a_follower_wakes_when_more_is_committed(
    broker: BrokerReplicas,
) -> None:
    await following(broker, committed=2)
    polling = asyncio.ensure_future(fetch(broker, 2, NOBODY, max_wait_ms=60_000))
    await settle()
    assert not polling.done()
    broker.hosted("orders").follow_high_watermark(3)
    assert (await polling).high_watermark == 3


@pytest.mark.parametrize("leader", [1, 3])
async def test_a_reader_at_a_follower_hears_of_another_leader(
    broker: BrokerReplicas, leader: int
) -> None:
    await following(broker, committed=3)
    polling = asyncio.ensure_future(fetch(broker, 3, NOBODY, epoch=4, max_wait_ms=60_000))
    await settle()
    await broker.command("orders", leader=leader, epoch=5, version=2, replicas=(1, 2, 3))
    assert (await polling).error_code == errors_pb2.FENCED_LEADER_EPOCH


async def test_a_stopped_follower_serves_nobody(broker: BrokerReplicas) -> None:
    await following(broker, committed=3)
    assert await broker.stop("orders", epoch=4) == 0
    assert (await fetch(broker, 0, NOBODY)).error_code != errors_pb2.NONE
