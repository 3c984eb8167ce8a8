"""A coordinator's partition: what it hands over is committed before anybody may act on it."""

import asyncio
from collections.abc import Callable

import pytest

from broker.coordinator.appends import InDoubt
from broker.coordinator.batches import encode_batch
from broker.coordinator.led_partition import LedPartition, told_of_leaderships
from broker.coordinator.led_shards import LedLog
from broker.coordinator.log_entries import LogBatch, LogRecord, TransactionEnd, TransactionOwner
from broker.coordinator.sure_leadership import MaySpeak
from broker.errors import KafkaError
from broker.log.control_batches import EndMarker
from broker.replication.verification import TransactionBatch, Verification
from metadata_log.types import TopicPartition
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


def led_partition(broker: BrokerReplicas, may_speak: MaySpeak = lambda *_: True) -> LedPartition:
    hosted, produce = broker.hosted(TOPIC), broker.manager.produce
    return LedPartition(hosted, produce, may_speak, timeout_ms=1, wall_clock_ms=lambda: 0)


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


class Led:
    """Whoever is told what is led."""

    def __init__(self) -> None:
        self.logs: dict[int, LedLog] = {}
        self.resigned = 0

    def lead(self, partition: int, log: LedLog) -> None:
        self.logs[partition] = log

    def resign(self, partition: int) -> None:
        del self.logs[partition]
        self.resigned += 1


def tell(
    broker: BrokerReplicas,
    coordinator: Led,
    on_transaction_end: Callable[[int, TransactionEnd], None] | None = None,
) -> None:
    """Have the coordinator told of what the broker leads of the topic from now on."""
    broker.manager.table.on_leadership[TOPIC] = told_of_leaderships(
        coordinator,
        broker.manager.produce,
        lambda: 0,
        lambda *_: True,
        append_timeout_ms=1000,
        on_transaction_end=on_transaction_end,
    )


WHO = TransactionOwner("x", producer_id=7, producer_epoch=1)


async def test_what_a_transaction_wrote_and_its_end_are_replayed_as_they_were_told(
    broker: BrokerReplicas,
) -> None:
    ends: list[tuple[int, TransactionEnd]] = []
    coordinator = Led()
    tell(broker, coordinator, lambda partition, end: ends.append((partition, end)))
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
    marked = asyncio.ensure_future(broker.end_transaction(TOPIC, EndMarker(*WHO[1:], True, 3)))
    await asyncio.sleep(0)
    broker.store.flush()
    assert await marked == errors_pb2.NONE
    end = TransactionEnd(2, WHO.producer_id, committed=True)
    assert ends == [(0, end)]
    assert await everything(led) == [LogBatch(0, RECORDS), LogBatch(1, RECORDS, 7), end]


async def test_a_fenced_producer_writes_nothing(broker: BrokerReplicas) -> None:
    await broker.lead(TOPIC, isr=(1,), replicas=(1,), is_init=True)
    hosted = broker.hosted(TOPIC)
    led = led_partition(broker)
    marked = asyncio.ensure_future(broker.end_transaction(TOPIC, EndMarker(*WHO[1:], False, 3)))
    await asyncio.sleep(0)
    broker.store.flush()
    assert await marked == errors_pb2.NONE
    with pytest.raises(KafkaError) as refused:
        await led.append(RECORDS, WHO._replace(producer_epoch=0))
    assert refused.value.code == errors_pb2.INVALID_PRODUCER_EPOCH
    assert hosted.log.log_end_offset == 1


async def test_who_is_not_answered_in_time_knows_where_it_stands(led: LedPartition) -> None:
    with pytest.raises(InDoubt) as doubt:
        await led.append(RECORDS, WHO)
    assert (doubt.value.code, doubt.value.place) == (errors_pb2.COORDINATOR_NOT_AVAILABLE, 1)


async def test_what_is_led_is_surely_led_while_the_broker_may_speak_for_it(
    broker: BrokerReplicas, led: LedPartition
) -> None:
    asked: list[tuple[TopicPartition, int]] = []

    def may_speak(tp: TopicPartition, epoch: int) -> bool:
        asked.append((tp, epoch))
        return False

    assert led.is_surely_led
    assert not led_partition(broker, may_speak).is_surely_led
    assert asked == [(TopicPartition(TOPIC, 0), 0)]
    await broker.command(TOPIC, leader=2, epoch=1, version=1, isr=(1, 2), replicas=(1, 2))
    assert not led.is_surely_led


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
    await broker.lead(TOPIC, isr=(1,), replicas=(1,), is_init=True)
    coordinator = Coordinator()
    broker.manager.verify_transactions(Verification(coordinator.verify))
    led = LedPartition(
        broker.hosted(TOPIC),
        broker.manager.produce,
        lambda _tp, _epoch: True,
        timeout_ms=1000,
        wall_clock_ms=lambda: 0,
        verify=broker.manager.verify_transaction,
    )
    return led, coordinator


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
    assert set(coordinator.asked) == {TransactionBatch(*WHO, TopicPartition(TOPIC, 0))}
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
    marked = asyncio.ensure_future(broker.end_transaction(TOPIC, EndMarker(*WHO[1:], True, 3)))
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
    assert led.is_surely_led
    assert not before.is_surely_led
    assert coordinator.resigned == 1, "what is known of the one before is given up"
    await broker.command(
        TOPIC, leader=2, epoch=1, version=1, isr=(1, 2), replicas=(1, 2), generation=1
    )
    assert not coordinator.logs
