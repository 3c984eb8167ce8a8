"""A consumer group: joining, agreeing, and what ends an agreement."""

import pytest

from quorate.broker.coordinator.groups.state.group_basis import GroupLimits, GroupState
from quorate.broker.coordinator.groups.state.group_effects import Leaver
from quorate.broker.coordinator.groups.state.group_log_format import restored, stored
from quorate.broker.coordinator.groups.state.joining import NEW_MEMBER_TIMEOUT_MS
from quorate_proto.v1 import errors_pb2
from tests.unit.coordinator.consumers import REBALANCE_MS, SESSION_MS, World

DELAYED = GroupLimits(max_members=1000, initial_delay_ms=3_000)


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_member_leads_and_is_told_of_everybody(world: World) -> None:
    token = world.join()

    answer = world.joined(token)
    assert answer.leader_id == answer.member_id == "member-1"
    assert [member.metadata for member in answer.members] == [b"subscription"]
    assert (answer.generation_id, answer.protocol_name) == (1, "range")


def test_a_group_that_was_empty_waits_for_more_members() -> None:
    world = World(DELAYED)
    first = world.join()
    world.pass_ms(2_000)
    second = world.join()
    world.pass_ms(1_500)
    assert first not in world.answers
    third = world.join()
    world.pass_ms(3_000)
    assert second not in world.answers
    world.pass_ms(3_000)
    assert {world.joined(token).generation_id for token in (first, second, third)} == {1}
    assert len(world.joined(first).members) == 3


def test_waiting_for_more_members_ends_with_the_rebalance_timeout() -> None:
    world = World(DELAYED)
    tokens = []
    while not world.answers:
        tokens.append(world.join())
        world.pass_ms(1_000)
    assert world.now_ms - 1_000 == REBALANCE_MS


def test_a_protocol_that_is_named_twice_counts_once(world: World) -> None:
    """Or no protocol would be found that all support, and nobody could join any more."""
    first = world.join(protocols=(("range", b"a"), ("range", b"b")))
    assert world.joined(first).protocol_name == "range"
    second = world.join()
    again = world.join(world.joined(first).member_id)
    assert {world.joined(each).error_code for each in (again, second)} == {0}
    assert world.leave(Leaver(world.joined(first).member_id)) == [0]
    world.join(world.joined(second).member_id)
    assert world.group.protocol_name == "range"


def test_an_id_that_was_given_out_is_for_no_static_member(world: World) -> None:
    """Two members would go by one instance id."""
    (static,) = world.stable(1, static=True)
    given = world.joined(world.join(needs_known_id=True)).member_id
    refused = world.joined(world.join(given, instance_id="instance-0"))
    assert refused.error_code == errors_pb2.FENCED_INSTANCE_ID
    assert [member.member_id for member in world.group.members] == [static]


def test_members_that_give_each_other_no_time_do_not_keep_the_coordinator_busy(
    world: World,
) -> None:
    """All are static, and none is back: they are waited for until their sessions end."""
    (first, second) = world.stable(2, static=True)
    for member in world.group.members:
        member.rebalance_timeout_ms = 0
    assert world.leave(Leaver(second, "instance-1")) == [0]
    world.pass_ms(SESSION_MS)
    assert world.group.members.get(first) is None


def test_kip_394_who_understands_it_gets_an_id_first(world: World) -> None:
    answer = world.joined(world.join(needs_known_id=True))
    assert answer.error_code == errors_pb2.MEMBER_ID_REQUIRED
    assert len(world.group.members) == 0

    assert world.joined(world.join(answer.member_id, needs_known_id=True)).error_code == 0


def test_kip_394_an_id_that_is_not_used_holds_nobody_up_for_long(world: World) -> None:
    (member_id,) = world.stable(1)
    world.join(needs_known_id=True)
    again = world.join(member_id)
    assert again not in world.answers
    world.pass_ms(SESSION_MS)
    assert world.joined(again).generation_id == 2


def test_an_assignment_is_told_when_it_is_in_the_log_and_not_before(world: World) -> None:
    leader = world.joined(world.join()).member_id
    token = world.sync(leader, {leader: b"everything"})
    assert token not in world.answers
    assert world.state() is GroupState.COMPLETING_REBALANCE
    world.write()
    assert world.synced(token).assignment == b"everything"
    assert world.state() is GroupState.STABLE


