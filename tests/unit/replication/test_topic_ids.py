"""Clients that name a topic by its id never reach another one that was created under its name."""

import asyncio

from quorate.broker.replication.api import FetchOutcome, FetchParams, FetchPartition, ProduceEntry
from quorate.broker.replication.hosting.delayed_fetch import DelayedFetch
from quorate.common.types import TopicId, TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.metadata import topic_id_of
from tests.support.record_batches import CODECS
from tests.support.replica_cluster import batch
from tests.unit.replication.test_validation_queue import Gate, gate, lead, sent, turns

__all__ = ["gate"]

ORDERS = TopicPartition("orders", 0)
BEFORE, AFTER = topic_id_of("orders", 0), topic_id_of("orders", 1)


async def create_again(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,), generation=1, metadata_offset=200)


async def append(broker: BrokerReplicas, topic_id: TopicId, records: bytes) -> tuple[int, int]:
    """The code and the base offset of an append."""
    entry = ProduceEntry(ORDERS, records, topic_id=topic_id)
    (outcome,) = await broker.manager.produce([entry], 0, 60_000)
    return outcome.error_code, outcome.base_offset


async def test_records_for_a_topic_do_not_get_into_its_successor(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    assert await append(broker, BEFORE, batch("old")) == (errors_pb2.NONE, 0)
    assert await append(broker, AFTER, batch("early")) == (errors_pb2.UNKNOWN_TOPIC_ID, -1)
    await create_again(broker)
    assert await append(broker, BEFORE, batch("late")) == (errors_pb2.UNKNOWN_TOPIC_ID, -1)
    assert await append(broker, AFTER, batch("new")) == (errors_pb2.NONE, 0)
    assert broker.hosted("orders").log.log_end_offset == 1


async def test_records_that_are_being_validated_do_not_get_into_the_successor(
    broker: BrokerReplicas, gate: Gate
) -> None:
    await lead(broker, "orders", codec=CODECS["lz4"])
    held = asyncio.ensure_future(append(broker, BEFORE, sent(b"x")))
    await turns()
    await create_again(broker)
    gate.opened.set()
    assert await held == (errors_pb2.UNKNOWN_TOPIC_ID, -1)
    assert broker.hosted("orders").log.log_end_offset == 0


async def test_a_batch_that_was_sent_behind_a_refused_one_does_not_overtake_it(
    broker: BrokerReplicas,
) -> None:
    await create_again(broker)
    first, second = sent(b"1", producer=(7, 0, 4)), sent(b"2", producer=(7, 0, 5))
    assert (await append(broker, BEFORE, first))[0] == errors_pb2.UNKNOWN_TOPIC_ID
    assert (await append(broker, AFTER, second))[0] == errors_pb2.NOT_ENOUGH_REPLICAS
    assert await append(broker, AFTER, first) == (errors_pb2.NONE, 0)
    assert await append(broker, AFTER, second) == (errors_pb2.NONE, 1)


PARAMS = FetchParams(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20)


async def read(broker: BrokerReplicas, topic_id: TopicId) -> FetchOutcome:
    want = FetchPartition(ORDERS, 0, 1 << 20, topic_id=topic_id)
    (outcome,) = await broker.manager.fetch([want], PARAMS)
    return outcome


async def test_a_topic_is_read_by_its_own_id_alone(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    await broker.produce("orders", batch("old"), acks=0)
    broker.store.flush()
    assert (await read(broker, AFTER)).error_code == errors_pb2.INCONSISTENT_TOPIC_ID
    assert (await read(broker, BEFORE)).size > 0
    await create_again(broker)
    await broker.produce("orders", batch("new", "new"), acks=0)
    broker.store.flush()
    assert (await read(broker, BEFORE)).error_code == errors_pb2.INCONSISTENT_TOPIC_ID
    assert (await read(broker, AFTER)).high_watermark == 2


async def test_who_waits_for_records_is_told_when_the_topic_is_created_again(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    poll = DelayedFetch()
    position = poll.add(FetchPartition(ORDERS, 0, 1 << 20, topic_id=BEFORE))
    waiting = asyncio.ensure_future(broker.manager.poll(poll, PARAMS))
    await turns()
    assert not waiting.done()
    await create_again(broker)
    found = await waiting
    assert found[position].error_code == errors_pb2.INCONSISTENT_TOPIC_ID


async def test_a_partition_that_is_not_here_is_unknown_by_id_too(broker: BrokerReplicas) -> None:
    unknown = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert (await read(broker, BEFORE)).error_code == unknown
    assert await append(broker, BEFORE, batch("x")) == (unknown, -1)
