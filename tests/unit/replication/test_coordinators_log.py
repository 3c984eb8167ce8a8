"""A coordinator's partition: what it hands over is committed before anybody may act on it."""

import asyncio

import pytest

from broker.coordinator.appends import LogRecord
from broker.coordinator.batches import encode_batch
from broker.coordinator.led_partition import LedPartition
from tests.support.broker_replicas import BrokerReplicas

TOPIC = "__consumer_offsets"
RECORDS = [LogRecord(b"group", b"offset")]


@pytest.fixture
async def led(broker: BrokerReplicas) -> LedPartition:
    """Broker 1 has taken over one batch, which broker 2, in sync, may not have."""
    await broker.lead(TOPIC, isr=(1, 2), replicas=(1, 2), is_init=True)
    await broker.produce(TOPIC, encode_batch(RECORDS, 0), acks=0)
    broker.store.flush()
    return LedPartition(
        broker.hosted(TOPIC), broker.manager.produce, timeout_ms=1, wall_clock_ms=lambda: 0
    )


async def everything(led: LedPartition) -> list[tuple[int, list[LogRecord]]]:
    return [(place, list(records)) async for place, records in led.replay()]


async def test_a_replay_ends_when_what_it_told_cannot_be_lost(
    broker: BrokerReplicas, led: LedPartition
) -> None:
    replay = asyncio.ensure_future(everything(led))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not replay.done(), "the other replica lacks it: with this leader it would be gone"
    broker.follower(2).send(TOPIC, fetch=1)
    assert await replay == [(0, RECORDS)]


async def test_a_replay_ends_with_the_leadership(broker: BrokerReplicas, led: LedPartition) -> None:
    replay = asyncio.ensure_future(everything(led))
    await asyncio.sleep(0)
    await broker.command(TOPIC, leader=2, epoch=1, version=1, isr=(1, 2), replicas=(1, 2))
    assert await replay == [(0, RECORDS)]
    assert not led.is_led


async def test_nobody_waits_for_what_is_committed(broker: BrokerReplicas) -> None:
    await broker.lead(TOPIC, isr=(1,), replicas=(1,), is_init=True)
    await broker.produce(TOPIC, encode_batch(RECORDS, 0), acks=0)
    broker.store.flush()
    hosted = broker.hosted(TOPIC)
    led = LedPartition(hosted, broker.manager.produce, timeout_ms=1, wall_clock_ms=lambda: 0)
    assert await everything(led) == [(0, RECORDS)]
    assert not hosted.fetch_waiters
