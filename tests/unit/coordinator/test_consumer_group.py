"""Rules of consumer groups (KIP-848), event by event."""

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.common.regular_expressions import REGEX_LENGTH_MAX
from quorate.broker.coordinator.groups.consumer.consumer_member import MemberState
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import (
    NAMES_LENGTH_MAX,
    NAMES_MAX,
    HeartbeatRequest,
    check_heartbeat,
)
from quorate.broker.coordinator.groups.consumer.regular_expressions import (
    ResolvedRegex,
    matching_topics,
)
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.unit.coordinator.consumer_world import (
    REBALANCE_MS,
    SESSION_MS,
    Client,
    World,
    by_topic,
    carried_out,
)

ORDERS = frozenset({"orders"})


@pytest.fixture
def world() -> World:
    world = World()
    world.topics.create("orders", 4)
    return world


def joined(world: World, member_id: str, instance_id: str | None = None) -> Client:
    client = Client(world, member_id, ORDERS, instance_id)
    assert client.heartbeat() == 0
    return client


def state(world: World) -> str:
    return world.group.state.value


def refusal(world: World, request: HeartbeatRequest) -> int:
    with pytest.raises(KafkaError) as refused:
        world.heartbeat(request)
    return refused.value.code


def beat(client: Client, epoch: int, **others: object) -> HeartbeatRequest:
    request = HeartbeatRequest(client.member_id, epoch, "c", "h", client.instance_id)
    return request._replace(**others)  # type: ignore[arg-type]


# -- from one to two members ---------------------------------------------------------------------


def test_a_member_that_joins_gets_what_is_free_at_once(world: World) -> None:
    client = joined(world, "a")
    assert len(client.has) == 4
    assert client.epoch == world.group.epoch == world.group.target_epoch == 1
    assert state(world) == "Stable"


def test_a_second_member_waits_until_the_first_has_given_up_its_part(world: World) -> None:
    first = joined(world, "a")
    second = joined(world, "b")
    assert (second.epoch, second.has) == (2, set())
    assert state(world) == "Reconciling"
    first.heartbeat()
    assert len(first.told) == 2, "the first one is asked to give up two"
    assert (first.epoch, len(first.has)) == (1, 4)
    second.heartbeat()
    assert not second.has, "nothing is given to the second one before"
    first.do_as_told()
    first.heartbeat()
    assert (first.epoch, len(first.has)) == (2, 2)
    second.heartbeat()
    assert len(second.has) == 2
    assert state(world) == "Stable"


def test_most_members_do_not_notice_that_another_one_joins(world: World) -> None:
    world.topics.grow("orders", 40)
    members = [joined(world, f"m{number}") for number in range(10)]
    for _ in range(3):
        for member in members:
            member.do_as_told()
            member.heartbeat()
    before = [set(member.has) for member in members]
    joined(world, "another")
    for member in members:
        member.heartbeat()
        member.do_as_told()
    lost = [len(had - member.has) for had, member in zip(before, members, strict=True)]
    assert sum(lost) == 40 // 11
    assert max(lost) == 1


def test_a_member_does_not_stop_because_two_others_change_at_once(world: World) -> None:
    first, second = joined(world, "a"), joined(world, "b")
    for client in (first, second, first, second):
        client.heartbeat()
        client.do_as_told()
    had = set(second.has)
    assert len(had) == 2
    first.leave()
    world.make_target()
    joined(world, "c")
    second.heartbeat()
    assert second.told == had, "it keeps what it has, and not what it was to get meanwhile"


# -- epochs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [2, 7])
def test_a_member_in_a_later_epoch_is_fenced(world: World, epoch: int) -> None:
    client = joined(world, "a")
    request = beat(client, epoch, claimed=by_topic(client.has))
    assert refusal(world, request) == errors_pb2.FENCED_MEMBER_EPOCH


