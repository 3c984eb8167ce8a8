"""A coordinator's partition: what it hands over is committed before anybody may act on it."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.shards.coordinator_lease import CoordinatorLease
from quorate.broker.coordinator.shards.coordinator_records import (
    CommitOutcomeUnknown,
    LogBatch,
    LogRecord,
    TransactionEnd,
    TransactionOwner,
    encode_batch,
)
from quorate.broker.coordinator.shards.leadership_watcher import LeadershipWatcher
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.broker.coordinator.shards.partition_coordinator import PartitionCoordinator
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.replication.serving.transaction_verification import (
    TransactionBatch,
)
from quorate.common.types import LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas

TOPIC = "__consumer_offsets"
RECORDS = [LogRecord(b"group", b"offset")]


@pytest.fixture
async def led(broker: BrokerReplicas) -> LedPartition:
    """Broker 1 has taken over one batch, which broker 2, in sync, may not have."""
    await broker.lead(TOPIC, isr=(1, 2), replicas=(1, 2), is_init=True)
    await broker.produce(TOPIC, encode_batch(RECORDS, 0), acks=0)
    broker.store.flush()
    return led_partition(broker)


IsValid = Callable[[TopicPartition, LeaderEpoch], bool]


class FakeLease(NamedTuple):
    """Stands for a session that is known to go on, or not to."""

    is_valid: IsValid


def sure(is_valid: IsValid = lambda *_: True) -> CoordinatorLease:
    fake: Any = FakeLease(is_valid)
    lease: CoordinatorLease = fake
    return lease


def led_partition(
    broker: BrokerReplicas, is_valid: IsValid = lambda *_: True, *, timeout_ms: int = 1
) -> LedPartition:
    return LedPartition(
        broker.hosted(TOPIC),
        broker.manager,
        sure(is_valid),
        timeout_ms=timeout_ms,
        wall_clock_ms=lambda: 0,
    )


async def everything(led: LedPartition) -> list[LogBatch | TransactionEnd]:
    return [entry async for entry in led.replay()]


async def test_a_replay_ends_when_what_it_told_cannot_be_lost(
    broker: BrokerReplicas, led: LedPartition
) -> None:
    replay = asyncio.ensure_future(everything(led))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not replay.done(), "the other replica lacks it: with this leader it would be gone"
    broker.follower(2).send(TOPIC, fetch=1)
    assert await replay == [LogBatch(0, RECORDS)]


async def test_a_replay_ends_with_the_leadership(broker: BrokerReplicas, led: LedPartition) -> None:
    replay = asyncio.ensure_future(everything(led))
    await asyncio.sleep(0)
    await broker.command(TOPIC, leader=2, epoch=1, version=1, isr=(1, 2), replicas=(1, 2))
    assert await replay == [LogBatch(0, RECORDS)]
    assert not led.is_led


async def test_nobody_waits_for_what_is_committed(broker: BrokerReplicas) -> None:
    await broker.lead(TOPIC, isr=(1,), replicas=(1,), is_init=True)
    await broker.produce(TOPIC, encode_batch(RECORDS, 0), acks=0)
    broker.store.flush()
    assert await everything(led_partition(broker)) == [LogBatch(0, RECORDS)]
    assert not broker.hosted(TOPIC).fetch_waiters


class Led(PartitionCoordinator[GroupShard]):
    """Whoever is told what is led."""

    def __init__(self) -> None:
        super().__init__("group", TOPIC, lambda _topic: 1)
        self.logs: dict[int, LedPartition] = {}
        self.resigned = 0
        self.ends: list[tuple[int, TransactionEnd]] = []

    def _new_shard(self, name: str, log: LedPartition) -> GroupShard:
        raise AssertionError("no shard is made")

    def end_transaction(self, partition: int, end: TransactionEnd) -> None:
        self.ends.append((partition, end))

    def lead(self, partition: int, log: LedPartition) -> None:
        self.logs[partition] = log

    def resign(self, partition: int) -> None:
        del self.logs[partition]
        self.resigned += 1


def tell(
    broker: BrokerReplicas,
    coordinator: Led,
) -> None:
    """Have the coordinator told of what the broker leads of the topic from now on."""
    watcher = LeadershipWatcher(
        coordinator, broker.manager, sure(), lambda: 0, append_timeout_ms=1000
    )
    broker.manager.table.watch_leadership(TOPIC, watcher)


WHO = TransactionOwner("x", producer_id=7, producer_epoch=1)


async def test_what_a_transaction_wrote_and_its_end_are_replayed_as_they_were_told(
    broker: BrokerReplicas,
) -> None:
    coordinator = Led()
    tell(broker, coordinator)
    await broker.lead(TOPIC, isr=(1,), replicas=(1,), is_init=True)
    led = coordinator.logs[0]
    assert isinstance(led, LedPartition)
    appended = [
        asyncio.ensure_future(led.append(RECORDS)),
        asyncio.ensure_future(led.append(RECORDS, WHO)),
    ]
    await asyncio.sleep(0)
    broker.store.flush()
    assert await asyncio.gather(*appended) == [0, 1]
    marked = asyncio.ensure_future(broker.end_transaction(TOPIC, EndMarker(*WHO[1:3], True, 3)))
    await asyncio.sleep(0)
    broker.store.flush()
    assert await marked == errors_pb2.NONE
    end = TransactionEnd(2, WHO.producer_id, committed=True)
    assert coordinator.ends == [(0, end)]
    assert await everything(led) == [LogBatch(0, RECORDS), LogBatch(1, RECORDS, 7), end]


async def test_a_fenced_producer_writes_nothing(broker: BrokerReplicas) -> None:
    await broker.lead(TOPIC, isr=(1,), replicas=(1,), is_init=True)
    hosted = broker.hosted(TOPIC)
    led = led_partition(broker)
    marked = asyncio.ensure_future(broker.end_transaction(TOPIC, EndMarker(*WHO[1:3], False, 3)))
    await asyncio.sleep(0)
    broker.store.flush()
    assert await marked == errors_pb2.NONE
    with pytest.raises(KafkaError) as refused:
        await led.append(RECORDS, WHO._replace(producer_epoch=0))
    assert refused.value.code == errors_pb2.INVALID_PRODUCER_EPOCH
    assert hosted.log.log_end_offset == 1


async def test_who_is_not_answered_in_time_knows_where_it_stands(led: LedPartition) -> None:
    with pytest.raises(CommitOutcomeUnknown) as doubt:
        await led.append(RECORDS, WHO)
    assert (doubt.value.code, doubt.value.place) == (errors_pb2.COORDINATOR_NOT_AVAILABLE, 1)


async def test_what_a_full_disk_has_not_written_may_be_committed_later(
    broker: BrokerReplicas, led: LedPartition
) -> None:
    """Room may come back: a coordinator must not take its records for refused."""
    appending = asyncio.ensure_future(led.append(RECORDS))
    await asyncio.sleep(0)
    broker.store.is_full = True
    broker.manager.on_room(False)
    with pytest.raises(CommitOutcomeUnknown) as doubt:
        await appending
    assert doubt.value.code == errors_pb2.NOT_COORDINATOR


async def test_what_is_led_is_surely_led_while_the_broker_may_speak_for_it(
    broker: BrokerReplicas, led: LedPartition
) -> None:
    asked: list[tuple[TopicPartition, int]] = []

    def is_valid(tp: TopicPartition, epoch: int) -> bool:
        asked.append((tp, epoch))
        return False

    assert led.has_valid_lease
    assert not led_partition(broker, is_valid).has_valid_lease
    assert asked == [(TopicPartition(TOPIC, 0), 0)]
    await broker.command(TOPIC, leader=2, epoch=1, version=1, isr=(1, 2), replicas=(1, 2))
    assert not led.has_valid_lease


class Coordinator:
    """A transaction's, which is asked and answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[TransactionBatch] = []
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def verify(self, batch: TransactionBatch) -> None:
        self.asked.append(batch)
        await self.answer


