"""Replicas of no use to an ISR: what a broker with a full disk or a damaged log tells and does."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.metrics.replica_metrics import DAMAGED, replica_samples
from quorate.broker.quota.work_turns import WorkTurns
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.fetch_states import followed
from tests.support.record_batches import Record, encode_batch


def batch() -> bytes:
    return encode_batch([Record(0, value=b"v")])


def found_damaged(broker: BrokerReplicas, topic: str, offset: int = 0) -> bool:
    log = broker.hosted(topic).log
    damaged = DamagedBatch(Path("segment"), 0, offset, "its checksum is wrong")
    return broker.manager.note_damage(log, damaged)


def damaged_replicas(broker: BrokerReplicas) -> object:
    (value,) = (s.value for s in replica_samples(broker.manager.table) if s.family is DAMAGED)
    return value


def starts_over(broker: BrokerReplicas, topic: str) -> bool:
    following = followed(broker.hosted(topic))
    return following.start_over


async def troubled(broker: BrokerReplicas) -> set[Path]:
    return await WorkTurns().carry_out(broker.manager.troubled_directories())


async def test_the_search_for_damaged_logs_gives_way_to_others(
    broker: BrokerReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.command("t", leader=2, epoch=0)
    monkeypatch.setattr("quorate.broker.replication.manager.ITEMS_IN_A_STEP", 1)
    steps = broker.manager.troubled_directories()
    next(steps)
    with pytest.raises(StopIteration):
        next(steps)


async def test_a_damaged_log_is_dropped_only_in_an_epoch_in_which_it_is_out_of_the_isr(
    broker: BrokerReplicas,
) -> None:
    await broker.command("t", leader=2, epoch=0)
    assert found_damaged(broker, "t")
    assert broker.manager.damaged() == [broker.hosted("t").tip]
    await broker.command("t", leader=3, epoch=1, version=1, isr=(1, 3))
    assert not starts_over(broker, "t"), "the ISR relies on what it has"
    await broker.command("t", leader=3, epoch=2, version=2, isr=(3,))
    assert starts_over(broker, "t")
    assert broker.manager.damaged() == [], "there is nothing left to ask for"
    await broker.command("t", leader=2, epoch=3, version=3, isr=(3, 2))
    assert starts_over(broker, "t"), "it was not dropped yet"


async def test_a_whole_log_is_never_dropped_for_leaving_the_isr(broker: BrokerReplicas) -> None:
    await broker.command("t", leader=2, epoch=0)
    await broker.command("t", leader=2, epoch=1, version=1, isr=(2, 3))
    assert not starts_over(broker, "t")


async def test_damage_counts_once_and_until_the_log_begins_after_it(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("t", isr=(1,), replicas=(1,))
    for _ in range(3):
        await broker.produce("t", batch(), acks=0)
    broker.store.flush()
    assert found_damaged(broker, "t", 1)
    assert not found_damaged(broker, "t", 0), "it was known"
    assert damaged_replicas(broker) == 1
    assert await troubled(broker)
    assert broker.manager.damaged() == [broker.hosted("t").tip]
    await broker.hosted("t").log.start_at(2)
    assert broker.manager.damaged() == []
    assert damaged_replicas(broker) == 0
    assert not await troubled(broker)
    assert found_damaged(broker, "t", 2), "another one"


async def test_damage_of_a_log_that_was_deleted_is_no_matter(broker: BrokerReplicas) -> None:
    await broker.lead("t")
    gone = broker.hosted("t").log
    await broker.stop("t", epoch=-2, delete=True)
    damaged = DamagedBatch(Path("segment"), 0, 0, "its checksum is wrong")
    assert not broker.manager.note_damage(cast("Any", gone), damaged)


def told_flushed(broker: BrokerReplicas, topic: str) -> int:
    """What its leader would be told now."""
    following = followed(broker.hosted(topic))
    return following.position(can_append=not broker.store.is_full).flushed_offset


async def test_a_full_disk_lets_nobody_rely_on_its_replicas(broker: BrokerReplicas) -> None:
    await broker.command("t", leader=2)
    assert told_flushed(broker, "t") == 0
    broker.store.is_full = True
    broker.manager.on_room(has_room=False)
    assert told_flushed(broker, "t") == -1
    assert await troubled(broker)
    broker.store.is_full = False
    broker.manager.on_room(has_room=True)
    assert told_flushed(broker, "t") == 0


async def test_who_waits_for_a_disk_that_becomes_full_is_told(broker: BrokerReplicas) -> None:
    await broker.lead("t", isr=(1,), replicas=(1,))
    waiting = broker.produce("t", batch(), acks=1)
    task = asyncio.create_task(waiting)
    await asyncio.sleep(0)
    broker.store.is_full = True
    broker.manager.on_room(has_room=False)
    outcome = await task
    assert outcome.error_code == errors_pb2.KAFKA_STORAGE_ERROR
    assert "full" in str(outcome.error_message)
