"""Producing: what each ``acks`` waits for, and what is refused before anything is appended."""

import asyncio

import pytest

from quorate.broker.replication.api import ProduceEntry
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.replica_cluster import batch


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_c12_acks_all_waits_for_the_followers(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    waiting = asyncio.ensure_future(broker.produce("orders", batch("a", "b")))
    await settle()
    broker.store.flush()
    await settle()
    assert not waiting.done(), "broker 2 does not have it yet"
    broker.follower(2).send("orders", fetch=2, flushed=1)
    await settle()
    assert not waiting.done(), "received is not durable"
    broker.follower(2).send("orders", fetch=2, flushed=2)
    outcome = await waiting
    assert outcome.error_code == errors_pb2.NONE
    assert outcome.base_offset == 0


async def test_c12_acks_1_waits_until_it_is_durable_here(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    waiting = asyncio.ensure_future(broker.produce("orders", batch("a"), acks=1))
    await settle()
    assert not waiting.done()
    broker.store.flush()
    assert (await waiting).base_offset == 0


async def test_c12_acks_0_waits_for_nothing(broker: BrokerReplicas) -> None:
    await broker.lead("orders")
    assert (await broker.produce("orders", batch("a"), acks=0)).base_offset == 0


async def test_c12_requests_started_in_order_are_appended_in_order(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    pipelined = [
        asyncio.ensure_future(broker.produce("orders", batch(str(number)))) for number in range(20)
    ]
    await settle()
    broker.store.flush()
    outcomes = await asyncio.gather(*pipelined)
    assert [outcome.base_offset for outcome in outcomes] == list(range(20))


async def test_c12_one_flush_answers_all_partitions_of_a_request(broker: BrokerReplicas) -> None:
    for topic in ("orders", "bills"):
        await broker.lead(topic, isr=(1,), replicas=(1,))
    entries = [ProduceEntry(TopicPartition(topic, 0), batch("a")) for topic in ("orders", "bills")]
    waiting = asyncio.ensure_future(broker.manager.produce(entries, -1, 60_000))
    await settle()
    broker.store.flush(broker.hosted("orders").tip)
    await settle()
    assert not waiting.done()
    broker.store.flush()
    assert [outcome.error_code for outcome in await waiting] == [errors_pb2.NONE] * 2


async def test_scenario_14_too_few_in_sync_replicas_refuse_acks_all_before_the_append() -> None:
    broker = await BrokerReplicas(min_insync_replicas=2).start()
    await broker.lead("orders", isr=(1,))
    outcome = await broker.produce("orders", batch("a"))
    assert outcome.error_code == errors_pb2.NOT_ENOUGH_REPLICAS
    assert "min.insync.replicas=2" in str(outcome.error_message)
    assert broker.hosted("orders").log.log_end_offset == 0
    assert (await broker.produce("orders", batch("a"), acks=0)).error_code == errors_pb2.NONE
    await broker.close()


async def test_scenario_14_replicas_lost_after_the_append_answer_nobody() -> None:
    """The record is in the log, so it is committed as soon as the ISR has grown again."""
    broker = await BrokerReplicas(min_insync_replicas=2).start()
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    waiting = asyncio.ensure_future(broker.produce("orders", batch("a")))
    await settle()
    broker.store.flush()
    await broker.lead("orders", isr=(1,), replicas=(1, 2), version=1)
    await settle()
    assert not waiting.done()
    broker.follower(2).send("orders", fetch=1, flushed=1)
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2), version=2)
    assert (await waiting).error_code == errors_pb2.NONE
    await broker.close()


async def test_scenario_16_demotion_answers_waiting_produces_with_not_leader(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders")
    waiting = asyncio.ensure_future(broker.produce("orders", batch("a")))
    await settle()
    await broker.command("orders", leader=2, epoch=1, version=1)
    assert (await waiting).error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


async def test_c15_a_newer_epoch_for_the_same_leader_keeps_produces_waiting(
    broker: BrokerReplicas,
) -> None:
    """A follower hears of epoch 1 first; the leader refuses it, is told, and goes on."""
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    waiting = asyncio.ensure_future(broker.produce("orders", batch("a")))
    await settle()
    broker.store.flush()
    stream = broker.follower(2)
    stream.send("orders", fetch=1, epoch=1)
    refused = await broker.produce("orders", batch("b"))
    assert refused.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2), epoch=1, version=1)
    assert not waiting.done()
    stream.send("orders", fetch=1, epoch=1)
    assert (await waiting).error_code == errors_pb2.NONE


async def test_c12_produce_at_a_non_leader_is_refused(broker: BrokerReplicas) -> None:
    unknown = await broker.produce("nowhere", batch("a"))
    assert unknown.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    await broker.command("orders", leader=2)
    outcome = await broker.produce("orders", batch("a"))
    assert outcome.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


async def test_a_corrupt_batch_is_refused_and_nothing_is_appended(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    damaged = bytearray(batch("a"))
    damaged[-1] ^= 1
    outcome = await broker.produce("orders", batch("whole") + bytes(damaged))
    assert outcome.error_code == errors_pb2.CORRUPT_MESSAGE
    assert broker.hosted("orders").log.log_end_offset == 0


async def test_an_acks_value_that_means_nothing_is_refused(broker: BrokerReplicas) -> None:
    outcome = await broker.produce("orders", batch("a"), acks=2)
    assert outcome.error_code == errors_pb2.INVALID_REQUIRED_ACKS


async def test_c12_what_is_not_acknowledged_in_time_is_told_so(broker: BrokerReplicas) -> None:
    await broker.lead("orders")
    outcome = await broker.produce("orders", batch("a"), timeout_ms=0)
    assert outcome.error_code == errors_pb2.REQUEST_TIMED_OUT
    assert outcome.base_offset == -1


async def test_a_failed_disk_answers_every_waiting_produce(broker: BrokerReplicas) -> None:
    await broker.lead("orders")
    waiting = [
        asyncio.ensure_future(broker.produce("orders", batch("a"), acks=acks)) for acks in (-1, 1)
    ]
    await settle()
    broker.manager.on_log_failed(OSError("No space left on device"))
    codes = {outcome.error_code for outcome in await asyncio.gather(*waiting)}
    assert codes == {errors_pb2.KAFKA_STORAGE_ERROR}


@pytest.mark.parametrize("acks", [-1, 1])
async def test_closing_answers_waiting_produces(acks: int) -> None:
    broker = await BrokerReplicas().start()
    await broker.lead("orders")
    waiting = asyncio.ensure_future(broker.produce("orders", batch("a"), acks=acks))
    await settle()
    await broker.close()
    assert (await waiting).error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("acks", [-1, 1])
async def test_c8_a_deletion_answers_waiting_produces(broker: BrokerReplicas, acks: int) -> None:
    await broker.lead("orders")
    waiting = asyncio.ensure_future(broker.produce("orders", batch("a"), acks=acks))
    await settle()
    await broker.stop("orders", epoch=-2, delete=True)
    assert (await waiting).error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