@pytest.fixture
async def verified(broker: BrokerReplicas) -> tuple[LedPartition, Coordinator]:
    """A partition of one replica, where transactions are verified."""
    coordinator = Coordinator()
    await broker.restart(verifier=coordinator)
    await broker.lead(TOPIC, isr=(1,), replicas=(1,), is_init=True)
    return led_partition(broker, timeout_ms=1000), coordinator


async def soon(broker: BrokerReplicas) -> None:
    """What can happen now has happened."""
    for _ in range(5):
        await asyncio.sleep(0)
        broker.store.flush()


async def test_kip_890_offsets_of_a_transaction_wait_for_its_coordinators_word(
    broker: BrokerReplicas, verified: tuple[LedPartition, Coordinator]
) -> None:
    led, coordinator = verified
    sent = [asyncio.ensure_future(led.append(RECORDS, WHO)) for _ in range(2)]
    await soon(broker)
    assert broker.hosted(TOPIC).log.log_end_offset == 0
    assert set(coordinator.asked) == {TransactionBatch(*WHO[:3], TopicPartition(TOPIC, 0))}
    coordinator.asked.clear()
    coordinator.answer.set_result(None)
    await soon(broker)
    assert await asyncio.gather(*sent) == [0, 1]
    again = asyncio.ensure_future(led.append(RECORDS, WHO))
    await soon(broker)
    assert await again == 2
    assert not coordinator.asked, "it has begun here"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errors_pb2.INVALID_TXN_STATE, errors_pb2.INVALID_TXN_STATE),
        (errors_pb2.NOT_ENOUGH_REPLICAS, errors_pb2.COORDINATOR_NOT_AVAILABLE),
        (errors_pb2.NOT_LEADER_OR_FOLLOWER, errors_pb2.NOT_COORDINATOR),
    ],
)
async def test_kip_890_offsets_of_no_open_transaction_are_refused(
    broker: BrokerReplicas, verified: tuple[LedPartition, Coordinator], code: int, told: int
) -> None:
    led, coordinator = verified
    coordinator.answer.set_exception(KafkaError(code, "it is not part of it"))
    with pytest.raises(KafkaError, match="it is not part of it") as refused:
        await led.append(RECORDS, WHO)
    assert refused.value.code == told
    assert broker.hosted(TOPIC).log.log_end_offset == 0


