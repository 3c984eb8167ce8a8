"""DeleteRecords at the leader: what it checks, whom it waits for, and what followers are told."""

import asyncio

import pytest

from quorate.broker.replication.api import EARLIEST_TIMESTAMP_MS
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas, FollowerStream
from tests.support.replica_cluster import batch
from tests.unit.replication.test_produce import settle

ORDERS = TopicPartition("orders", 0)


async def lead_alone(broker: BrokerReplicas, records: int = 4) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    for number in range(records):
        await broker.produce("orders", batch(str(number)), acks=0)
    broker.store.flush()


async def lead_one(broker: BrokerReplicas, records: int = 4) -> FollowerStream:
    """With broker 2 in the ISR, which has everything."""
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    follower = broker.follower(2)
    follower.send("orders")
    for number in range(records):
        await broker.produce("orders", batch(str(number)), acks=0)
    broker.store.flush()
    follower.receive()
    follower.send("orders", fetch=records)
    return follower


def earliest(broker: BrokerReplicas) -> int:
    return broker.manager.list_offset(ORDERS, EARLIEST_TIMESTAMP_MS).offset


@pytest.mark.parametrize(("asked", "begins"), [(3, 3), (-1, 4), (0, 0), (4, 4)])
async def test_d3_records_below_the_offset_are_gone(
    broker: BrokerReplicas, asked: int, begins: int
) -> None:
    await lead_alone(broker)
    outcome = await broker.delete("orders", asked)
    assert (outcome.error_code, outcome.low_watermark) == (errors_pb2.NONE, begins)
    assert earliest(broker) == begins
    if begins:
        gone = await broker.fetch("orders", begins - 1)
        assert gone.error_code == errors_pb2.OFFSET_OUT_OF_RANGE
    assert (await broker.fetch("orders", begins)).error_code == errors_pb2.NONE


async def test_d3_a_log_does_not_begin_earlier_again(broker: BrokerReplicas) -> None:
    await lead_alone(broker)
    await broker.delete("orders", 3)
    outcome = await broker.delete("orders", 1)
    assert (outcome.error_code, outcome.low_watermark) == (errors_pb2.NONE, 3)


@pytest.mark.parametrize("asked", [5, -2])
async def test_d3_only_what_is_committed_can_be_deleted(broker: BrokerReplicas, asked: int) -> None:
    await lead_alone(broker)
    assert (await broker.delete("orders", asked)).error_code == errors_pb2.OFFSET_OUT_OF_RANGE
    assert earliest(broker) == 0


async def test_d3_what_a_follower_lacks_is_not_committed(broker: BrokerReplicas) -> None:
    await lead_one(broker, records=2)
    await broker.produce("orders", batch("new"), acks=0)
    broker.store.flush()
    assert (await broker.delete("orders", 3)).error_code == errors_pb2.OFFSET_OUT_OF_RANGE


async def test_c12_only_the_leader_deletes(broker: BrokerReplicas) -> None:
    assert await broker.command("orders", leader=2) == 0
    assert (await broker.delete("orders", 0)).error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    unknown = await broker.delete("none", 0)
    assert unknown.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION


async def test_d3_the_isr_is_waited_for_and_told_at_once(broker: BrokerReplicas) -> None:
    follower = await lead_one(broker)
    follower.receive()
    follower.send()
    deletion = asyncio.ensure_future(broker.delete("orders", 3))
    await settle()
    assert not deletion.done()
    assert follower.has_news(), "no long poll has to end first"
    ((told,), _) = follower.receive()
    assert told.log_start_offset == 3
    assert not follower.has_news()
    follower.send("orders", fetch=4, start=2)
    await settle()
    assert not deletion.done()
    follower.send("orders", fetch=4, start=3)
    assert (await deletion).low_watermark == 3


async def test_d3_a_retry_does_not_wait_for_who_has_told_already(broker: BrokerReplicas) -> None:
    follower = await lead_one(broker)
    first = asyncio.ensure_future(broker.delete("orders", 3))
    await settle()
    follower.send("orders", fetch=4, start=3)
    await first
    assert (await broker.delete("orders", 3, timeout_ms=0)).low_watermark == 3


async def test_d3_a_follower_that_says_nothing_is_waited_for_until_the_deadline(
    broker: BrokerReplicas,
) -> None:
    await lead_one(broker)
    outcome = await broker.delete("orders", 3, timeout_ms=0)
    assert outcome.error_code == errors_pb2.REQUEST_TIMED_OUT


async def test_c15_a_leader_that_is_deposed_meanwhile_says_so(broker: BrokerReplicas) -> None:
    await lead_one(broker)
    deletion = asyncio.ensure_future(broker.delete("orders", 3))
    await settle()
    assert await broker.command("orders", leader=2, epoch=1, version=1, isr=(2, 1)) == 0
    assert (await deletion).error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


async def test_d3_a_position_below_the_new_start_is_sent_to_the_start(
    broker: BrokerReplicas,
) -> None:
    await lead_alone(broker)
    await broker.command("orders", leader=1, version=1, isr=(1,), replicas=(1, 3))
    late = broker.follower(3)
    late.send("orders", fetch=1)
    await broker.delete("orders", 3)
    late.receive()
    assert late.has_news()
    late.send()
    (refusal,), _ = late.receive()
    assert (refusal.error_code, refusal.log_start_offset) == (errors_pb2.OFFSET_OUT_OF_RANGE, 3)


async def test_d3_a_follower_that_comes_back_has_told_with_its_first_word(
    broker: BrokerReplicas,
) -> None:
    (await lead_one(broker)).session.close()
    broker.follower(2).send("orders", fetch=4, start=3)
    assert (await broker.delete("orders", 3, timeout_ms=0)).low_watermark == 3
