"""Consuming: committed records only, long polls, and offsets (C16, C12, C19)."""

import asyncio

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.quota.client_memory import ResponseLease, ResponseMemory
from quorate.broker.replication.api import (
    FetchOutcome,
    FetchParams,
    FetchPartition,
)
from quorate.common.types import LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas, tip_of
from tests.support.replica_cluster import batch
from tests.unit.replication.test_produce import settle


async def committed(broker: BrokerReplicas, *values: str) -> None:
    """Leads ``orders`` alone with one committed batch per value."""
    await broker.lead("orders", isr=(1,), replicas=(1,))
    for value in values:
        await broker.produce("orders", batch(value), acks=0)
    broker.store.flush()


async def test_c16_between_watermark_and_log_end_a_consumer_gets_nothing(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    for value in ("a", "b", "c"):
        await broker.produce("orders", batch(value), acks=0)
    broker.store.flush()
    broker.follower(2).send("orders", fetch=1)
    below = await broker.fetch("orders", 0)
    assert (below.error_code, below.high_watermark) == (errors_pb2.NONE, 1)
    assert b"".join(below.chunks) == broker.store.logs[broker.hosted("orders").tip].batches[0][2]
    for offset in (1, 2, 3):
        above = await broker.fetch("orders", offset)
        assert (above.error_code, above.size) == (errors_pb2.NONE, 0)


async def test_c16_beyond_the_log_end_is_out_of_range(broker: BrokerReplicas) -> None:
    await committed(broker, "a")
    for offset in (2, -1):
        outcome = await broker.fetch("orders", offset, max_wait_ms=60_000)
        assert outcome.error_code == errors_pb2.OFFSET_OUT_OF_RANGE
        assert outcome.high_watermark == 1


async def test_c16_scenario_16_a_follower_gets_what_a_consumer_does_not(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    await broker.produce("orders", batch("a"), acks=0)
    broker.store.flush()
    stream = broker.follower(2)
    stream.send("orders")
    (partition,), records = stream.receive()
    assert partition.high_watermark == 0
    assert len(records) == partition.size > 0
    assert (await broker.fetch("orders", 0)).size == 0


async def test_c12_a_long_poll_ends_when_something_is_committed(broker: BrokerReplicas) -> None:
    await committed(broker, "a")
    polling = asyncio.ensure_future(broker.fetch("orders", 1, max_wait_ms=60_000))
    await broker.produce("orders", batch("b"), acks=0)
    await settle()
    assert not polling.done()
    broker.store.flush()
    outcome = await polling
    assert outcome.size > 0
    assert outcome.high_watermark == 2
    assert not broker.hosted("orders").fetch_waiters


async def test_c12_a_long_poll_waits_for_min_bytes(broker: BrokerReplicas) -> None:
    await committed(broker, "a")
    one = (await broker.fetch("orders", 0)).size
    polling = asyncio.ensure_future(
        broker.fetch("orders", 0, max_wait_ms=60_000, min_bytes=one + 1)
    )
    await settle()
    assert not polling.done()
    await committed(broker, "b")
    assert (await polling).size == 2 * one


async def test_c12_a_long_poll_ends_when_leadership_does(broker: BrokerReplicas) -> None:
    await committed(broker, "a")
    polling = asyncio.ensure_future(broker.fetch("orders", 1, max_wait_ms=60_000))
    await settle()
    await broker.command("orders", leader=2, epoch=1, version=1)
    assert (await polling).error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


async def test_c12_fetch_at_a_non_leader_is_refused(broker: BrokerReplicas) -> None:
    await broker.command("orders", leader=2)
    outcome = await broker.fetch("orders", 0, max_wait_ms=60_000)
    assert outcome.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    assert (await broker.fetch("nowhere", 0)).error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION


async def test_c19_a_client_that_asks_the_wrong_broker_learns_that_the_leader_is_elsewhere(
    broker: BrokerReplicas,
) -> None:
    """A client that is told that there is no such partition asks the same broker again."""
    broker.partition_counts["moved"] = 2
    elsewhere = (TopicPartition("moved", 1), errors_pb2.NOT_LEADER_OR_FOLLOWER)
    nowhere = (TopicPartition("moved", 2), errors_pb2.UNKNOWN_TOPIC_OR_PARTITION)
    for tp, code in (elsewhere, nowhere):
        assert broker.manager.list_offset(tp, -1).error_code == code
        with pytest.raises(KafkaError) as refused:
            await broker.manager.producer_states(tp)
        assert refused.value.code == code
    moved = errors_pb2.NOT_LEADER_OR_FOLLOWER
    assert (await broker.fetch("moved", 0)).error_code == moved
    assert (await broker.produce("moved", batch("a"))).error_code == moved
    assert (await broker.delete("moved", 0)).error_code == moved


async def test_c12_a_consumers_leader_epoch_is_checked(broker: BrokerReplicas) -> None:
    await broker.lead("orders", epoch=4)
    old = await broker.fetch("orders", 0, epoch=3)
    assert old.error_code == errors_pb2.FENCED_LEADER_EPOCH
    new = await broker.fetch("orders", 0, epoch=5)
    assert new.error_code == errors_pb2.UNKNOWN_LEADER_EPOCH
    assert broker.hosted("orders").leads, "a client's word deposes nobody"


async def test_c16_latest_is_the_watermark_and_earliest_the_log_start(
    broker: BrokerReplicas,
) -> None:
    await committed(broker, "a", "b")
    orders = TopicPartition("orders", 0)
    assert broker.manager.list_offset(orders, -1).offset == 2
    assert broker.manager.list_offset(orders, -2).offset == 0
    assert broker.manager.list_offset(orders, 1_000).offset == 0
    unknown = broker.manager.list_offset(TopicPartition("orders", 7), -1)
    assert unknown.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION


async def test_c16_an_offset_is_told_with_the_leader_epoch_of_its_record(
    broker: BrokerReplicas,
) -> None:
    await committed(broker, "a")
    await broker.lead("orders", epoch=3, version=1, isr=(1,), replicas=(1,))
    orders = TopicPartition("orders", 0)

    def epochs() -> dict[int, int]:
        """Of the latest offset, of the earliest, and of that of a time."""
        asked = (-1, -2, 1_000)
        return {at: broker.manager.list_offset(orders, at).leader_epoch for at in asked}

    assert epochs() == {-1: 3, -2: 0, 1_000: 0}
    await broker.produce("orders", batch("b"), acks=0)
    broker.store.flush()
    await broker.delete("orders", 1)
    assert epochs() == {-1: 3, -2: 3, 1_000: 3}


async def test_c19_a_new_leader_does_not_know_the_latest_offset_yet(
    broker: BrokerReplicas,
) -> None:
    """Its watermark trails its predecessor's: a consumer must not be told to go back."""
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    await broker.produce("orders", batch("a"), acks=0)
    broker.store.flush()
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2), epoch=1, version=1)
    orders = TopicPartition("orders", 0)
    assert broker.manager.list_offset(orders, -1).error_code == errors_pb2.OFFSET_NOT_AVAILABLE
    assert broker.manager.list_offset(orders, -2).error_code == errors_pb2.NONE
    broker.follower(2).send("orders", fetch=1, epoch=1)
    assert broker.manager.list_offset(orders, -1).offset == 1


