"""What a leader knows of its own leadership: when the messages were sent that were answered."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.common.types import Endpoint, VoterId
from quorate.quorum.raft.driver import RaftDriver
from quorate.quorum.raft.leadership import NEVER, LeaderLease
from quorate.quorum.raft.network.raft_frames import Message
from quorate.quorum.raft.network.transport import VoterNode
from tests.support.raft_node import LoneNode
from tests.support.raft_sides import Clock, stopped_clock

NODES = [VoterNode(VoterId(n), Endpoint("127.0.0.1", 9)) for n in range(2, 6)]


@pytest.fixture
def clock() -> Iterator[Clock]:
    with stopped_clock() as clock:
        yield clock


@pytest.fixture
def lone(tmp_path: Path, clock: Clock) -> Iterator[LoneNode]:
    node = LoneNode(tmp_path / "voter")
    yield node
    node.close()


def answer(lone: LoneNode, **more: Any) -> Message:  # noqa: ANN401
    ack = {"type": "next_node_idx", "term": lone.node.term, "next_node_idx": 2}
    return {**ack, "reset": False, "success": True, **more}


# -- what the answers of a majority prove ----------------------------------------------------------


@pytest.mark.parametrize(
    ("voters", "sent_s", "until_s"),
    [
        (1, {}, 100),
        (2, {}, NEVER),
        (2, {2: 90}, 90),
        (3, {2: 90}, 90),
        (3, {2: 90, 3: 95}, 95),
        (4, {2: 90, 3: 95}, 90),
        (5, {2: 90}, NEVER),
        (5, {2: 90, 3: 95, 4: 80}, 90),
    ],
)
def test_rule9_what_a_majority_answered_was_sent_by_the_only_leader(
    voters: int, sent_s: dict[int, float], until_s: float
) -> None:
    lease = LeaderLease()
    for node in NODES[: voters - 1]:
        if node.voter_id in sent_s:
            lease.answered(node, sent_s[node.voter_id], now_s=99)
    assert lease.sole_leader_until_s(NODES[: voters - 1], now_s=100) == until_s


def test_rule9_answers_that_come_late_or_from_the_future_do_not_count_as_such() -> None:
    lease = LeaderLease()
    lease.answered(NODES[0], 90, now_s=99)
    lease.answered(NODES[0], 80, now_s=99)
    assert lease.sole_leader_until_s(NODES[:1], now_s=100) == 90
    lease.answered(NODES[0], 1_000, now_s=99)
    assert lease.sole_leader_until_s(NODES[:1], now_s=100) == 99


def test_rule9_a_member_that_left_proves_nothing_for_the_next_of_its_name() -> None:
    lease = LeaderLease()
    lease.answered(NODES[0], 90, now_s=99)
    lease.forget(NODES[0])
    assert lease.sole_leader_until_s(NODES[:1], now_s=100) == NEVER


# -- how a leader comes to know it ----------------------------------------------------------------


def test_rule9_a_leader_that_was_stopped_learns_nothing_new_from_old_answers(
    lone: LoneNode, clock: Clock
) -> None:
    driver = RaftDriver(lone.node, lambda _done, _: None, lambda _: None)
    lone.become_leader()
    sent_s = clock()
    clock.advance(0.01)
    lone.receive(2, answer(lone, sent_s=sent_s))
    driver.decide()
    assert driver.sole_leader_until_s == sent_s
    clock.advance(5)
    lone.receive(2, answer(lone, sent_s=sent_s + 0.05))
    driver.decide()
    assert driver.sole_leader_until_s == sent_s + 0.05


def test_rule9_an_answer_that_does_not_say_to_what_proves_nothing(
    lone: LoneNode,
) -> None:
    lone.become_leader()
    lone.receive(2, answer(lone))
    assert lone.node.sole_leader_until_s() == NEVER


def test_rule9_answers_of_the_last_leadership_prove_nothing_for_this_one(
    lone: LoneNode, clock: Clock
) -> None:
    lone.become_leader()
    lone.receive(2, answer(lone, sent_s=clock()))
    assert lone.node.sole_leader_until_s() == clock()
    lone.node.adopt_term(7)
    clock.advance(1)
    lone.become_leader()
    assert lone.node.sole_leader_until_s() == NEVER


# -- what a follower answers ----------------------------------------------------------------------


def test_rule9_an_answer_says_when_the_newest_message_that_it_answers_was_sent(
    lone: LoneNode,
) -> None:
    lone.append_from(2, (1, 0), [(b"\x00a", 3)], sent_s=41.5)
    lone.append_from(2, (2, 3), [(b"\x00b", 3)], sent_s=42.5)
    lone.append_from(2, (2, 3), [], sent_s=42.0)
    lone.node.settle()
    ((_, ack),) = lone.take_sent("next_node_idx")
    assert (ack["next_node_idx"], ack["sent_s"]) == (4, 42.5)


def test_rule9_also_a_refusal_and_a_piece_of_a_snapshot_are_answered(lone: LoneNode) -> None:
    lone.append_from(2, (9, 3), [], sent_s=41.5)
    piece = {"type": "append_entries", "term": 3, "commit_index": 9, "sent_s": 42.5}
    lone.receive(2, {**piece, "serialized": (b"x", True, False)})
    lone.node.settle()
    assert [ack["sent_s"] for _, ack in lone.take_sent("next_node_idx")] == [41.5, 42.5]


def test_rule9_what_answers_no_message_says_of_none(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), [(b"\x00a", 3)], sent_s=41.5)
    lone.node.settle()
    lone.take_sent()
    lone.node._SyncObj__sendNextNodeIdx(lone.peer(2), success=True)
    lone.node.settle()
    ((_, ack),) = lone.take_sent("next_node_idx")
    assert "sent_s" not in ack
