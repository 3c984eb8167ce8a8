"""Originals are found first: what refuses new batches does not refuse what is in the log.

A producer that hears NOT_ENOUGH_REPLICAS takes its batch for not stored: librdkafka may send the
records in another epoch then. So that code never means "maybe stored".
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.replication.api import ProduceOutcome
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.log_stores import batch
from tests.unit.replication.test_produce import settle

FIRST, SECOND, THIRD = (batch(2, producer=(7, 0, sequence)) for sequence in (0, 2, 4))
WHOLE, ALONE = (1, 2), (1,)


class Flapping:
    """Broker 1, which leads a partition whose ISR must have two members."""

    def __init__(self, broker: BrokerReplicas) -> None:
        self.broker = broker
        self._version = -1

    async def isr(self, *members: int, epoch: int = 0) -> None:
        self._version += 1
        await self.broker.lead(
            "orders", isr=members, replicas=WHOLE, version=self._version, epoch=epoch
        )

    def send(self, records: bytes) -> "asyncio.Future[ProduceOutcome]":
        return asyncio.ensure_future(self.broker.produce("orders", records))

    async def code(self, records: bytes) -> int:
        return (await self.broker.produce("orders", records)).error_code

    def replicate(self) -> None:
        self.broker.store.flush()
        end = self.end
        self.broker.follower(2).send("orders", fetch=end, flushed=end)

    @property
    def end(self) -> int:
        return self.broker.hosted("orders").log.log_end_offset


@pytest.fixture
async def flapping() -> AsyncIterator[Flapping]:
    broker = await BrokerReplicas(min_insync_replicas=2).start()
    leader = Flapping(broker)
    await leader.isr(*WHOLE)
    yield leader
    await broker.close()


async def test_kip_98_a_known_batch_waits_whatever_the_isr_is_now(flapping: Flapping) -> None:
    original = flapping.send(FIRST)
    await settle()
    await flapping.isr(*ALONE)
    again = flapping.send(FIRST)
    await settle()
    assert not original.done()
    assert not again.done()
    await flapping.isr(*WHOLE)
    flapping.replicate()
    outcomes = await asyncio.gather(original, again)
    assert [(one.error_code, one.base_offset) for one in outcomes] == [(errors_pb2.NONE, 0)] * 2
    assert flapping.end == 2


async def test_kip_98_a_committed_batch_is_answered_below_min_insync_replicas(
    flapping: Flapping,
) -> None:
    flapping.send(FIRST)
    await settle()
    flapping.replicate()
    await flapping.isr(*ALONE)
    assert await flapping.code(FIRST) == errors_pb2.NONE
    assert await flapping.code(SECOND) == errors_pb2.NOT_ENOUGH_REPLICAS
    assert flapping.end == 2


async def test_kip_98_a_batch_sent_again_does_not_wait_for_those_behind_it(
    flapping: Flapping,
) -> None:
    """The watermark may stay between them: then only those behind it time out."""
    sent = [flapping.send(one) for one in (FIRST, SECOND, FIRST)]
    await settle()
    flapping.broker.store.flush()
    flapping.broker.follower(2).send("orders", fetch=2, flushed=2)
    await settle()
    assert [one.done() for one in sent] == [True, False, True]
    flapping.replicate()
    assert (await sent[1]).error_code == errors_pb2.NONE


async def test_kip_98_what_times_out_is_possibly_stored(flapping: Flapping) -> None:
    sent = asyncio.ensure_future(flapping.broker.produce("orders", FIRST, timeout_ms=1))
    await settle()
    await flapping.isr(*ALONE)
    outcome = await sent
    assert outcome.error_code == errors_pb2.REQUEST_TIMED_OUT
    assert outcome.was_appended


async def test_kip_98_a_part_of_which_is_stored_is_possibly_stored(flapping: Flapping) -> None:
    flapping.send(FIRST)
    await settle()
    await flapping.isr(*ALONE)
    assert await flapping.code(FIRST + SECOND) == errors_pb2.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert flapping.end == 2


async def test_kip_98_an_old_batch_is_never_called_not_stored(flapping: Flapping) -> None:
    for sequence in range(0, 12, 2):
        flapping.send(batch(2, producer=(7, 0, sequence)))
    await settle()
    await flapping.isr(*ALONE)
    assert await flapping.code(FIRST) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await flapping.code(batch(producer=(7, 0, 12))) == errors_pb2.NOT_ENOUGH_REPLICAS
    assert await flapping.code(batch(producer=(7, 0, 13))) == errors_pb2.NOT_ENOUGH_REPLICAS


async def test_kip_98_a_fenced_producer_is_told_whatever_the_isr_is(flapping: Flapping) -> None:
    flapping.send(batch(producer=(7, 1, 0)))
    await settle()
    await flapping.isr(*ALONE)
    assert await flapping.code(FIRST) == errors_pb2.INVALID_PRODUCER_EPOCH


async def test_kip_98_what_comes_behind_a_refused_batch_is_refused_likewise(
    flapping: Flapping,
) -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER would make librdkafka begin a new epoch everywhere."""
    flapping.send(FIRST)
    await settle()
    await flapping.isr(*ALONE)
    assert await flapping.code(SECOND) == errors_pb2.NOT_ENOUGH_REPLICAS
    await flapping.isr(*WHOLE)
    assert await flapping.code(THIRD) == errors_pb2.NOT_ENOUGH_REPLICAS
    sent = [flapping.send(one) for one in (SECOND, THIRD)]
    await settle()
    flapping.replicate()
    assert [one.base_offset for one in await asyncio.gather(*sent)] == [2, 4]


