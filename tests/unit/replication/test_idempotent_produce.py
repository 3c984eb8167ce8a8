"""What an idempotent producer is told when it sends a batch again (KIP-98)."""

import asyncio

import pytest

from quorate.broker.replication.api import ACKS_ALL, ACKS_LEADER
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.log_stores import batch
from tests.support.virtual_time import VirtualTimeLoop, pass_time
from tests.unit.replication.test_produce import settle

FIRST = batch(2, producer=(7, 0, 0))


async def test_kip_98_a_batch_sent_again_waits_until_the_original_is_committed(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    tries = [asyncio.ensure_future(broker.produce("orders", FIRST)) for _ in range(2)]
    await settle()
    broker.store.flush()
    await settle()
    assert not any(one.done() for one in tries), "broker 2 does not have it yet"
    broker.follower(2).send("orders", fetch=2, flushed=2)
    assert [(one.error_code, one.base_offset) for one in await asyncio.gather(*tries)] == [
        (errors_pb2.NONE, 0)
    ] * 2
    assert broker.hosted("orders").log.log_end_offset == 2


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER])
async def test_kip_98_a_batch_sent_again_later_is_answered_at_once(
    broker: BrokerReplicas, acks: int
) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    await broker.produce("orders", FIRST, acks=0)
    await broker.produce("orders", batch(3), acks=0)
    broker.store.flush()
    assert (await broker.produce("orders", FIRST, acks=acks)).base_offset == 0
    assert broker.hosted("orders").log.log_end_offset == 5


async def test_kip_98_a_gap_is_told_and_nothing_is_appended(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    await broker.produce("orders", FIRST, acks=0)
    outcome = await broker.produce("orders", batch(producer=(7, 0, 3)))
    assert outcome.error_code == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert "expected is 2" in str(outcome.error_message)
    assert broker.hosted("orders").log.log_end_offset == 2


def test_silent_producers_are_looked_for_every_ten_minutes() -> None:
    async def two_checks() -> None:
        broker = await BrokerReplicas().start()
        await pass_time(1_201)
        assert len(broker.store.producer_checks) == 2
        await broker.close()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(two_checks())