def test_a_member_that_missed_an_answer_may_be_one_epoch_behind(world: World) -> None:
    client = joined(world, "a")
    world.topics.grow("orders", 6)
    world.topics_changed()
    had = by_topic(client.has)
    client.heartbeat(lose_answer=True)
    assert client.epoch == 1
    assert world.group.members.get("a").current.epoch == 2  # type: ignore[union-attr]
    answer = world.heartbeat(beat(client, 1, claimed=had))
    assert answer.member_epoch == 2
    assert answer.assigned is not None, "it has not heard yet of what it has"
    assert sum(map(len, answer.assigned.values())) == 6
    assert world.heartbeat(beat(client, 2)).assigned is None


def test_a_member_that_is_behind_and_has_what_is_not_its_own_is_fenced(world: World) -> None:
    first, second = joined(world, "a"), joined(world, "b")
    first.heartbeat()
    had = by_topic(first.has)
    first.do_as_told()
    first.heartbeat()
    second.heartbeat()
    assert first.epoch == 2
    assert refusal(world, beat(first, 1, claimed=had)) == errors_pb2.FENCED_MEMBER_EPOCH
    assert refusal(world, beat(first, 1)) == errors_pb2.FENCED_MEMBER_EPOCH
    assert world.heartbeat(beat(first, 1, claimed=by_topic(first.has))).member_epoch == 2


def test_who_is_no_member_must_join(world: World) -> None:
    joined(world, "a")
    request = HeartbeatRequest("stranger", 1, "c", "h")
    assert refusal(world, request) == errors_pb2.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_in() -> None:
    world = World()
    world.group.limits = world.limits._replace(max_members=1)
    first = joined(world, "a")
    assert Client(world, "b", ORDERS).heartbeat() == errors_pb2.GROUP_MAX_SIZE_REACHED
    assert first.heartbeat() == 0


def test_what_an_overtaken_heartbeat_claims_is_not_believed(world: World) -> None:
    first, _second = joined(world, "a"), joined(world, "b")
    request = beat(first, 1, claimed={})
    subscribed = world.group.subscribe(request, 0)
    seen = subscribed.member.current
    first.heartbeat()
    assert first.told < first.has
    answer, records = world.group.reconcile(subscribed.member, request, seen, 0, has_changed=False)
    assert not records
    assert answer.member_epoch == 1
    assert subscribed.member.current.revoking, "the first member still has them"


# -- sessions ------------------------------------------------------------------------------------


def test_a_silent_member_is_removed_and_its_partitions_are_free(world: World) -> None:
    silent, alive = joined(world, "a"), joined(world, "b")
    world.pass_time(SESSION_MS - 1)
    alive.heartbeat()
    world.pass_time(2)
    assert silent.member_id not in world.group.members
    alive.heartbeat()
    assert len(alive.has) == 4


