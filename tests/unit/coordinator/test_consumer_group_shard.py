"""Consumer groups of one partition of __consumer_offsets: what is answered is in the log."""

import asyncio
from collections.abc import Collection

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.group_keys import (
    CONSUMER_ASSIGNMENT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
)
from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.consumer.consumer_member import Owned
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
)
from quorate.broker.coordinator.groups.consumer_group_work import REGEX_REFRESH_MIN_MS
from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffset
from quorate.broker.coordinator.groups.state.group_effects import Leaver
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.coordinator.memory_log import Place, join_alone

ORDERS = frozenset({"orders"})
TP = TopicPartition("orders", 0)
COMMIT = CommittedOffset(41, 3, "", 1_000)


async def everything(names: Collection[str]) -> Collection[str]:
    """The topics that a client may see which may see all of them."""
    return names


def joins(member_id: str, **others: object) -> HeartbeatRequest:
    request = HeartbeatRequest(
        member_id, 0, "c", "h", rebalance_timeout_ms=60_000, topic_names=ORDERS, claimed={}
    )
    return request._replace(**others)  # type: ignore[arg-type]


def beats(member_id: str, epoch: int, claimed: Owned | None = None) -> HeartbeatRequest:
    has = None if claimed is None else {t: frozenset(own) for t, own in claimed.items()}
    return HeartbeatRequest(member_id, epoch, "c", "h", claimed=has)


def beat(shard: GroupShard, request: HeartbeatRequest) -> "asyncio.Task[HeartbeatAnswer]":
    return asyncio.create_task(shard.consumer_heartbeat("g", request, everything))


def count(answer: HeartbeatAnswer) -> int:
    assert answer.assigned is not None
    return sum(map(len, answer.assigned.values()))


async def refusal(shard: GroupShard, request: HeartbeatRequest) -> int:
    with pytest.raises(KafkaError) as refused:
        await beat(shard, request)
    return refused.value.code


def consumer_group(shard: GroupShard) -> ConsumerGroup:
    group = shard.group("g")
    assert isinstance(group, ConsumerGroup)
    return group


async def assert_as_in_log(place: Place, shard: GroupShard) -> None:
    """Whoever takes over knows the same."""
    before, after = consumer_group(shard), consumer_group(await place.lead())
    assert (after.epoch, after.target_epoch) == (before.epoch, before.target_epoch)
    members = {each.member_id: (each.metadata, each.current) for each in before.members}
    assert {each.member_id: (each.metadata, each.current) for each in after.members} == members


