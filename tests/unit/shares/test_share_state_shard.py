"""The share coordinator: what it keeps is what it answered, whoever coordinates next."""

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.share.share_questions import (
    Answer,
    Delete,
    Initialize,
    Question,
    Read,
    Summarize,
    Write,
)
from quorate.broker.coordinator.share.share_state_messages import (
    answer_message,
    answer_of,
    question_message,
    question_of,
)
from quorate.broker.coordinator.share.share_state_shard import ShardSettings, ShareStateShard
from quorate.broker.coordinator.share.state import share_log_format as log_format
from quorate.broker.coordinator.share.state.record_state import RecordState, StateBatch
from quorate.broker.coordinator.share.state.stored_state import (
    SharePartitionKey,
    StateWrite,
    StoredShareState,
    join,
)
from quorate.common.types import TopicId
from quorate_proto.v1 import errors_pb2
from tests.unit.coordinator.memory_log import Led, MemoryLog

TOPIC = TopicId(b"0123456789abcdef")
KEY = SharePartitionKey("g", TOPIC, 3)
SETTINGS = ShardSettings(updates_per_snapshot=3, cold_after_ms=1_000)


class Coordinators:
    """A log, and whoever leads it."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.wall_ms = 1_000_000

    async def lead(self) -> ShareStateShard:
        name = "__share_group_state-0"
        shard = ShareStateShard(name, Led(self.log), SETTINGS, lambda: self.wall_ms)
        await shard.load()
        return shard


def accepted(first: int, last: int, *, epoch: int = 1, start: int = -1) -> Write:
    batch = StateBatch(first, last, RecordState.ACKNOWLEDGED, 1)
    return Write(KEY, StateWrite(1, epoch, start, last - first + 1, [batch]))


async def code_of(shard: ShareStateShard, question: Question) -> int:
    with pytest.raises(KafkaError) as refused:
        await shard.ask(question)
    return refused.value.code


async def begun(world: Coordinators) -> ShareStateShard:
    shard = await world.lead()
    await shard.ask(Initialize(KEY, 1, 0))
    await shard.ask(Read(KEY, 1))
    return shard


async def test_the_next_coordinator_knows_what_was_answered() -> None:
    world = Coordinators()
    shard = await begun(world)
    for number in range(10):
        await shard.ask(accepted(number * 10, number * 10 + 4))
    after = await (await world.lead()).ask(Read(KEY, 2))
    assert [batch[:2] for batch in after.batches] == [(n * 10, n * 10 + 4) for n in range(10)]
    assert after.state_epoch == 1


async def test_leaders_of_earlier_epochs_are_refused() -> None:
    world = Coordinators()
    shard = await begun(world)
    await shard.ask(Read(KEY, 5))
    assert await code_of(shard, accepted(0, 1, epoch=4)) == errors_pb2.FENCED_LEADER_EPOCH
    assert await code_of(shard, Read(KEY, 4)) == errors_pb2.FENCED_LEADER_EPOCH
    shard = await world.lead()
    assert await code_of(shard, accepted(0, 1, epoch=4)) == errors_pb2.FENCED_LEADER_EPOCH


async def test_whoever_does_not_know_of_a_reset_is_refused() -> None:
    shard = await begun(Coordinators())
    await shard.ask(accepted(0, 4))
    await shard.ask(Initialize(KEY, 2, 50))
    assert await code_of(shard, accepted(5, 9)) == errors_pb2.FENCED_STATE_EPOCH
    assert await code_of(shard, Initialize(KEY, 1, 0)) == errors_pb2.FENCED_STATE_EPOCH
    found = await shard.ask(Summarize(KEY))
    assert (found.state_epoch, found.start_offset, found.final_records) == (2, 50, 0)


async def test_what_was_never_initialized_is_neither_read_nor_written() -> None:
    shard = await Coordinators().lead()
    assert await code_of(shard, Read(KEY, 1)) == errors_pb2.INVALID_REQUEST
    assert await code_of(shard, accepted(0, 1)) == errors_pb2.INVALID_REQUEST
    assert (await shard.ask(Summarize(KEY))).start_offset == -1
    assert await shard.ask(Delete(KEY)) == Answer()


async def test_nothing_is_answered_before_the_log_has_it() -> None:
    world = Coordinators()
    shard = await begun(world)
    world.log.is_stuck = True
    writing = asyncio.ensure_future(shard.ask(accepted(0, 4)))
    reading = asyncio.ensure_future(shard.ask(Read(KEY, 1)))
    await asyncio.sleep(0)
    assert not writing.done()
    assert not reading.done()
    shard.end(errors_pb2.NOT_COORDINATOR)
    with pytest.raises(KafkaError):
        await writing
    with pytest.raises(KafkaError):
        await reading


async def test_a_deleted_state_is_gone() -> None:
    world = Coordinators()
    shard = await begun(world)
    await shard.ask(Delete(KEY))
    assert not len(await world.lead())


async def test_only_what_is_needed_is_kept() -> None:
    world = Coordinators()
    shard = await begun(world)
    other = SharePartitionKey("g", TOPIC, 4)
    await shard.ask(Initialize(other, 1, 0))
    for number in range(8):
        await shard.ask(accepted(number, number))
    needed = shard.needed_from(10**9)
    assert needed == next(
        batch.place
        for batch in world.log.batches
        if log_format.read_key(batch.records[0].key).of == other
    )
    world.wall_ms += 2_000
    await shard.refresh_cold()
    cut = shard.needed_from(10**9)
    assert cut > needed
    before = await shard.ask(Read(KEY, 1))
    del world.log.entries[: cut - 1]
    after = await (await world.lead()).ask(Read(KEY, 1))
    assert after == before


async def test_states_of_deleted_topics_are_forgotten() -> None:
    world = Coordinators()
    shard = await begun(world)
    assert shard.topic_ids() == {TOPIC}
    await shard.forget_topics({TOPIC})
    assert not len(await world.lead())


BATCHES = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    st.integers(0, 20),
    st.integers(0, 6),
    st.sampled_from([RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED]),
    st.integers(1, 3),
)


def by_offset(batches: Sequence[StateBatch]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(batch.first, batch.last + 1):
            said = (batch.delivery_count, int(batch.state))
            found[offset] = max(found.get(offset, said), said)
    return found


@given(st.lists(BATCHES, max_size=12))
def test_statements_are_joined_record_by_record(said: list[StateBatch]) -> None:
    joined: list[StateBatch] = []
    for batch in said:
        join(joined, batch)
    assert by_offset(joined) == by_offset(said)
    for one, other in itertools.pairwise(joined):
        assert one.last < other.first
        assert one.last + 1 < other.first or one[2:] != other[2:], "neighbours alike are one"


def test_a_partition_has_the_place_that_kafka_gives_it() -> None:
    topic = TopicId(bytes.fromhex("fb" * 16))
    name = SharePartitionKey("g", topic, 7).coordinated_name
    assert name == "g:-_v7-_v7-_v7-_v7-_v7-w:7"


def test_records_have_kafkas_bytes() -> None:
    state = StoredShareState(5, 1, 2, 3, 4, [StateBatch(6, 7, RecordState.ACKNOWLEDGED, 1)])
    record = log_format.snapshot_record(KEY, state, 9)
    assert record.key == b"\0\0\0\x01g" + TOPIC + b"\0\0\0\x03"
    batch = b"\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07\x02\0\x01\0"
    assert record.value == (
        b"\0\0"
        b"\0\0\0\x03"
        b"\0\0\0\x01"
        b"\0\0\0\x02"
        b"\0\0\0\0\0\0\0\x05"
        b"\0\0\0\0\0\0\0\x09"
        b"\0\0\0\0\0\0\0\x09"
        b"\x02" + batch + b"\x01\0\x04\0\0\0\x04"
    )
    assert record.value is not None
    read = log_format.read_snapshot(record.value)
    assert (read.start_offset, read.final_records, read.batches) == (5, 4, state.batches)
    write = StateWrite(-1, 2, 5, 4, state.batches)
    record = log_format.update_record(KEY, 3, write)
    assert record.value is not None
    assert log_format.read_update(record.value) == write
    assert log_format.read_key(record.key) == (False, KEY)


@pytest.mark.parametrize(
    "question",
    [Initialize(KEY, 1, -1), Read(KEY, 4), accepted(1, 2), Delete(KEY), Summarize(KEY)],
    ids=lambda one: type(one).__name__,
)
def test_questions_and_answers_are_sent_as_they_are(question: Question) -> None:
    sent = question_of(question_message(question))
    assert type(sent) is type(question)
    assert question_message(sent) == question_message(question)
    answer = Answer(0, "", 1, 2, 3, 4, (StateBatch(1, 2, RecordState.ARCHIVED, 5),))
    assert answer_of(answer_message(answer)) == answer