async def test_kip_98_a_leader_does_not_begin_in_the_middle_of_a_new_producer(
    flapping: Flapping,
) -> None:
    await flapping.isr(*ALONE)
    assert await flapping.code(FIRST) == errors_pb2.NOT_ENOUGH_REPLICAS
    await flapping.isr(*WHOLE)
    assert await flapping.code(SECOND) == errors_pb2.NOT_ENOUGH_REPLICAS
    assert flapping.end == 0


async def test_kip_98_nor_if_it_did_not_lead_yet_when_the_first_came(flapping: Flapping) -> None:
    broker = flapping.broker
    await broker.command("orders", leader=2, epoch=1, version=7, isr=WHOLE, replicas=WHOLE)
    assert await flapping.code(FIRST) == errors_pb2.NOT_LEADER_OR_FOLLOWER
    await broker.lead("orders", epoch=2, version=8, isr=WHOLE, replicas=WHOLE)
    assert await flapping.code(SECOND) == errors_pb2.NOT_ENOUGH_REPLICAS
    flapping.send(FIRST)
    await settle()
    flapping.send(SECOND)
    await settle()
    assert flapping.end == 4


async def test_kip_98_a_new_leader_waits_for_what_it_has_above_its_watermark(
    flapping: Flapping,
) -> None:
    flapping.send(FIRST)
    await settle()
    broker = flapping.broker
    await broker.command("orders", leader=2, epoch=1, version=7, isr=WHOLE, replicas=WHOLE)
    await broker.lead("orders", epoch=2, version=8, isr=ALONE, replicas=WHOLE)
    again = flapping.send(FIRST)
    await settle()
    assert not again.done()
    await broker.lead("orders", epoch=2, version=9, isr=WHOLE, replicas=WHOLE)
    broker.store.flush()
    broker.follower(2).send("orders", fetch=2, flushed=2, epoch=2)
    assert (await again).base_offset == 0


async def test_kip_98_a_limit_that_has_changed_does_not_refuse_what_is_stored(
    flapping: Flapping,
) -> None:
    flapping.send(FIRST)
    await settle()
    flapping.replicate()
    flapping.broker.hosted("orders").log.max_batch_bytes = 10
    assert await flapping.code(FIRST) == errors_pb2.NONE
    assert await flapping.code(SECOND) == errors_pb2.MESSAGE_TOO_LARGE


async def test_kip_98_a_full_disk_refuses_nothing_that_is_stored(
    flapping: Flapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    flapping.send(FIRST)
    await settle()
    flapping.replicate()

    def full(*_: object) -> None:
        raise KafkaError(errors_pb2.KAFKA_STORAGE_ERROR, "the disk is full")

    with monkeypatch.context() as disk:
        disk.setattr(flapping.broker.hosted("orders").log, "append_as_leader", full)
        assert await flapping.code(FIRST) == errors_pb2.NONE
        assert await flapping.code(SECOND) == errors_pb2.KAFKA_STORAGE_ERROR
    assert await flapping.code(THIRD) == errors_pb2.NOT_ENOUGH_REPLICAS, "2 must come first"