async def test_a_member_that_joins_is_answered_with_its_partitions(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    answer = await beat(shard, joins("a"))
    assert (answer.member_epoch, count(answer)) == (1, 4)
    await assert_as_in_log(place, shard)


async def test_a_target_assignment_is_made_once_for_all_who_join_meanwhile(place: Place) -> None:
    place.topics.create("orders", 40)
    shard = await place.lead()
    await beat(shard, joins("first"))
    begun = asyncio.get_running_loop().time()
    answers = await asyncio.gather(*(beat(shard, joins(f"m{number}")) for number in range(20)))
    assert {answer.member_epoch for answer in answers} == {21}
    assert asyncio.get_running_loop().time() - begun < 1.5, "the interval of assignments is 1 s"
    group = consumer_group(shard)
    assert group.target_epoch == group.epoch == 21
    await assert_as_in_log(place, shard)


async def test_members_that_change_nothing_do_not_wait(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    await beat(shard, joins("a"))
    second = beat(shard, joins("b"))
    await pass_time(0.1)
    assert not second.done()
    assert (await beat(shard, beats("a", 1))).member_epoch == 1
    assert not second.done()
    await second


async def test_nothing_is_answered_before_it_is_in_the_log(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    place.log.is_stuck = True
    first = beat(shard, joins("a"))
    await pass_time(10)
    again = beat(shard, beats("a", 1))
    await pass_time(10)
    assert not first.done()
    assert not again.done(), "nor is what the log already had to take before"
    for each in (first, again):
        each.cancel()


async def test_what_the_log_refused_is_written_with_what_comes_next(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    place.log.refusal = errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert await refusal(shard, joins("a")) == errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert await refusal(shard, joins("a")) == errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert not place.log.entries
    place.log.refusal = 0
    answer = await beat(shard, joins("a"))
    assert count(answer) == 4
    await assert_as_in_log(place, shard)


async def test_a_member_with_too_many_partitions_for_one_record_is_told_so(place: Place) -> None:
    place.topics.create("orders", 4_000)
    place.log.record_bytes_max = 20_000
    shard = await place.lead()
    for request in (joins("a"), joins("a")):
        with pytest.raises(KafkaError, match="let more members share it") as refused:
            await beat(shard, request)
        assert refused.value.code == errors_pb2.UNKNOWN_SERVER_ERROR
        assert "MESSAGE_TOO_LARGE: " in refused.value.message
    place.log.record_bytes_max = 40_000
    assert count(await beat(shard, joins("a"))) == 4_000
    await assert_as_in_log(place, shard)


async def test_the_next_coordinator_goes_on_with_the_same_members(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    first = await beat(shard, joins("a"))
    await beat(shard, joins("b"))
    told = await beat(shard, beats("a", 1, first.assigned))
    assert count(told) == 2
    after = await place.lead()
    given_up = await beat(after, beats("a", 1, told.assigned))
    assert (given_up.member_epoch, given_up.assigned) == (2, None)
    assert count(await beat(after, beats("b", 2, {}))) == 2


async def test_silent_members_are_removed_durably(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    await beat(shard, joins("a"))
    await pass_time(46)
    assert consumer_group(shard).is_empty
    assert await refusal(shard, beats("a", 1)) == errors_pb2.UNKNOWN_MEMBER_ID
    await assert_as_in_log(place, shard)


async def test_topics_that_grow_are_assigned_without_a_clients_doing(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    answer = await beat(shard, joins("a"))
    place.topics.grow("orders", 6)
    await shard.topics_changed(["orders"])
    await pass_time(2)
    assert consumer_group(shard).target_epoch == 2
    assert count(await beat(shard, beats("a", 1, answer.assigned))) == 6


async def test_topics_that_grew_while_nobody_coordinated_are_noticed(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    answer = await beat(shard, joins("a"))
    place.topics.grow("orders", 6)
    after = await place.lead()
    await pass_time(2)
    assert count(await beat(after, beats("a", 1, answer.assigned))) == 6


async def test_a_broker_that_knows_no_topics_yet_does_not_take_them_for_deleted(
    place: Place,
) -> None:
    """It has just restarted, and leads again before a controller has told it of the cluster."""
    place.topics.create("orders", 4)
    shard = await place.lead()
    await beat(shard, joins("a"))
    place.topics.hide()
    shard = place.shard()
    loading = asyncio.create_task(shard.load())
    await pass_time(60)
    assert shard.is_loading
    place.topics.show()
    await loading
    assert (await beat(shard, beats("a", 1))).assigned is None
    assert consumer_group(shard).epoch == 1
    await pass_time(44)
    assert len(consumer_group(shard).members) == 1, "sessions begin when clients are answered again"


async def test_topics_that_match_an_expression_are_assigned_at_once_and_later(
    place: Place,
) -> None:
    place.topics.create("orders-1", 2)
    place.topics.create("others", 2)
    shard = await place.lead()
    answer = await beat(shard, joins("a", topic_names=None, topic_regex="orders-.*"))
    assert count(answer) == 2
    place.topics.create("orders-2", 3)
    await shard.topics_changed(["orders-2"])
    await pass_time(REGEX_REFRESH_MIN_MS / 1000 + 2)
    later = await beat(shard, beats("a", answer.member_epoch, answer.assigned))
    assert count(later) == 5
    await assert_as_in_log(place, shard)


async def test_topics_that_a_client_may_not_see_do_not_match(place: Place) -> None:
    place.topics.create("orders-1", 2)
    place.topics.create("orders-secret", 2)
    shard = await place.lead()

    async def visible(names: Collection[str]) -> Collection[str]:
        return [name for name in names if "secret" not in name]

    request = joins("a", topic_names=None, topic_regex="orders-.*")
    assert count(await shard.consumer_heartbeat("g", request, visible)) == 2


# -- configurations of single groups -------------------------------------------------------------


async def test_a_group_has_the_session_timeout_that_is_set_for_it(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    await beat(shard, joins("a"))
    place.set_for_groups["g", CONSUMER_SESSION_TIMEOUT] = 60_000
    await pass_time(40)
    await beat(shard, beats("a", 1))
    await pass_time(59)
    assert not consumer_group(shard).is_empty, "since its last heartbeat"
    await pass_time(2)
    assert consumer_group(shard).is_empty


async def test_who_was_removed_while_the_log_took_its_time_is_not_told_of_partitions(
    place: Place,
) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    place.log.delay_s = 60.0
    asked = beat(shard, joins("a"))
    await pass_time(50)
    assert consumer_group(shard).is_empty, "its session has ended"
    await pass_time(150)
    with pytest.raises(KafkaError) as refused:
        await asked
    assert refused.value.code == errors_pb2.UNKNOWN_MEMBER_ID


async def test_no_session_ends_while_the_coordinator_may_not_answer(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    await beat(shard, joins("a"))
    await pass_time(40)
    await place.pass_in_doubt(100)
    await pass_time(4)
    assert not consumer_group(shard).is_empty
    await pass_time(2)
    assert consumer_group(shard).is_empty


async def test_a_group_has_the_interval_of_assignments_that_is_set_for_it(place: Place) -> None:
    place.topics.create("orders", 4)
    place.set_for_groups["g", CONSUMER_ASSIGNMENT_INTERVAL] = 10_000
    shard = await place.lead()
    await beat(shard, joins("a"))
    second = beat(shard, joins("b"))
    await pass_time(9)
    assert not second.done()
    await pass_time(2)
    assert (await second).member_epoch == 2


# -- beside classic groups -----------------------------------------------------------------------


async def test_groups_without_members_change_their_protocol(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    member_id = await join_alone(shard)
    assert await shard.commit("g", member_id, None, 1, {TP: COMMIT}) == 0
    shard.leave("g", [Leaver(member_id)])
    assert count(await beat(shard, joins("a"))) == 4
    assert shard.offsets("g").get(TP) == COMMIT
    await beat(shard, HeartbeatRequest("a", -1, "c", "h"))
    await join_alone(shard)
    assert isinstance(shard.group("g"), ClassicGroup)
    after = await place.lead()
    assert isinstance(after.group("g"), ClassicGroup)
    assert after.offsets("g").get(TP) == COMMIT


async def test_requests_of_the_classic_protocol_find_no_member(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    await beat(shard, joins("a"))
    assert shard.heartbeat("g", "a", None, 1) == errors_pb2.UNKNOWN_MEMBER_ID
    codes = shard.leave("g", [Leaver("a"), Leaver("", "nobody")])
    assert codes == [errors_pb2.NONE, errors_pb2.UNKNOWN_MEMBER_ID]
    assert consumer_group(shard).is_empty


async def test_members_commit_in_their_epoch(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    await beat(shard, joins("a"))

    async def commit(epoch: int, *, knows_epochs: bool = True) -> int:
        return await shard.commit("g", "a", None, epoch, {TP: COMMIT}, knows_epochs=knows_epochs)

    assert await commit(1) == 0
    assert await commit(2) == errors_pb2.STALE_MEMBER_EPOCH
    assert await commit(1, knows_epochs=False) == errors_pb2.UNSUPPORTED_VERSION
    assert shard.check_fetch("g", "a", 2) == errors_pb2.STALE_MEMBER_EPOCH
    assert shard.check_fetch("g", "a", 1) == shard.check_fetch("nobody", "a", 1) == 0


async def test_groups_are_deleted_when_their_members_have_left(place: Place) -> None:
    place.topics.create("orders", 4)
    shard = await place.lead()
    await beat(shard, joins("a"))
    assert await shard.delete("g") == errors_pb2.NON_EMPTY_GROUP
    await beat(shard, HeartbeatRequest("a", -1, "c", "h"))
    assert await shard.delete("g") == 0
    assert shard.group("g") is None
    assert (await place.lead()).group("g") is None
