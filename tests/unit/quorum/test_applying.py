"""When a follower applies what is committed: in longer runs while it is busy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.quorum.raft.raft_clock import clock_s
from quorate.quorum.raft.raft_node import _WORTH_A_RUN
from tests.support.raft_node import LoneNode
from tests.support.raft_sides import Clock, stopped_clock


@pytest.fixture
def clock() -> Iterator[Clock]:
    with stopped_clock() as clock:
        yield clock


@pytest.fixture
def busy(tmp_path: Path, clock: Clock) -> Iterator[LoneNode]:
    """It follows voter 2, has applied entry 2 just now, and entry 3 is committed as well."""
    lone = LoneNode(tmp_path / "voter")
    commit(lone, 1)
    assert lone.node.last_applied == 2
    commit(lone, 1)
    assert (lone.node.last_applied, lone.node.commit_index) == (2, 3)
    yield lone
    lone.close()


def commit(lone: LoneNode, count: int) -> None:
    """The leader appends so many entries, and says in one message that they are committed."""
    last = lone.journal[-1]
    index = last[1] + count
    lone.append_from(2, (last[1], last[2]), [(b"\x00x", 1)] * count, commit_index=index)
    lone.round()


def test_busy_follower_applies_after_a_pause(busy: LoneNode, clock: Clock) -> None:
    pause_s = busy.node.options.apply_pause_s
    assert busy.node.wait_s() == pytest.approx(pause_s)
    clock.advance(pause_s / 2)
    busy.round()
    assert busy.node.last_applied == 2
    assert busy.node.wait_s() == pytest.approx(pause_s / 2)
    clock.advance(pause_s / 2 + 0.000_001)
    assert busy.node.wait_s() == 0
    busy.round()
    assert busy.node.last_applied == 3
    assert [index for index, _ in busy.machine.applied] == [2, 3]


def test_what_comes_after_the_pause_is_applied_at_once(busy: LoneNode, clock: Clock) -> None:
    clock.advance(busy.node.options.apply_pause_s + 0.000_001)
    commit(busy, 1)
    assert busy.node.last_applied == 4


def test_much_is_applied_at_once(busy: LoneNode) -> None:
    commit(busy, _WORTH_A_RUN)
    assert busy.node.last_applied == busy.node.commit_index == 3 + _WORTH_A_RUN


def test_who_is_told_to_stand_applies_first(busy: LoneNode) -> None:
    """The newest voter set it can know decides whether it may."""
    busy.receive(2, {"type": "timeout_now", "term": busy.node.term})
    busy.node.tick()
    assert busy.node.last_applied == 3
    assert {to for to, _ in busy.take_sent("request_vote")} == {2, 3}


def test_who_hears_no_leader_applies_before_it_asks_for_votes(busy: LoneNode, clock: Clock) -> None:
    busy.node.election_deadline_s = clock_s() - 0.000_001
    assert busy.node.wait_s() == 0
    busy.node.tick()
    assert busy.node.last_applied == 3
    assert {to for to, _ in busy.take_sent("pre_vote")} == {2, 3}
