"""Transactions at a leader: markers that are committed, and what readers of either kind get."""

import asyncio

import pytest

from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.replication.api import FetchOutcome, Isolation
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.log_stores import batch
from tests.support.record_batches import TRANSACTIONAL
from tests.unit.replication.test_produce import settle

ME, OTHER = 7, 8
ORDERS = TopicPartition("orders", 0)


def sent(sequence: int, producer_id: int = ME, epoch: int = 0) -> bytes:
    producer = (producer_id, epoch, sequence)
    return batch(producer=producer, attributes=TRANSACTIONAL)


async def write(broker: BrokerReplicas, *batches: bytes) -> None:
    for one in batches:
        outcome = await broker.produce(
            "orders", one, acks=0, origin=AppendOrigin.TRANSACTIONAL_CLIENT
        )
        assert outcome.error_code == errors_pb2.NONE, outcome


async def read(broker: BrokerReplicas, offset: int = 0) -> FetchOutcome:
    return await broker.fetch("orders", offset, isolation=Isolation.READ_COMMITTED)


async def end(broker: BrokerReplicas, marker: EndMarker) -> int:
    """By a marker that everybody gets at once."""
    ending = asyncio.ensure_future(broker.end_transaction("orders", marker))
    await settle()
    broker.store.flush()
    return await ending


async def test_kip_98_who_reads_what_was_committed_waits_for_the_marker_to_be_committed(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    await write(broker, batch(), sent(0), batch())
    broker.store.flush()
    broker.follower(2).send("orders", fetch=3, flushed=3)
    assert (await read(broker)).size == len(batch())
    assert (await broker.fetch("orders", 0)).size == 2 * len(batch()) + len(sent(0))
    assert (await read(broker)).last_stable_offset == 1
    assert broker.manager.list_offset(ORDERS, -1).offset == 3
    assert broker.manager.list_offset(ORDERS, -1, -1, Isolation.READ_COMMITTED).offset == 1
    ending = asyncio.ensure_future(broker.end_transaction("orders", EndMarker(ME, 0, True, 0)))
    await settle()
    broker.store.flush()
    await settle()
    assert not ending.done(), "broker 2 does not have it yet"
    assert (await read(broker)).last_stable_offset == 1
    polling = asyncio.ensure_future(
        broker.fetch("orders", 1, isolation=Isolation.READ_COMMITTED, max_wait_ms=60_000)
    )
    await settle()
    assert not polling.done()
    broker.follower(2).send("orders", fetch=4, flushed=4)
    assert await ending == errors_pb2.NONE
    found = await polling
    assert (found.last_stable_offset, found.aborted_transactions) == (4, [])


async def test_kip_98_what_was_aborted_is_told_to_those_alone_who_ask_for_what_counts(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    await write(broker, sent(0), sent(0, OTHER), sent(1))
    assert await end(broker, EndMarker(ME, 0, False, 0)) == errors_pb2.NONE
    assert await end(broker, EndMarker(OTHER, 0, True, 0)) == errors_pb2.NONE
    found = await read(broker)
    assert found.last_stable_offset == found.high_watermark == 5
    assert [one[:2] for one in found.aborted_transactions] == [(ME, 0)]
    assert not (await read(broker, 4)).aborted_transactions
    assert not (await broker.fetch("orders", 0)).aborted_transactions


@pytest.mark.parametrize(
    ("marker", "code"),
    [
        (EndMarker(ME, 0, True, 5), errors_pb2.INVALID_PRODUCER_EPOCH),
        (EndMarker(ME, 1, True, 4), errors_pb2.TRANSACTION_COORDINATOR_FENCED),
    ],
)
async def test_kip_98_whoever_was_replaced_ends_nothing(
    broker: BrokerReplicas, marker: EndMarker, code: int
) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    await write(broker, sent(0, epoch=1))
    assert await end(broker, EndMarker(ME, 1, False, 5)) == errors_pb2.NONE
    assert await broker.end_transaction("orders", marker) == code
    assert broker.hosted("orders").log.log_end_offset == 2


async def test_markers_go_to_the_leader_as_far_as_it_has_enough_replicas(
    broker: BrokerReplicas,
) -> None:
    marker = EndMarker(ME, 0, True, 0)
    code = await broker.end_transaction("nowhere", marker)
    assert code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    await broker.command("orders", leader=2)
    code = await broker.end_transaction("orders", marker)
    assert code == errors_pb2.NOT_LEADER_OR_FOLLOWER


async def test_a_coordinator_hears_of_an_end_before_whoever_sent_it(broker: BrokerReplicas) -> None:
    heard: list[tuple[EndMarker, int]] = []
    await broker.lead("orders", isr=(1,), replicas=(1,))
    await write(broker, sent(0))

    class Listener:
        def on_leadership(self, hosted: HostedPartition) -> None:
            """The leadership does not change."""

        def on_transaction_end(
            self, hosted: HostedPartition, marker: EndMarker, offset: int
        ) -> None:
            heard.append((marker, offset))

    broker.manager.table.watch_leadership("orders", Listener())
    marker = EndMarker(ME, 0, True, 3)
    ending = asyncio.ensure_future(broker.end_transaction("orders", marker))
    await settle()
    assert not heard, "it is not committed yet"
    broker.store.flush()
    assert await ending == errors_pb2.NONE
    assert heard == [(marker, 1)]


async def test_kip_98_a_batch_beside_a_transaction_of_its_producer_is_refused(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    await write(broker, sent(0))
    beside = batch(producer=(ME, 0, 1))
    outcome = await broker.produce("orders", beside, origin=AppendOrigin.TRANSACTIONAL_CLIENT)
    assert outcome.error_code == errors_pb2.INVALID_TXN_STATE
    await end(broker, EndMarker(ME, 0, True, 0))
    await write(broker, beside)