def test_an_assignment_that_is_not_written_is_not_told(world: World) -> None:
    leader = world.joined(world.join()).member_id
    token = world.sync(leader, {leader: b"everything"})
    world.write(errors_pb2.NOT_COORDINATOR)
    assert world.synced(token).error_code == errors_pb2.NOT_COORDINATOR
    assert world.state() is GroupState.PREPARING_REBALANCE


def test_of_two_assignments_by_one_leader_the_first_is_written_and_told(world: World) -> None:
    leader = world.joined(world.join()).member_id
    world.sync(leader, {leader: b"first"})
    second = world.sync(leader, {leader: b"second"})
    world.write()
    assert world.synced(second).assignment == b"first"


def test_an_assignment_of_a_generation_that_is_over_is_told_to_nobody(world: World) -> None:
    (leader,) = world.stable(1)
    again = world.join(leader)
    assert world.joined(again).generation_id == 2
    token = world.sync(leader, {leader: b"of generation 2"})
    world.join()
    assert world.synced(token).error_code == errors_pb2.REBALANCE_IN_PROGRESS
    world.join(leader)
    assert world.group.generation_id == 3
    world.write()
    assert world.state() is GroupState.COMPLETING_REBALANCE


def test_whoever_comes_makes_all_others_join_again(world: World) -> None:
    leader, follower = world.stable(2)
    newcomer = world.join()
    assert world.heartbeat(leader) == errors_pb2.REBALANCE_IN_PROGRESS
    for member_id in (leader, follower):
        world.join(member_id)
    answer = world.joined(newcomer)
    assert answer.leader_id == leader
    assert world.heartbeat(leader) == 0


def test_who_does_not_join_again_in_time_is_out(world: World) -> None:
    leader, follower = world.stable(2)
    newcomer = world.join()
    world.join(follower)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        world.pass_ms(5_000)
        assert world.heartbeat(leader) == errors_pb2.REBALANCE_IN_PROGRESS
    world.pass_ms(5_000)
    assert world.joined(newcomer).leader_id == follower
    assert world.heartbeat(leader) == errors_pb2.UNKNOWN_MEMBER_ID


def test_a_follower_that_asks_again_in_a_stable_group_disturbs_nobody(world: World) -> None:
    leader, follower = world.stable(2)
    answer = world.joined(world.join(follower))
    assert (answer.generation_id, answer.members) == (world.group.generation_id, ())
    assert world.state() is GroupState.STABLE
    assert world.synced(world.sync(follower)).assignment == f"of {follower}".encode()
    world.join(leader)
    assert world.state() is GroupState.PREPARING_REBALANCE


def test_a_changed_subscription_is_a_rebalance(world: World) -> None:
    _, follower = world.stable(2)
    world.join(follower, protocols=(("range", b"other topics"),))
    assert world.state() is GroupState.PREPARING_REBALANCE


def test_a_silent_member_is_out_after_its_session_timeout(world: World) -> None:
    leader, follower = world.stable(2)
    world.pass_ms(SESSION_MS - 1)
    assert world.heartbeat(leader) == 0
    world.pass_ms(1)
    assert world.heartbeat(follower) == errors_pb2.UNKNOWN_MEMBER_ID
    assert world.state() is GroupState.PREPARING_REBALANCE


def test_a_member_that_waits_is_not_silent(world: World) -> None:
    leader, follower = world.stable(2)
    newcomer = world.join()
    world.join(follower)
    for _ in range(5):
        world.pass_ms(SESSION_MS - 1)
        world.heartbeat(leader)
    world.join(leader)
    assert len(world.joined(newcomer).member_id) > 0
    assert world.group.members.get(follower) is not None