async def test_kip_890_a_transaction_that_ends_while_it_is_asked_about_is_over(
    broker: BrokerReplicas, verified: tuple[LedPartition, Coordinator]
) -> None:
    led, coordinator = verified
    sent = asyncio.ensure_future(led.append(RECORDS, WHO))
    marked = asyncio.ensure_future(broker.end_transaction(TOPIC, EndMarker(*WHO[1:3], True, 3)))
    await soon(broker)
    assert await marked == errors_pb2.NONE
    coordinator.answer.set_result(None)
    with pytest.raises(KafkaError) as refused:
        await sent
    assert refused.value.code == errors_pb2.INVALID_TXN_STATE
    assert broker.hosted(TOPIC).log.log_end_offset == 1


async def test_a_topic_that_was_made_anew_is_not_resigned_with_the_one_before(
    broker: BrokerReplicas,
) -> None:
    """This broker missed the deletion, and is told of both at once: of the new one first."""
    coordinator = Led()
    tell(broker, coordinator)
    await broker.lead(TOPIC, isr=(1,), replicas=(1,), is_init=True)
    before = coordinator.logs[0]
    await broker.lead(TOPIC, isr=(1,), replicas=(1,), is_init=True, generation=1)
    led = coordinator.logs[0]
    assert led.has_valid_lease
    assert not before.has_valid_lease
    assert coordinator.resigned == 1, "what is known of the one before is given up"
    await broker.command(
        TOPIC, leader=2, epoch=1, version=1, isr=(1, 2), replicas=(1, 2), generation=1
    )
    assert not coordinator.logs
