"""Share groups: who is a member, and who has which partitions (KIP-932)."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer.consumer_member import Partitions
from quorate.broker.coordinator.groups.consumer.target_assignment import Assigning, Subscriber
from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.groups.share import share_group_log_format as log_format
from quorate.broker.coordinator.groups.share.share_group import ShareGroupState
from quorate.broker.coordinator.groups.share.share_member import (
    ShareAssignment,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    ShareMemberMetadata,
    check_share_heartbeat,
)
from quorate.broker.coordinator.groups.share.share_topics import ShareTopics
from quorate.broker.coordinator.groups.share.simple_assignor import assign_simply
from quorate.broker.coordinator.share.share_questions import Delete, Initialize
from quorate.broker.coordinator.share.state.stored_state import SharePartitionKey
from quorate.broker.kafka.wire.primitives import at_once
from quorate.common.types import TopicId
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.memory_log import Place, join_alone

JOBS, MAILS = TopicId(b"jobs#1".ljust(16)), TopicId(b"mails#2".ljust(16))


def place() -> Place:
    found = Place()
    assert found.topics.create("jobs", 4) == JOBS
    assert found.topics.create("mails", 2) == MAILS
    return found


def join(member_id: str, *topics: str) -> ShareHeartbeat:
    return ShareHeartbeat(member_id, 0, "c", "/h", topic_names=frozenset(topics or ("jobs",)))


async def beat(shard: GroupShard, member_id: str, epoch: int) -> ShareHeartbeatAnswer:
    return await shard.share_heartbeat("g", ShareHeartbeat(member_id, epoch, "c", "/h"))


async def code_of(shard: GroupShard, request: ShareHeartbeat, group_id: str = "g") -> int:
    with pytest.raises(KafkaError) as refused:
        await shard.share_heartbeat(group_id, request)
    return refused.value.code


# -- assignments -----------------------------------------------------------------------------------


@given(
    members=st.integers(1, 9),
    partitions=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    former=st.integers(0, 9),
)
def test_everybody_has_work_and_every_partition_a_member(
    members: int, partitions: list[int], former: int
) -> None:
    ids = {TopicId(bytes([n]) * 16): count for n, count in enumerate(partitions)}
    assignable = {topic_id: frozenset(range(count)) for topic_id, count in ids.items()}

    def assign(count: int, before: dict[str, Partitions]) -> dict[str, Partitions]:
        subscribers = [Subscriber(f"m{n}", None, tuple(ids)) for n in range(count)]
        return at_once(assign_simply(Assigning(subscribers, ids, before), assignable))

    before = assign(former, {}) if former else {}
    target = assign(members, before)
    loads = Counter({name: sum(map(len, own.values())) for name, own in target.items()})
    owners = Counter((t, p) for own in target.values() for t, some in own.items() for p in some)
    assert set(owners) == {(t, p) for t, count in ids.items() for p in range(count)}
    assert set(target) == {f"m{n}" for n in range(members)}
    assert max(loads.values()) - min(loads.values()) <= 1
    assert max(owners.values()) - min(owners.values()) <= 1
    assert assign(members, target) == target, "nothing moves without a reason"


def test_members_get_partitions_of_their_own_topics_alone() -> None:
    subscribers = [Subscriber("a", None, (JOBS,)), Subscriber("b", None, (JOBS, MAILS))]
    assignable = {JOBS: frozenset({0, 1}), MAILS: frozenset({0})}
    target = at_once(assign_simply(Assigning(subscribers, {JOBS: 2, MAILS: 1}, {}), assignable))
    assert target == {
        "a": {JOBS: frozenset({0})},
        "b": {JOBS: frozenset({1}), MAILS: frozenset({0})},
    }


# -- membership ------------------------------------------------------------------------------------


async def test_a_member_that_joins_has_partitions_whose_states_are_there() -> None:
    world = place()
    shard = await world.lead()
    answer = await shard.share_heartbeat("g", join("a"))
    assert answer.assigned == {JOBS: frozenset(range(4))}
    asked = [one for one in world.states.asked if isinstance(one, Initialize)]
    assert [one.key.partition for one in asked] == [0, 1, 2, 3]
    assert (await beat(shard, "a", answer.member_epoch)).assigned is None
    assert shard.share_group("g").state is ShareGroupState.STABLE


async def test_members_share_out_partitions_and_take_over_at_once() -> None:
    shard = await place().lead()
    first = await shard.share_heartbeat("g", join("a"))
    second = await shard.share_heartbeat("g", join("b"))
    assert first.assigned is not None
    assert second.assigned is not None
    assert len(second.assigned[JOBS]) == 2
    now = await beat(shard, "a", first.member_epoch)
    assert now.assigned is not None
    assert now.assigned[JOBS] | second.assigned[JOBS] == frozenset(range(4))
    await shard.share_heartbeat("g", ShareHeartbeat("b", -1, "c", "/h"))
    await pass_time(2)
    now = await beat(shard, "a", now.member_epoch)
    assert now.assigned == {JOBS: frozenset(range(4))}


async def test_a_silent_member_is_removed() -> None:
    shard = await place().lead()
    answer = await shard.share_heartbeat("g", join("a"))
    await pass_time(44)
    answer = await beat(shard, "a", answer.member_epoch)
    await pass_time(46)
    group = shard.share_group("g")
    assert group.is_empty
    assert group.state is ShareGroupState.EMPTY
    gone = ShareHeartbeat("a", answer.member_epoch, "c", "/h")
    assert await code_of(shard, gone) == errors_pb2.UNKNOWN_MEMBER_ID


async def test_the_next_coordinator_has_the_group() -> None:
    world = place()
    shard = await world.lead()
    first = await shard.share_heartbeat("g", join("a"))
    second = await shard.share_heartbeat("g", join("b"))
    shard.end(errors_pb2.NOT_COORDINATOR)
    after = await world.lead()
    group, before = after.share_group("g"), shard.share_group("g")
    assert (group.epoch, group.target_epoch) == (before.epoch, before.target_epoch)
    assert group.topics == before.topics
    assert {m: one.current for m, one in group.members.items()} == {
        m: one.current for m, one in before.members.items()
    }
    assert (await beat(after, "b", second.member_epoch)).assigned is None
    assert (await beat(after, "a", first.member_epoch)).assigned is not None


async def test_epochs_that_nobody_told_are_fenced() -> None:
    shard = await place().lead()
    answer = await shard.share_heartbeat("g", join("a"))
    ahead = ShareHeartbeat("a", answer.member_epoch + 1, "c", "/h")
    assert await code_of(shard, ahead) == errors_pb2.FENCED_MEMBER_EPOCH
    stranger = ShareHeartbeat("x", 3, "c", "/h")
    assert await code_of(shard, stranger) == errors_pb2.UNKNOWN_MEMBER_ID
    assert await code_of(shard, stranger, "h") == errors_pb2.GROUP_ID_NOT_FOUND


async def test_a_group_has_a_limited_number_of_members() -> None:
    world = place()
    shard = await world.lead()
    limits = shard._share_parts.limits_of("g")()
    await shard.share_heartbeat("g", join("a"))
    group = shard.share_group("g")
    group._limits = lambda: limits._replace(max_members=1)
    assert await code_of(shard, join("b")) == errors_pb2.GROUP_MAX_SIZE_REACHED
    await shard.share_heartbeat("g", join("a"))


async def test_partitions_that_come_later_are_assigned() -> None:
    world = place()
    shard = await world.lead()
    answer = await shard.share_heartbeat("g", join("a"))
    world.topics.grow("jobs", 6)
    await shard.topics_changed(["jobs"])
    await pass_time(3)
    answer = await beat(shard, "a", answer.member_epoch)
    assert answer.assigned == {JOBS: frozenset(range(6))}


async def test_without_share_coordinator_a_member_has_nothing_for_now() -> None:
    world = place()
    world.states.refusal = errors_pb2.COORDINATOR_NOT_AVAILABLE
    shard = await world.lead()
    answer = await shard.share_heartbeat("g", join("a"))
    assert answer.assigned == {}
    world.states.refusal = errors_pb2.NONE
    await pass_time(4)
    answer = await beat(shard, "a", answer.member_epoch)
    assert answer.assigned == {JOBS: frozenset(range(4))}


async def test_groups_of_other_protocols_are_no_share_groups() -> None:
    shard = await place().lead()
    await join_alone(shard, "classic")
    assert await code_of(shard, join("a"), "classic") == errors_pb2.GROUP_ID_NOT_FOUND
    await shard.share_heartbeat("g", join("a"))
    assert await shard.commit("g", "a", None, 1, {}) == errors_pb2.GROUP_ID_NOT_FOUND


# -- administration --------------------------------------------------------------------------------


async def test_a_group_with_members_is_neither_reset_nor_deleted() -> None:
    shard = await place().lead()
    await shard.share_heartbeat("g", join("a"))
    key = SharePartitionKey("g", JOBS, 0)
    for change in (
        shard.reset_share_offsets("g", {key: 5}),
        shard.delete_share_offsets("g", [JOBS]),
    ):
        with pytest.raises(KafkaError) as refused:
            await change
        assert refused.value.code == errors_pb2.NON_EMPTY_GROUP
    assert await shard.delete("g") == errors_pb2.NON_EMPTY_GROUP


async def test_a_reset_has_a_later_epoch_than_what_was_before() -> None:
    world = place()
    shard = await world.lead()
    await shard.share_heartbeat("g", join("a"))
    await shard.share_heartbeat("g", ShareHeartbeat("a", -1, "c", "/h"))
    key = SharePartitionKey("g", JOBS, 0)
    before = world.states.kept[key].state_epoch
    assert await shard.reset_share_offsets("g", {key: 5}) == {key: (errors_pb2.NONE, "")}
    state = world.states.kept[key]
    assert state.state_epoch > before
    assert state.start_offset == 5


async def test_a_deleted_group_leaves_no_state_behind() -> None:
    world = place()
    shard = await world.lead()
    await shard.share_heartbeat("g", join("a"))
    await shard.share_heartbeat("g", ShareHeartbeat("a", -1, "c", "/h"))
    world.states.refusal = errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert await shard.delete("g") == errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert shard.share_group("g").topics.deleting == {JOBS}
    world.states.refusal = errors_pb2.NONE
    assert await shard.delete("g") == errors_pb2.NONE
    assert not world.states.kept
    assert any(isinstance(one, Delete) for one in world.states.asked)
    shard = await world.lead()
    assert shard.group("g") is None
    answer = await shard.share_heartbeat("g", join("a"))
    assert answer.assigned is not None


async def test_an_empty_group_is_not_forgotten() -> None:
    world = place()
    shard = await world.lead()
    await shard.share_heartbeat("g", join("a"))
    await shard.share_heartbeat("g", ShareHeartbeat("a", -1, "c", "/h"))
    await shard.expire_offsets(0, lambda group: frozenset())
    assert shard.share_group("g").is_empty
    assert (await world.lead()).share_group("g").is_empty


async def test_topics_that_were_deleted_are_forgotten() -> None:
    world = place()
    shard = await world.lead()
    await shard.share_heartbeat("g", join("a", "jobs", "mails"))
    world.topics.delete("mails")
    await shard.topics_changed(["mails"])
    await asyncio.sleep(0)
    assert set(shard.share_group("g").topics.initialized) == {JOBS}


# -- messages and records --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        ShareHeartbeat("", 0, "c", "h", topic_names=frozenset({"t"})),
        ShareHeartbeat("m" * 37, 1, "c", "h"),
        ShareHeartbeat("m", -2, "c", "h"),
        ShareHeartbeat("m", 0, "c", "h"),
        ShareHeartbeat("m", 1, "c", "h", rack_id=""),
        ShareHeartbeat("m", 1, "c", "h", topic_names=frozenset(map(str, range(10_001)))),
    ],
)
def test_malformed_heartbeats_are_refused(request_: ShareHeartbeat) -> None:
    with pytest.raises(KafkaError) as refused:
        check_share_heartbeat(request_)
    assert refused.value.code == errors_pb2.INVALID_REQUEST


def test_records_are_read_as_they_were_written() -> None:
    topics = ShareTopics(
        {JOBS: "jobs", MAILS: "mails"}, {JOBS: frozenset({3})}, {JOBS: frozenset({0, 1})}
    ).remove([MAILS])
    metadata = ShareMemberMetadata("r", "c", "/h", frozenset({"a", "b"}))
    current = ShareAssignment(3, 2, {JOBS: frozenset({0, 2})})
    for record, value in (
        (log_format.member_record("g", "m", metadata), metadata),
        (log_format.group_record("g", 7, -5), log_format.ShareGroupEpoch(7, -5)),
        (log_format.target_epoch_record("g", 7, 1_000), log_format.ShareTargetEpoch(7)),
        (log_format.target_record("g", "m", current.partitions), dict(current.partitions)),
        (log_format.current_record("g", "m", current), current),
        (log_format.topics_record("g", topics), topics),
    ):
        key = log_format.read_key(record.key)
        assert log_format.is_of_share_group(record.key)
        assert key.group_id == "g"
        assert record.value is not None
        assert log_format.read_value(key.kind, record.value) == value


def test_a_group_record_has_kafkas_bytes() -> None:
    record = log_format.group_record("g", 7, 5)
    assert record.key == b"\0\x0b\0\x01g"
    assert record.value == b"\0\0\0\0\0\x07\0\0\0\0\0\0\0\x05\0"
