"""What a partition tells of its producers, for people who look for what hangs."""

import asyncio

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.log.batches.record_batch import TRANSACTIONAL
from quorate.broker.replication.api import ACKS_ALL, MarkerEntry, ProduceEntry
from quorate.broker.replication.serving.producer_states import ProducerState, producer_states
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.log_stores import batch
from tests.unit.replication.test_produce import settle

TP = TopicPartition("orders", 0)


class Partition:
    """Led by broker 1 alone."""

    def __init__(self, broker: BrokerReplicas) -> None:
        self.broker = broker

    async def append(
        self, producer: tuple[int, int, int], timestamp_ms: int, *, transactional: bool = False
    ) -> None:
        records = batch(
            2,
            producer=producer,
            timestamp_ms=timestamp_ms,
            attributes=TRANSACTIONAL if transactional else 0,
        )
        entry = ProduceEntry(TP, records, AppendOrigin.TRANSACTIONAL_CLIENT)
        sent = asyncio.ensure_future(self.broker.manager.produce([entry], ACKS_ALL, 10_000))
        await self._flushed()
        assert (await sent)[0].error_code == 0

    async def end(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        marker = MarkerEntry(TP, EndMarker(producer_id, epoch, False, coordinator_epoch))
        sent = asyncio.ensure_future(self.broker.manager.write_markers([marker], 10_000))
        await self._flushed()
        assert await sent == [0]

    async def _flushed(self) -> None:
        await settle()
        self.broker.store.flush()

    async def states(self, *, only_open: bool = False) -> list[ProducerState]:
        return await producer_states(self.broker.hosted("orders").log, only_open=only_open)


@pytest.fixture
async def partition(broker: BrokerReplicas) -> Partition:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    return Partition(broker)


async def test_idempotent_and_transactional_producers_are_told(partition: Partition) -> None:
    await partition.append((9, 0, 0), 1_000)
    await partition.append((9, 0, 2), 2_000)
    await partition.append((7, 3, 0), 3_000, transactional=True)
    await partition.append((8, 0, 0), 4_000, transactional=True)
    assert await partition.states() == [
        ProducerState(7, 3, 1, 3_000, -1, 4),
        ProducerState(8, 0, 1, 4_000, -1, 6),
        ProducerState(9, 0, 3, 2_000, -1, -1),
    ]
    assert [state.producer_id for state in await partition.states(only_open=True)] == [7, 8]
    assert await partition.broker.manager.producer_states(TP) == await partition.states()


async def test_the_end_of_a_transaction_tells_who_ended_it(partition: Partition) -> None:
    await partition.append((7, 3, 0), 3_000, transactional=True)
    await partition.end(7, 4, coordinator_epoch=12)
    (state,) = await partition.states()
    assert (state.producer_epoch, state.coordinator_epoch) == (4, 12)
    assert state.transaction_start_offset == -1
    assert state.last_sequence == -1, "the epoch is new"
    assert await partition.states(only_open=True) == []


async def test_of_a_deleted_batch_no_time_is_known(partition: Partition) -> None:
    await partition.append((9, 0, 0), 1_000)
    await partition.append((-1, -1, -1), 5_000)
    await partition.broker.hosted("orders").log.start_at(2)
    (state,) = await partition.states()
    assert (state.producer_id, state.last_timestamp_ms) == (9, -1)


async def test_a_partition_that_is_elsewhere_is_not_told_about(partition: Partition) -> None:
    with pytest.raises(KafkaError) as why:
        await partition.broker.manager.producer_states(TopicPartition("other", 0))
    assert why.value.code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_transaction_that_outlives_the_memory_of_its_producer_is_told(
    partition: Partition,
) -> None:
    """After a restart only producers of recent batches are known, but every open transaction."""
    await partition.append((7, 3, 0), 3_000, transactional=True)
    partition.broker.hosted("orders").log.producers.clear()
    expected = [ProducerState(7, 3, -1, 3_000, -1, 0)]
    assert await partition.states(only_open=True) == expected
    assert await partition.states() == expected