async def test_c19_a_restarted_leader_does_not_know_the_latest_offset_yet(
    broker: BrokerReplicas,
) -> None:
    """It goes on in its old leader epoch, from a high watermark that was checkpointed long ago."""
    log = broker.store.create(tip_of("orders"), "orders")
    log.append_as_leader(batch("a", "b", "c"), LeaderEpoch(0))
    log.flushed_offset, log.checkpointed_high_watermark = 3, 1
    await broker.restart()
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    orders = TopicPartition("orders", 0)
    assert broker.manager.list_offset(orders, -1).error_code == errors_pb2.OFFSET_NOT_AVAILABLE
    broker.follower(2).send("orders", fetch=3)
    assert broker.manager.list_offset(orders, -1).offset == 3


async def test_c19_a_new_leader_says_what_it_finds_below_its_watermark(
    broker: BrokerReplicas,
) -> None:
    """The first record at or after a time stays the first; "none" might be taken back."""
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    await broker.produce("orders", batch("a", "b"), acks=0)
    broker.store.flush()
    broker.follower(2).send("orders", fetch=2)
    await broker.produce("orders", batch("c"), acks=0)
    broker.store.flush()
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2), epoch=1, version=1)
    orders = TopicPartition("orders", 0)
    log = broker.store.logs[broker.hosted("orders").tip]
    assert broker.manager.list_offset(orders, 1_000).offset == 0
    log.offset_for_timestamp = lambda *_: None  # type: ignore[method-assign]
    unknown = broker.manager.list_offset(orders, 1_000)
    assert (unknown.error_code, unknown.offset) == (errors_pb2.OFFSET_NOT_AVAILABLE, -1)
    broker.follower(2).send("orders", fetch=3, epoch=1)
    assert broker.manager.list_offset(orders, 1_000).error_code == errors_pb2.NONE