def test_a_first_join_whose_client_has_gone_does_not_wait_for_ever(world: World) -> None:
    (leader,) = world.stable(1)
    newcomer = world.join(rebalance_timeout_ms=2 * NEW_MEMBER_TIMEOUT_MS)
    for _ in range(NEW_MEMBER_TIMEOUT_MS // 5_000):
        assert world.heartbeat(leader) == errors_pb2.REBALANCE_IN_PROGRESS
        world.pass_ms(5_000)
    assert world.joined(newcomer).error_code == errors_pb2.UNKNOWN_MEMBER_ID


def test_who_never_asks_for_its_assignment_is_out(world: World) -> None:
    leader, follower = world.stable(2)
    world.join(leader)
    world.join(follower)
    world.sync(leader, {leader: b"all"})
    world.write()
    for _ in range(REBALANCE_MS // 5_000):
        world.pass_ms(5_000)
        world.heartbeat(follower)
        world.heartbeat(leader)
    assert world.group.members.get(follower) is None
    assert world.group.members.get(leader) is not None


def test_leaving_is_at_once(world: World) -> None:
    leader, follower = world.stable(2)
    assert world.leave(Leaver(leader), Leaver("nobody")) == [0, errors_pb2.UNKNOWN_MEMBER_ID]
    assert world.joined(world.join(follower)).leader_id == follower


def test_the_last_one_leaves_an_empty_group_behind_in_the_log(world: World) -> None:
    (leader,) = world.stable(1)
    world.leave(Leaver(leader))
    assert (world.group.state, world.group.generation_id) == (GroupState.EMPTY, 2)
    assert world.unwritten
    world.write(errors_pb2.NOT_COORDINATOR)
    assert world.state() is GroupState.EMPTY


def test_the_protocol_is_one_that_all_support_and_most_prefer(world: World) -> None:
    sticky_first = (("sticky", b"s"), ("range", b"r"))
    range_first = (("range", b"r"), ("sticky", b"s"), ("mine", b"m"))
    world = World(DELAYED)
    tokens = [world.join(protocols=each) for each in (sticky_first, range_first, range_first)]
    world.pass_ms(10_000)
    assert {world.joined(token).protocol_name for token in tokens} == {"range"}
    refused = world.joined(world.join(protocols=(("mine", b"m"),)))
    assert refused.error_code == errors_pb2.INCONSISTENT_GROUP_PROTOCOL
    refused = world.joined(world.join(protocol_type="connect"))
    assert refused.error_code == errors_pb2.INCONSISTENT_GROUP_PROTOCOL
    assert world.joined(world.join(protocols=())).error_code == (
        errors_pb2.INCONSISTENT_GROUP_PROTOCOL
    )


def test_a_full_group_takes_nobody_but_those_it_has() -> None:
    world = World(GroupLimits(max_members=2, initial_delay_ms=0))
    members = world.stable(2)
    assert world.joined(world.join()).error_code == errors_pb2.GROUP_MAX_SIZE_REACHED
    world.join(members[0])
    assert world.joined(world.join(members[1])).error_code == 0


@pytest.mark.parametrize("generation_id", [0, 2])
def test_another_generation_is_refused(world: World, generation_id: int) -> None:
    (leader,) = world.stable(1)
    illegal = errors_pb2.ILLEGAL_GENERATION
    group = world.group
    assert group.heartbeat(leader, None, generation_id, world.now_ms) == illegal
    assert group.check_commit(leader, None, generation_id, world.now_ms) == illegal
    token = world.sync(leader, generation_id=generation_id)
    assert world.synced(token).error_code == illegal
    token = world.sync(leader, protocol_name="sticky")
    assert world.synced(token).error_code == errors_pb2.INCONSISTENT_GROUP_PROTOCOL


def test_offsets_are_committed_by_members_or_while_there_are_none(world: World) -> None:
    assert world.group.check_commit("", None, -1, world.now_ms) == 0
    leader, _ = world.stable(2)
    assert world.group.check_commit("", None, -1, world.now_ms) == errors_pb2.UNKNOWN_MEMBER_ID
    assert world.group.check_commit(leader, None, 2, world.now_ms) == 0
    world.join()
    assert world.group.check_commit(leader, None, 2, world.now_ms) == 0


def test_no_offsets_are_committed_before_the_assignment_is_known(world: World) -> None:
    leader = world.joined(world.join()).member_id
    code = world.group.check_commit(leader, None, 1, world.now_ms)
    assert code == errors_pb2.REBALANCE_IN_PROGRESS


def test_kip_345_a_restarted_static_member_keeps_its_place(world: World) -> None:
    leader, follower = world.stable(2, static=True)
    instance_id = world.instance(follower)
    token = world.join(instance_id=instance_id)
    assert token not in world.answers, "it is told when its new id is in the log"
    world.write()
    answer = world.joined(token)
    assert (answer.generation_id, answer.leader_id) == (world.group.generation_id, leader)
    assert world.state() is GroupState.STABLE
    synced = world.sync(answer.member_id, instance_id=instance_id)
    assert world.synced(synced).assignment == f"of {follower}".encode()
    assert world.heartbeat(follower, instance_id) == errors_pb2.FENCED_INSTANCE_ID


@pytest.mark.parametrize("can_skip", [False, True])
def test_kip_814_a_restarted_static_leader_assigns_nothing_anew(
    world: World, can_skip: bool
) -> None:
    (leader, _) = world.stable(2, static=True)
    instance_id = world.instance(leader)
    token = world.join(instance_id=instance_id, can_skip_assignment=can_skip)
    world.write()
    answer = world.joined(token)
    assert answer.skip_assignment is can_skip
    assert (answer.leader_id == answer.member_id) is can_skip
    assert len(answer.members) == (2 if can_skip else 0)


def test_kip_345_the_former_process_of_a_static_member_is_fenced_where_it_waits(
    world: World,
) -> None:
    _, follower = world.stable(2, static=True)
    instance_id = world.instance(follower)
    world.join(instance_id="another")
    waiting = world.join(follower, instance_id=instance_id)
    world.join(instance_id=instance_id)
    assert world.joined(waiting).error_code == errors_pb2.FENCED_INSTANCE_ID


def test_kip_345_static_members_are_waited_for_until_their_session_ends(world: World) -> None:
    leader, follower = world.stable(2, static=True)
    instances = [each.instance_id for each in world.group.members]
    newcomer = world.join(instance_id="third")
    world.join(leader, instance_id=instances[0])
    for _ in range(REBALANCE_MS // 5_000):
        world.pass_ms(5_000)
        world.heartbeat(follower, instances[1])
    assert len(world.joined(newcomer).member_id) > 0
    assert world.group.members.get(follower) is not None
    assert world.leave(Leaver("", instances[1])) == [0]


def test_kip_345_a_static_leader_that_is_late_leads_no_longer(world: World) -> None:
    leader, follower = world.stable(2, static=True)
    instances = {each: world.instance(each) for each in (leader, follower)}
    waiting = world.join(follower, instance_id=instances[follower], protocols=(("range", b"new"),))
    for _ in range(REBALANCE_MS // 5_000):
        world.pass_ms(5_000)
        world.heartbeat(leader, instances[leader])
    answer = world.joined(waiting)
    assert (answer.leader_id, len(answer.members)) == (follower, 2)


def test_a_coordinator_that_takes_over_goes_on_from_the_log(world: World) -> None:
    _, follower = world.stable(2, static=True)
    kept = stored(world.group, now_wall_ms=77)
    world.group = restored("orders", kept, world.limits, world.now_ms)

    assert world.state() is GroupState.STABLE
    assert stored(world.group, now_wall_ms=77) == kept
    instance_id = world.instance(follower)
    assert world.heartbeat(follower, instance_id) == 0
    token = world.sync(follower, instance_id=instance_id)
    assert world.synced(token).assignment == f"of {follower}".encode()
    world.pass_ms(SESSION_MS)
    assert len(world.group.members) == 0, "who does not show up again is gone"


def test_ten_thousand_members_agree() -> None:
    world = World(GroupLimits(max_members=20_000, initial_delay_ms=3_000))
    tokens = [world.join() for _ in range(10_000)]
    world.pass_ms(6_000)
    assert {world.joined(token).generation_id for token in tokens} == {1}
    leader = world.joined(tokens[0])
    world.assign([member.member_id for member in leader.members])
    assert len(world.answers) == 20_000


def test_a_large_group_does_not_look_at_all_its_members_for_each_that_dies() -> None:
    world = World()
    members = world.stable(1000)
    for number, member_id in enumerate(members):
        member = world.group.members.get(member_id)
        assert member is not None
        member.deadline_ms = world.now_ms + SESSION_MS + number
    looks = 0
    while world.state() is not GroupState.EMPTY:
        world.now_ms = max(world.now_ms, world.group.next_deadline_ms)
        world.carry_out(world.group.expire(world.now_ms))
        looks += 1
    assert looks < 500
