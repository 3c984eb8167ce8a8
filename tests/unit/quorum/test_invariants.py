"""A voter whose state cannot be right stops, and says what is wrong with it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorate.quorum.process import _FOR_PEOPLE
from quorate.quorum.raft.invariants import InvariantBroken, Progress, ProgressCheck
from tests.support.raft_node import LoneNode

WELL = Progress(term=3, commit_index=10, last_applied=9, durable_index=12, snapshot_index=8)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (WELL._replace(term=2), "its term went from 3 back to 2"),
        (WELL._replace(commit_index=9), "commit index went from 10 back to 9"),
        (WELL._replace(last_applied=8), "it had applied 9, and now 8"),
        (WELL._replace(last_applied=11), "it has applied 11, but only 10 is committed"),
        (WELL._replace(snapshot_index=11), "its snapshot ends at 11, but only 10"),
        (WELL._replace(durable_index=9), "10 is committed, but its own log is on disk up to 9"),
    ],
)
def test_what_is_broken_is_named(now: Progress, said: str) -> None:
    check = ProgressCheck(1)
    check.check(WELL)
    check.check(WELL)
    with pytest.raises(InvariantBroken, match=f"voter 1 stops, because .*{said}"):
        check.check(now)


def test_what_is_committed_is_on_a_majority() -> None:
    check = ProgressCheck(1)
    check.check_majority(10, [10, 10, 0])
    with pytest.raises(InvariantBroken, match="takes 10 for committed, which 1 of 3 voters have"):
        check.check_majority(10, [10, 9, 0])
    with pytest.raises(InvariantBroken, match="which 1 of 2"):
        check.check_majority(10, [10, 9])


def test_the_voters_process_ends_with_the_message() -> None:
    assert InvariantBroken in _FOR_PEOPLE


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[LoneNode]:
    lone = LoneNode(tmp_path / "lone")
    yield lone
    lone.close()


def falls_back(lone: LoneNode) -> None:
    lone.node.commit_index -= 1


def applies_too_much(lone: LoneNode) -> None:
    lone.node.last_applied += 5


def loses_its_tail(lone: LoneNode) -> None:
    lone.journal.durable_index = 1


def has_a_snapshot_of_the_future(lone: LoneNode) -> None:
    lone.node._snapshot_index = 99


@pytest.mark.parametrize(
    "breaks", [falls_back, applies_too_much, loses_its_tail, has_a_snapshot_of_the_future]
)
def test_a_tick_stops_the_voter(lone: LoneNode, breaks: Callable[[LoneNode], None]) -> None:
    append = {"type": "append_entries", "term": 4, "prevLogIdx": 1, "prevLogTerm": 0}
    entries = [(b"\x00a", 2, 4), (b"\x00b", 3, 4)]
    lone.receive(2, {**append, "entries": entries, "commit_index": 3})
    lone.round()
    assert lone.node.last_applied == 3
    breaks(lone)
    with pytest.raises(InvariantBroken):
        lone.node._check_progress(3, [3, 3])


def test_a_leader_that_commits_alone_stops(lone: LoneNode) -> None:
    lone.become_leader((2,))
    lone.round()
    lone.node.commit_index = lone.journal.last_index
    with pytest.raises(InvariantBroken, match="which 1 of 3 voters have"):
        lone.node._check_progress(lone.node.commit_index - 1, [0, 0])
