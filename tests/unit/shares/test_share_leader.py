"""``ShareLeader`` over logs in memory: what it hands out, when it is answered, and when it ends."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.shard_clock import ShardClock
from quorate.broker.coordinator.share.led_share_partition import ShareLeaderParts
from quorate.broker.coordinator.share.share_leader import (
    ShareFetchParams,
    ShareLeader,
    ShareOutcome,
)
from quorate.broker.coordinator.share.share_questions import Initialize, Read, Write
from quorate.broker.coordinator.share.share_reads import batches_for
from quorate.broker.coordinator.share.state.acknowledgements import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgementBatch,
)
from quorate.broker.coordinator.share.state.acquiring import Wanted
from quorate.broker.coordinator.share.state.dead_records import DeadRecords, DeathReason
from quorate.broker.coordinator.share.state.record_state import AcquiredRecords, RecordState
from quorate.broker.coordinator.share.state.stored_state import UNKNOWN_START, SharePartitionKey
from quorate.broker.quota.client_memory import ResponseLease, ResponseMemory
from quorate.broker.replication.api import FetchOutcome, FetchParams, FetchPartition
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.metadata import topic_id_of
from tests.support.replica_cluster import batch
from tests.support.share_fakes import FakeDeadLetters, FakeGroupConfig, FakeShareStates
from tests.support.virtual_time import pass_time

JOBS = TopicPartition("jobs", 0)
KEY = SharePartitionKey("workers", topic_id_of("jobs"), 0)
A, B = "member-a", "member-b"
LOCK_S = 30.0


class FakeLease:
    """Valid until it is not."""

    is_over = False

    def is_valid(self, tp: TopicPartition, leader_epoch: int) -> bool:
        return not self.is_over


class World:
    """A leader of one partition, with a share coordinator that knows the group."""

    def __init__(self, broker: BrokerReplicas) -> None:
        self.broker = broker
        self.states = FakeShareStates()
        self.lease = FakeLease()
        self.dead_letters = FakeDeadLetters()
        self.memory = ResponseMemory(1 << 20)
        self.leader = ShareLeader(
            ShareLeaderParts(
                FakeGroupConfig(share_auto_offset_reset="earliest"),
                broker.manager,
                self.states,
                ShardClock(self._now_ms, self._now_ms),
                cast("Any", self.lease),
                self.dead_letters,
            )
        )

    @staticmethod
    def _now_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def produce(self, *values: str) -> None:
        await self.broker.produce("jobs", batch(*values), acks=0)
        self.broker.store.flush()

    async def fetch(
        self, member_id: str = A, *, records: int = 100, wait_ms: int = 0, min_bytes: int = 1
    ) -> ShareOutcome:
        room = ResponseLease(self.memory)
        params = ShareFetchParams(wait_ms, min_bytes, 1 << 16, room)
        wanted = Wanted(member_id, records, records, is_exact=True)
        outcomes = await self.leader.fetch({KEY: JOBS}, wanted, params)
        return outcomes.get(KEY, ShareOutcome())

    async def say(self, kind: int, first: int, last: int, member_id: str = A) -> None:
        said = [AcknowledgementBatch(first, last, bytes([kind]))]
        await self.leader.acknowledge(KEY, JOBS, member_id, said)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    broker = await BrokerReplicas().start()
    await broker.lead("jobs", isr=(1,), replicas=(1,))
    world = World(broker)
    await world.states.ask(Initialize(KEY, 0, UNKNOWN_START))
    yield world
    world.leader.close()
    await broker.close()


def taken(first: int, last: int, delivery_count: int = 1) -> list[AcquiredRecords]:
    return [AcquiredRecords(first, last, delivery_count)]


async def test_kip_932_records_go_to_one_member(world: World) -> None:
    await world.produce("a", "b", "c")
    first, second = await world.fetch(A), await world.fetch(B)
    assert list(first.acquired) == taken(0, 2)
    assert first.size
    assert not second.acquired
    assert world.leader.handed_out == 3


async def test_kip_932_where_a_group_begins_is_stored(world: World) -> None:
    await world.produce("a", "b")
    await world.fetch()
    (written,) = [one.write for one in world.states.asked if isinstance(one, Write)]
    assert (written.start_offset, written.batches) == (0, ())


async def test_kip_932_an_acknowledgement_is_answered_once_it_is_stored(world: World) -> None:
    await world.produce("a", "b")
    await world.fetch()
    world.states.gate.clear()
    saying = asyncio.create_task(world.say(ACCEPT, 0, 1))
    await pass_time(1.0)
    assert not saying.done()
    world.states.gate.set()
    await saying
    assert world.states.kept[KEY].start_offset == 2


async def test_kip_932_what_cannot_be_stored_is_refused_and_still_held(world: World) -> None:
    await world.produce("a")
    await world.fetch()
    world.states.refusal = errors_pb2.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError) as refused:
        await world.say(ACCEPT, 0, 0)
    assert refused.value.code == errors_pb2.COORDINATOR_NOT_AVAILABLE
    world.states.refusal = errors_pb2.NONE
    assert not (await world.fetch(B)).acquired
    await world.say(ACCEPT, 0, 0)


async def test_kip_932_a_fenced_leader_forgets_what_it_knew(world: World) -> None:
    await world.produce("a")
    await world.fetch()
    world.states.refusal = errors_pb2.FENCED_STATE_EPOCH
    with pytest.raises(KafkaError) as refused:
        await world.say(ACCEPT, 0, 0)
    assert refused.value.code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    world.states.refusal = errors_pb2.NONE
    assert list((await world.fetch(B)).acquired) == taken(0, 0)
    assert len([one for one in world.states.asked if isinstance(one, Read)]) == 2


async def test_kip_932_a_lock_that_ends_wakes_who_waits(world: World) -> None:
    await world.produce("a")
    await world.fetch(A)
    found = await world.fetch(B, wait_ms=60_000)
    assert list(found.acquired) == taken(0, 0, delivery_count=2)
    assert asyncio.get_running_loop().time() >= LOCK_S
    with pytest.raises(KafkaError) as refused:
        await world.say(ACCEPT, 0, 0, A)
    assert refused.value.code == errors_pb2.INVALID_RECORD_STATE


async def test_kip_1222_a_renewed_lock_ends_later(world: World) -> None:
    await world.produce("a")
    await world.fetch(A)
    await pass_time(LOCK_S - 1)
    await world.say(RENEW, 0, 0)
    await pass_time(2.0)
    assert not (await world.fetch(B)).acquired


async def test_kip_932_one_of_all_who_wait_is_woken_by_a_release(world: World) -> None:
    await world.produce("a")
    await world.fetch(A)
    waiting = [asyncio.create_task(world.fetch(name, wait_ms=20_000)) for name in ("b", "c")]
    await pass_time(0.1)
    await world.say(RELEASE, 0, 0)
    got = await asyncio.gather(*waiting)
    assert [list(one.acquired) for one in got] == [taken(0, 0, 2), []]


async def test_kip_932_who_waits_keeps_its_place_when_another_comes_first(world: World) -> None:
    waiting = [asyncio.create_task(world.fetch(name, wait_ms=60_000)) for name in ("b", "c")]
    await pass_time(0.1)
    (led,) = world.leader
    led.is_reading = True  # Another fetch came first.
    for _ in range(3):
        led.wake()
        await pass_time(0.1)
    await world.produce("x")
    led.end_reading()
    await pass_time(0.1)
    assert [task.done() for task in waiting] == [True, False]
    waiting[1].cancel()


async def test_kip_932_a_fetch_that_comes_later_does_not_read_first(world: World) -> None:
    early = asyncio.create_task(world.fetch("early", records=1, wait_ms=60_000))
    await pass_time(0.1)
    (led,) = world.leader
    late = asyncio.create_task(world.fetch("late", records=1, wait_ms=60_000))
    await pass_time(0.1)
    await world.produce("x", "y")  # It wakes the first, who has not run yet.
    waiting = list(led._waiting)
    assert [led.is_turn_of(one) for one in waiting] == [True, False]
    await pass_time(0.1)
    assert [list(task.result().acquired) for task in (early, late)] == [taken(0, 0), taken(1, 1)]


async def test_kip_932_who_found_too_little_keeps_nobody_waiting(world: World) -> None:
    greedy = asyncio.create_task(world.fetch("greedy", min_bytes=1 << 15, wait_ms=60_000))
    await pass_time(0.1)
    await world.produce("x")
    await pass_time(0.1)
    assert list((await world.fetch("modest", wait_ms=60_000)).acquired) == taken(0, 0)
    assert asyncio.get_running_loop().time() < 1
    greedy.cancel()


async def test_kip_932_news_while_a_fetch_reads_wakes_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    fetch = world.broker.manager.fetch

    async def slow(wants: list[FetchPartition], params: FetchParams) -> list[FetchOutcome]:
        found = await fetch(wants, params)
        await gate.wait()
        return found

    monkeypatch.setattr(world.broker.manager, "fetch", slow)
    first = asyncio.create_task(world.fetch(A, wait_ms=60_000))
    second = asyncio.create_task(world.fetch(B, wait_ms=60_000))
    await pass_time(0.1)
    await world.produce("a")
    gate.set()
    await pass_time(0.1)
    assert sorted(task.done() for task in (first, second)) == [False, True]
    first.cancel()
    second.cancel()


async def test_kip_932_a_member_whose_session_ends_gives_all_back(world: World) -> None:
    await world.produce("a", "b")
    await world.fetch(A)
    world.leader.release("workers", A)
    await pass_time(0.1)
    assert list((await world.fetch(B)).acquired) == taken(0, 1, 2)


async def test_kip_932_a_leader_in_a_later_epoch_hands_out_what_was_not_acknowledged(
    world: World,
) -> None:
    await world.produce("a", "b")
    await world.fetch(A)
    await world.say(ACCEPT, 0, 0)
    await world.broker.lead("jobs", isr=(1,), replicas=(1,), epoch=1, version=1)
    assert list((await world.fetch(B)).acquired) == taken(1, 1)


async def test_kip_932_who_waits_at_a_deposed_leader_is_sent_elsewhere(world: World) -> None:
    waiting = asyncio.create_task(world.fetch(A, wait_ms=60_000))
    await pass_time(1.0)
    await world.broker.command("jobs", leader=2, epoch=1, version=1)
    await pass_time(1.0)
    assert waiting.done()
    assert (await waiting).error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


# -- a leader that may have been replaced ----------------------------------------------------------


async def test_kip_932_nothing_is_handed_out_while_another_broker_may_lead(world: World) -> None:
    await world.produce("a")
    world.lease.is_over = True
    refused = await world.fetch()
    assert refused.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    assert not refused.acquired
    assert not refused.chunks
    world.lease.is_over = False
    assert list((await world.fetch()).acquired) == taken(0, 0)


@pytest.mark.parametrize("kind", [ACCEPT, RENEW])
async def test_kip_932_nothing_is_acknowledged_while_another_broker_may_lead(
    world: World, kind: int
) -> None:
    await world.produce("a")
    await world.fetch()
    world.lease.is_over = True
    with pytest.raises(KafkaError) as refused:
        await world.say(kind, 0, 0)
    assert refused.value.code == errors_pb2.NOT_LEADER_OR_FOLLOWER


# -- forgetting ------------------------------------------------------------------------------------


async def test_kip_932_a_group_that_nobody_fetches_for_is_read_again(world: World) -> None:
    await world.produce("a", "b")
    await world.fetch()
    await world.say(ACCEPT, 0, 0)
    world.leader.forget_group("workers", lambda: True)
    await pass_time(0.1)
    assert not list(world.leader)
    assert list((await world.fetch()).acquired) == taken(1, 1)


async def test_kip_932_a_group_that_is_fetched_for_again_is_kept(world: World) -> None:
    await world.produce("a")
    await world.fetch()
    world.leader.forget_group("workers", lambda: False)
    await pass_time(0.1)
    assert len(list(world.leader)) == 1


async def test_kip_932_a_question_that_fails_once_is_asked_again_by_the_next_fetch(
    world: World,
) -> None:
    await world.produce("a")
    world.states.refusal = errors_pb2.COORDINATOR_LOAD_IN_PROGRESS
    assert (await world.fetch()).error_code == errors_pb2.COORDINATOR_NOT_AVAILABLE
    world.states.refusal = errors_pb2.NONE
    assert list((await world.fetch()).acquired) == taken(0, 0)


async def test_kip_932_too_few_bytes_are_waited_for(world: World) -> None:
    await world.produce("a")
    waiting = asyncio.create_task(world.fetch(wait_ms=10_000, min_bytes=100))
    await pass_time(1.0)
    assert not waiting.done()
    await world.produce("b" * 100)
    assert list((await waiting).acquired) == taken(0, 1)


# -- how much of what was read is looked at --------------------------------------------------------


async def test_kip_932_of_a_long_log_only_the_batches_that_are_needed_are_looked_at(
    world: World,
) -> None:
    for number in range(20):
        await world.produce(str(number))
    want = FetchPartition(JOBS, 0, 1 << 20)
    terms = FetchParams(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20)
    (outcome,) = await world.broker.manager.fetch([want], terms)
    _, read = batches_for(outcome, 5, 3)
    assert [batch.first for batch in read] == list(range(8))
    _, read = batches_for(outcome, 0, 1)
    assert [batch.first for batch in read] == [0]


async def test_kip_932_a_member_gets_records_that_came_back_before_new_ones(world: World) -> None:
    for number in range(6):
        await world.produce(str(number))
    await world.fetch(A, records=3)
    await world.say(RELEASE, 1, 1)
    assert list((await world.fetch(B, records=3)).acquired) == [
        AcquiredRecords(1, 1, 2),
        AcquiredRecords(3, 4, 1),
    ]


# -- dead letters ----------------------------------------------------------------------------------


async def test_kip_1191_a_rejection_is_answered_once_its_dead_letter_is_written(
    world: World,
) -> None:
    world.dead_letters.on = True
    world.dead_letters.gate.clear()
    await world.produce("a", "b")
    await world.fetch()
    rejecting = asyncio.create_task(world.say(REJECT, 0, 0))
    await world.say(ACCEPT, 1, 1)
    await pass_time(1.0)
    assert not rejecting.done()
    assert [one.state for one in world.states.kept[KEY].batches] == [RecordState.ACKNOWLEDGED]
    world.dead_letters.gate.set()
    await rejecting
    assert world.dead_letters.written == [DeadRecords(0, 0, 1, DeathReason.REJECTED)]
    stored = world.states.kept[KEY]
    assert (stored.start_offset, stored.final_records) == (1, 1)


async def test_kip_1191_what_is_accepted_does_not_depend_on_dead_letters(world: World) -> None:
    world.dead_letters.on = True
    world.dead_letters.refusal = errors_pb2.COORDINATOR_NOT_AVAILABLE
    await world.produce("a", "b")
    await world.fetch()
    both = [AcknowledgementBatch(0, 1, bytes([ACCEPT, REJECT]))]
    with pytest.raises(KafkaError) as refused:
        await world.leader.acknowledge(KEY, JOBS, A, both)
    assert refused.value.code == errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert world.states.kept[KEY].start_offset == 1
    assert not world.states.kept[KEY].batches
    world.dead_letters.refusal = errors_pb2.NONE
    await world.say(REJECT, 1, 1)
    assert world.states.kept[KEY].start_offset == 2


async def test_kip_1191_a_record_is_delivered_until_its_dead_letter_can_be_written(
    world: World,
) -> None:
    world.dead_letters.on = True
    world.dead_letters.refusal = errors_pb2.COORDINATOR_NOT_AVAILABLE
    await world.produce("a")
    for delivery in range(1, 8):
        assert list((await world.fetch(wait_ms=60_000)).acquired) == taken(0, 0, delivery)
    world.dead_letters.refusal = errors_pb2.NONE
    assert not (await world.fetch(wait_ms=60_000)).acquired
    assert world.dead_letters.written == [DeadRecords(0, 0, 7, DeathReason.DELIVERED_TOO_OFTEN)]
    assert world.states.kept[KEY].start_offset == 1


async def test_kip_1191_what_goes_wrong_with_a_dead_letter_keeps_no_record_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise IndexError("told to fail")

    world.dead_letters.on = True
    monkeypatch.setattr(world.dead_letters, "write", broken)
    await world.produce("a")
    await world.fetch()
    with pytest.raises(KafkaError):
        await world.say(REJECT, 0, 0)
    monkeypatch.undo()
    await world.say(REJECT, 0, 0)
    assert world.states.kept[KEY].start_offset == 1


async def test_kip_1191_a_lock_ends_by_the_configuration_of_that_time(world: World) -> None:
    await world.produce("a")
    for delivery in range(1, 6):
        await world.fetch(wait_ms=60_000)
        assert (await world.fetch(B)).acquired == (), delivery
    world.dead_letters.on = True
    await pass_time(LOCK_S + 1)
    assert [one.delivery_count for one in world.dead_letters.written] == [5]


# -- turns -----------------------------------------------------------------------------------------


async def test_kip_932_who_wants_more_does_not_keep_records_from_another(world: World) -> None:
    patient = asyncio.create_task(world.fetch(A, wait_ms=60_000, min_bytes=1_000))
    await pass_time(0.1)
    other = asyncio.create_task(world.fetch(B, wait_ms=60_000))
    await pass_time(0.1)
    await world.produce("a")
    await pass_time(1.0)
    assert other.done()
    assert list((await other).acquired) == taken(0, 0)
    patient.cancel()


async def test_kip_932_who_wants_no_record_keeps_none_from_another(world: World) -> None:
    nothing = asyncio.create_task(world.fetch(A, records=0, wait_ms=60_000))
    await pass_time(0.1)
    other = asyncio.create_task(world.fetch(B, wait_ms=60_000))
    await pass_time(0.1)
    await world.produce("a")
    await pass_time(1.0)
    assert other.done()
    assert list((await other).acquired) == taken(0, 0)
    nothing.cancel()