def test_a_member_that_does_not_give_up_partitions_is_removed(world: World) -> None:
    first, second = joined(world, "a"), joined(world, "b")
    first.heartbeat()
    for _ in range(REBALANCE_MS // 10_000):
        world.pass_time(10_001)
        first.heartbeat()
        second.heartbeat()
    assert "a" not in world.group.members
    second.heartbeat()
    assert len(second.has) == 4


def test_the_next_coordinator_gives_members_their_full_time(world: World) -> None:
    client = joined(world, "a")
    world.pass_time(SESSION_MS - 1)
    world.fail_over()
    world.pass_time(SESSION_MS - 1)
    assert client.heartbeat() == 0
    assert len(client.has) == 4


# -- static members (KIP-345) --------------------------------------------------------------------


def test_a_static_member_comes_back_to_its_partitions(world: World) -> None:
    first, other = joined(world, "a", "i"), joined(world, "b")
    for _ in range(2):
        first.heartbeat()
        first.do_as_told()
        other.heartbeat()
    first.heartbeat()
    had, epoch = set(first.has), world.group.epoch
    first.leave(for_a_while=True)
    other.heartbeat()
    assert len(other.has) == 2
    again = joined(world, "a2", "i")
    assert again.has == had
    assert world.group.epoch == epoch, "nobody else notices"


def test_a_target_that_names_a_static_member_by_its_former_id_is_dropped(world: World) -> None:
    first, other = joined(world, "a", "i"), joined(world, "b")
    first.leave(for_a_while=True)
    world.topics.grow("orders", 8)
    world.topics_changed()
    made = carried_out(world.group.new_target(world.assign))
    subscribed = world.group.subscribe(
        HeartbeatRequest("a2", 0, "c", "h", "i", None, 1, ORDERS, claimed={}), 0
    )
    assert subscribed.group_epoch is None
    assert not world.group.take_target(made, 1)
    world.make_target()
    (of_orders,) = world.group.target_of("a2").values()
    assert len(of_orders) == 4
    assert other.heartbeat() == 0


def test_an_instance_id_in_use_is_not_given_to_another(world: World) -> None:
    first = joined(world, "a", "i")
    other = Client(world, "b", ORDERS, "i")
    assert other.heartbeat() == errors_pb2.UNRELEASED_INSTANCE_ID
    first.leave(for_a_while=True)
    assert other.heartbeat() == 0
    assert refusal(world, beat(first, 1)) == errors_pb2.FENCED_INSTANCE_ID
    with pytest.raises(KafkaError) as refused:
        first.leave()
    assert refused.value.code == errors_pb2.FENCED_INSTANCE_ID


def test_a_static_member_whose_first_answer_was_lost_joins_again(world: World) -> None:
    client = Client(world, "a", ORDERS, "i")
    client.heartbeat(lose_answer=True)
    assert client.heartbeat() == 0
    assert len(client.has) == 4


def test_a_static_member_that_does_not_come_back_is_removed(world: World) -> None:
    first, other = joined(world, "a", "i"), joined(world, "b")
    first.leave(for_a_while=True)
    world.pass_time(SESSION_MS - 1)
    other.heartbeat()
    world.pass_time(2)
    other.heartbeat()
    assert len(other.has) == 4


# -- topics and regular expressions --------------------------------------------------------------


def test_changes_of_other_topics_are_none_of_the_groups(world: World) -> None:
    joined(world, "a")
    world.topics.create("others", 1)
    assert not world.group.topics_changed()
    world.topics.grow("orders", 5)
    assert world.group.topics_changed()
    assert world.group.epoch == 2


def test_a_topic_that_is_made_anew_is_another_topic(world: World) -> None:
    client = joined(world, "a")
    before = set(client.has)
    world.topics.delete("orders")
    world.topics.create("orders", 4)
    world.topics_changed()
    for _ in range(3):
        client.heartbeat()
        client.do_as_told()
    assert len(client.has) == 4
    assert not before & client.has


def test_a_topic_that_a_member_no_longer_wants_is_taken_from_it_at_once(world: World) -> None:
    client = joined(world, "a")
    client.topics = frozenset({"others"})
    client.heartbeat()
    assert not client.told
    member = world.group.members.get("a")
    assert member is not None
    assert member.current.state is MemberState.UNREVOKED_PARTITIONS


def test_an_epoch_begins_when_it_is_known_what_an_expression_matches(world: World) -> None:
    request = HeartbeatRequest("a", 0, "c", "h", None, None, 1, None, "ord.*", claimed={})
    world.heartbeat(request)
    group = world.group
    assert group.unresolved_regexes == ["ord.*"]
    resolved = ResolvedRegex(ORDERS, 1, 1)
    epoch = group.epoch
    world.write(group.take_resolved({"ord.*": resolved}))
    assert group.epoch == epoch + 1
    assert group.subscribed_topics() == ORDERS
    assert len(group.take_resolved({"ord.*": resolved})) == 1, "nothing has changed"
    assert group.epoch == epoch + 1
    world.fail_over()
    assert world.group.subscribed_topics() == ORDERS
    world.write(world.group.leave(HeartbeatRequest("a", -1, "c", "h")))
    assert not world.group.subscribed_topics()
    assert not list(world.from_log().regexes)


def test_matching_topics_that_are_too_many_for_the_log_are_not_written(world: World) -> None:
    request = HeartbeatRequest("a", 0, "c", "h", None, None, 1, None, ".*", claimed={})
    world.heartbeat(request)
    many = frozenset(f"a-topic-with-a-long-name-{number}" for number in range(30_000))
    world.write(world.group.take_resolved({".*": ResolvedRegex(many, 1, 1)}))
    assert max(record.size for record in world.log) < 1000
    assert world.group.subscribed_topics() == many
    assert world.from_log().unresolved_regexes == [".*"]


def test_expressions_match_whole_names() -> None:
    names = ["orders", "orders-2", "my-orders"]
    found = carried_out(matching_topics(["orders", "orders.*", "(?i)ORDERS"], names))
    assert found == {
        "orders": {"orders"},
        "orders.*": {"orders", "orders-2"},
        "(?i)ORDERS": {"orders"},
    }


@pytest.mark.parametrize("regex", ["(", "(?=a)", r"(a)\1", "a" * (REGEX_LENGTH_MAX + 1)])
def test_expressions_that_are_not_re2_or_too_long_are_refused(world: World, regex: str) -> None:
    request = HeartbeatRequest("a", 0, "c", "h", None, None, 1, None, regex, claimed={})
    assert refusal(world, request) == errors_pb2.INVALID_REGULAR_EXPRESSION
    assert world.group.is_empty


# -- offsets -------------------------------------------------------------------------------------


def test_commits_are_of_members_in_their_epoch(world: World) -> None:
    tp = TopicPartition("orders", 0)
    check = world.group.check_commit
    assert check("", None, -1, [tp]) == 0, "there are no members"
    client = joined(world, "a")
    assert check("a", None, 1, [tp]) == 0
    assert check("", None, -1, [tp]) == errors_pb2.UNKNOWN_MEMBER_ID
    assert check("a", None, 2, [tp]) == errors_pb2.STALE_MEMBER_EPOCH
    world.topics.grow("orders", 6)
    world.topics_changed()
    client.heartbeat()
    assert client.epoch == 2
    assert check("a", None, 1, [tp]) == 0, "it has had the partition since (KIP-1251)"
    newer = TopicPartition("orders", 5)
    assert check("a", None, 1, [tp, newer]) == errors_pb2.STALE_MEMBER_EPOCH
    assert check("a", None, 2, [newer]) == 0
    assert check("", None, -1, [tp], in_transaction=True) == 0


def test_offsets_are_fetched_by_members_in_their_epoch(world: World) -> None:
    joined(world, "a")
    check = world.group.check_fetch
    assert check(None, -1) == 0
    assert check("a", 1) == 0
    assert check("a", 0) == errors_pb2.STALE_MEMBER_EPOCH
    assert check("b", 1) == errors_pb2.UNKNOWN_MEMBER_ID


# -- requests ------------------------------------------------------------------------------------

JOINING = HeartbeatRequest("a", 0, "c", "h", None, None, 1, ORDERS, claimed={})


@pytest.mark.parametrize(
    "wrong",
    [
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"claimed": None},
        {"claimed": {b"t": frozenset({1})}},
        {"topic_names": None},
        {"member_epoch": -2},
        {"member_epoch": -3},
        {"topic_names": frozenset(map(str, range(NAMES_MAX + 1)))},
        {"topic_names": frozenset({"a" * (NAMES_LENGTH_MAX + 1)})},
    ],
)
def test_requests_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    check_heartbeat(JOINING, ("uniform",), needs_member_id=True)
    with pytest.raises(KafkaError) as refused:
        check_heartbeat(JOINING._replace(**wrong), (), needs_member_id=True)  # type: ignore[arg-type]
    assert refused.value.code == errors_pb2.INVALID_REQUEST


def test_old_clients_get_their_member_id_from_the_coordinator() -> None:
    check_heartbeat(JOINING._replace(member_id=""), (), needs_member_id=False)
    later = JOINING._replace(member_id="", member_epoch=1)
    with pytest.raises(KafkaError):
        check_heartbeat(later, (), needs_member_id=False)


def test_an_assignor_that_is_not_there_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        check_heartbeat(JOINING._replace(server_assignor="mine"), ("range",), needs_member_id=True)
    assert refused.value.code == errors_pb2.UNSUPPORTED_ASSIGNOR
