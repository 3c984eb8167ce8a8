"""Carrying plans out, watching them, emptying a broker pass by pass (C11)."""

import time
from collections.abc import Callable

import pytest

from quorate.client.errors import RequestFailed
from quorate.reassignment import reassignment_progress as progress
from quorate.reassignment.emptying import empty_broker, next_pass
from quorate.reassignment.reassignment_plan import PlanError
from quorate.reassignment.reassignment_progress import (
    PartitionState,
    ReassignmentState,
    reassignment_states,
    start_reassignments,
    until_done,
)
from quorate.reassignment.reassignment_throttle import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE
from tests.unit.reassignment.fake_admin import FakeAdmin, named

FOUR = dict.fromkeys((1, 2, 3, 4), "")


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """Partitions a-0 and a-1 on brokers 1 and 2, b-0 on 2 and 3."""
    monkeypatch.setattr(progress, "SETTLE_S", 0.0)
    return FakeAdmin(FOUR, {named("a"): (1, 2), named("a", 1): (2, 1), named("b"): (2, 3)})


def no_sleep(_: float) -> None:
    pass


def test_c11_every_partition_of_a_plan_has_a_state(admin: FakeAdmin) -> None:
    plan = {
        named("a"): (1, 2),
        named("a", 1): (3, 4),
        named("b"): (1, 4),
        named("c"): (1,),
        named("a", 7): (1,),
    }
    start_reassignments(admin, {named("a", 1): (3, 4)})
    found = reassignment_states(admin, plan)
    assert [one.state for one in found] == [
        ReassignmentState.COMPLETE,
        ReassignmentState.MOVING,
        ReassignmentState.ELSEWHERE,
        ReassignmentState.MISSING,
        ReassignmentState.MISSING,
    ]
    assert [one.text for one in found][:4] == [
        "Reassignment of partition a-0 is completed.",
        "Reassignment of partition a-1 is still in progress.",
        "There is no active reassignment of partition b-0, but replica set is 2,3 rather than 1,4.",
        "There is no partition c-0.",
    ]


def test_c11_brokers_that_are_behind_are_asked_again(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller says that nothing moves, the broker asked still shows the old replicas."""
    monkeypatch.setattr(progress, "SETTLE_S", 60.0)
    admin.moving[named("b")] = (1, 4)
    monkeypatch.setattr(admin, "list_partition_reassignments", list)
    monkeypatch.setattr(time, "sleep", lambda _: admin.finish())
    (found,) = reassignment_states(admin, {named("b"): (1, 4)})
    assert found == PartitionState(
        name=named("b"), target=(1, 4), replicas=(1, 4), state=ReassignmentState.COMPLETE
    )


def test_c11_progress_is_told_when_it_changes(admin: FakeAdmin) -> None:
    plan = {named("a"): (3, 4), named("b"): (1, 4)}
    start_reassignments(admin, plan)
    start_reassignments(admin, {named("a", 1): (3, 4)})
    steps: list[Callable[[], object]] = [
        lambda: admin.moving.pop(named("a")),
        lambda: None,
        admin.finish,
    ]

    def pass_time(_: float) -> None:
        steps.pop(0)()

    told = list(until_done(admin, plan, 1_000_000, sleep=pass_time))
    assert told == [2, 1, 0]


def test_c11_who_waits_too_long_is_told_what_goes_on(admin: FakeAdmin) -> None:
    start_reassignments(admin, {named("a"): (3, 4)})
    with pytest.raises(PlanError, match="1 of 1 partitions are still moving after 0 ms"):
        list(until_done(admin, {named("a"): (3, 4)}, 0, sleep=no_sleep))


def test_c11_large_plans_go_in_pieces(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PARTITIONS_PER_REQUEST", 2)
    results = start_reassignments(admin, dict.fromkeys(admin.replicas, (3, 4)))
    assert [len(piece) for piece in admin.asked] == [2, 1]
    assert len(results) == 3


# --- emptying -----------------------------------------------------------------------------------


def test_c11_a_broker_is_emptied_with_progress(admin: FakeAdmin) -> None:
    admin.moves_when_listed = True
    told = [one.text for one in empty_broker(admin, 2, None, 60_000, sleep=no_sleep)]
    assert told == ["0 of 3 partitions have moved", "3 of 3 partitions have moved"]
    assert not any(2 in replicas for replicas in admin.replicas.values())
    assert not admin.configured


def test_c11_what_comes_meanwhile_is_moved_as_well(admin: FakeAdmin) -> None:
    admin.moves_when_listed = True
    late = iter([named("late")])

    def a_topic_is_created(_: float) -> None:
        for name in late:
            admin.replicas[name] = (2, 4)

    (*_, last) = empty_broker(admin, 2, None, 60_000, sleep=a_topic_is_created)
    assert (last.moved, last.total) == (4, 4)
    assert 2 not in admin.replicas[named("late")]


def test_c11_emptying_goes_on_where_it_was(admin: FakeAdmin) -> None:
    start_reassignments(admin, {named("a"): (1, 3)})
    work = next_pass(admin, 2)
    assert named("a") not in work.plan, "it is on its way already"
    assert set(work.leaving) == {named("a"), named("a", 1), named("b")}
    start_reassignments(admin, {named("b"): (2, 4)})
    assert next_pass(admin, 2).plan[named("b")] != (2, 4), "a move to it is changed"


def test_c11_a_throttle_is_set_before_and_removed_after(admin: FakeAdmin) -> None:
    seen = []

    def look(_: float) -> None:
        seen.append(admin.configured)
        admin.finish()

    list(empty_broker(admin, 2, 5_000, 60_000, sleep=look))
    assert seen[0]["broker", "1"] == {LEADER_RATE: "5000", FOLLOWER_RATE: "5000"}
    assert seen[0]["topic", "b"][FOLLOWER_REPLICAS].startswith("0:")
    assert not admin.configured


def test_c11_a_refused_move_ends_it_with_the_reason(admin: FakeAdmin) -> None:
    admin.refuse[named("a", 1)] = 39
    with pytest.raises(RequestFailed, match="INVALID_REPLICA_ASSIGNMENT: moving a-1"):
        list(empty_broker(admin, 2, None, 60_000, sleep=no_sleep))


def test_c11_an_empty_broker_has_nothing_to_move_and_an_unknown_one_is_named(
    admin: FakeAdmin,
) -> None:
    assert list(empty_broker(admin, 4, None, 60_000, sleep=no_sleep)) == []
    with pytest.raises(PlanError, match="broker 9 is not live and holds no replica"):
        next_pass(admin, 9)
