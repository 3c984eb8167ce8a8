"""What a broker tells of its partitions, as things happen to them."""

import asyncio

from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.log.batches.record_batch import TRANSACTIONAL
from quorate.broker.metrics import replica_metrics as replicas
from quorate.broker.metrics.replica_metrics import replica_samples
from quorate.broker.replication.api import FetchParams, FetchPartition, MarkerEntry, ProduceEntry
from quorate.common.metrics.family import Family
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.log_stores import batch as numbered_batch
from tests.support.replica_cluster import batch


def figure(broker: BrokerReplicas, family: Family, *labels: str) -> object:
    (value,) = (
        sample.value
        for sample in replica_samples(broker.manager.table)
        if sample.family is family and sample.labels == labels
    )
    return value


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_traffic_is_counted_by_topic() -> None:
    broker = await BrokerReplicas().start()
    await broker.lead("orders", isr=(1,), replicas=(1,))
    records = batch("a", "b", "c")
    waiting = asyncio.ensure_future(broker.produce("orders", records))
    await settle()
    broker.store.flush()
    await waiting
    want = FetchPartition(TopicPartition("orders", 0), 0, 1 << 20)
    (fetched,) = await broker.manager.fetch(
        [want], FetchParams(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20)
    )
    assert figure(broker, replicas.BYTES_IN, "orders") == len(records)
    assert figure(broker, replicas.RECORDS_IN, "orders") == 3
    assert figure(broker, replicas.BYTES_OUT, "orders") == fetched.size == len(records)
    assert figure(broker, replicas.LOG_END, "orders", "0") == 3
    assert figure(broker, replicas.HIGH_WATERMARK, "orders", "0") == 3
    assert figure(broker, replicas.LOG_SIZE, "orders", "0") == len(records)
    await broker.close()


async def test_what_is_sent_again_is_not_counted_again() -> None:
    broker = await BrokerReplicas().start()
    await broker.lead("orders", isr=(1,), replicas=(1,))
    for sequence in (0, 2, 0, 2, 4):
        records = numbered_batch(2, producer=(7, 0, sequence))
        await broker.produce("orders", records, acks=0)
    await broker.produce("orders", numbered_batch(producer=(8, 0, 0)), acks=0)
    assert figure(broker, replicas.RECORDS_IN, "orders") == 7
    assert figure(broker, replicas.PRODUCERS) == 2
    await broker.close()


async def test_partitions_in_trouble_are_counted() -> None:
    broker = await BrokerReplicas(min_insync_replicas=2).start()
    await broker.lead("whole")
    await broker.lead("small", isr=(1, 2))
    await broker.lead("refuses", isr=(1,))
    await broker.command("followed", leader=2)
    outcome = await broker.produce("refuses", batch("a"))
    assert outcome.error_code == errors_pb2.NOT_ENOUGH_REPLICAS
    assert figure(broker, replicas.PARTITIONS) == 4
    assert figure(broker, replicas.LEADERS) == 3
    assert figure(broker, replicas.UNDER_REPLICATED) == 2
    assert figure(broker, replicas.AT_MIN_ISR) == 1
    assert figure(broker, replicas.UNDER_MIN_ISR) == 1
    assert figure(broker, replicas.PRODUCES_REFUSED, "refuses") == 1
    assert figure(broker, replicas.PRODUCES_REFUSED, "whole") == 0
    await broker.close()


async def test_an_open_transaction_keeps_readers_of_committed_records_back() -> None:
    broker = await BrokerReplicas().start()
    await broker.lead("orders", isr=(1,), replicas=(1,))
    begun = numbered_batch(2, producer=(7, 0, 0), attributes=TRANSACTIONAL)
    opening = ProduceEntry(TopicPartition("orders", 0), begun, AppendOrigin.TRANSACTIONAL_CLIENT)
    before = ProduceEntry(TopicPartition("orders", 0), numbered_batch(3))
    await broker.manager.produce([before, opening], 0, 0)
    broker.store.flush()
    assert figure(broker, replicas.HIGH_WATERMARK, "orders", "0") == 5
    assert figure(broker, replicas.STABLE_LAG, "orders", "0") == 2
    marker = MarkerEntry(TopicPartition("orders", 0), EndMarker(7, 0, False, 0))
    ending = asyncio.ensure_future(broker.manager.write_markers([marker], 10_000))
    await settle()
    broker.store.flush()
    assert await ending == [errors_pb2.NONE]
    assert figure(broker, replicas.STABLE_LAG, "orders", "0") == 0
    await broker.close()