async def test_kip320_clients_learn_where_an_epoch_ends(broker: BrokerReplicas) -> None:
    await committed(broker, "a", "b")
    await broker.lead("orders", isr=(1,), replicas=(1,), epoch=3, version=1)
    end = broker.manager.offset_for_leader_epoch(TopicPartition("orders", 0), 3, 2)
    assert (end.error_code, end.leader_epoch, end.end_offset) == (errors_pb2.NONE, 0, 2)


async def test_a_read_keeps_room_for_what_it_found_and_no_more(broker: BrokerReplicas) -> None:
    await committed(broker, "a", "b", "c")
    memory = ResponseMemory(1 << 20)
    lease = ResponseLease(memory)
    (outcome,) = await reading(broker, lease, max_wait_ms=0)
    assert outcome.size > 0
    assert memory.held_bytes == outcome.size


async def test_where_there_is_little_room_a_read_returns_with_what_fits(
    broker: BrokerReplicas,
) -> None:
    await committed(broker, "a", "b", "c")
    size = len(broker.store.logs[broker.hosted("orders").tip].batches[0][2])
    lease = ResponseLease(ResponseMemory(4 * size + 1))
    (outcome,) = await reading(broker, lease, max_wait_ms=60_000)
    assert outcome.size == 2 * size


async def test_where_there_is_no_room_a_read_returns_at_once_with_nothing(
    broker: BrokerReplicas,
) -> None:
    await committed(broker, "a")
    (outcome,) = await reading(broker, ResponseLease(ResponseMemory(0)), max_wait_ms=60_000)
    assert (outcome.error_code, outcome.high_watermark, outcome.size) == (errors_pb2.NONE, 1, 0)


async def reading(
    broker: BrokerReplicas, lease: ResponseLease, max_wait_ms: int
) -> list[FetchOutcome]:
    want = FetchPartition(TopicPartition("orders", 0), 0, 1 << 20)
    return await broker.manager.fetch(
        [want],
        FetchParams(max_wait_ms=max_wait_ms, min_bytes=1 << 19, max_bytes=1 << 20, room=lease),
    )


async def test_old_data_is_waited_for_without_holding_up_others(broker: BrokerReplicas) -> None:
    await committed(broker, "a", "b")
    log = broker.store.logs[broker.hosted("orders").tip]
    log.until_loaded = asyncio.Event()
    fetch = asyncio.ensure_future(broker.fetch("orders", 0, max_wait_ms=0))
    await settle()
    assert not fetch.done()
    assert log.loads == 1
    log.until_loaded.set()
    outcome = await fetch
    assert b"".join(outcome.chunks) == b"".join(data for _, _, data in log.batches)


async def test_what_was_deleted_while_it_was_loaded_is_not_served(broker: BrokerReplicas) -> None:
    await committed(broker, "a", "b")
    log = broker.store.logs[broker.hosted("orders").tip]
    log.until_loaded = asyncio.Event()
    fetch = asyncio.ensure_future(broker.fetch("orders", 0, max_wait_ms=0))
    await settle()
    await log.start_at(1)
    log.until_loaded.set()
    assert (await fetch).error_code == errors_pb2.OFFSET_OUT_OF_RANGE
