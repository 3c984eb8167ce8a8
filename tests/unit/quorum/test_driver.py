"""The driver without its thread: what becomes of proposals."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.quorum.raft.driver import (
    ProposalOutcome,
    ProposalRun,
    RaftDriver,
    RaftLeadership,
    Settled,
)
from tests.support.raft_node import LoneNode
from tests.support.raft_sides import stopped_clock

ACK = {"type": "next_node_idx", "term": 1, "reset": False, "success": True}


class Owner:
    """Is told by the voter, not by the driver."""

    def completed(self, settled: Settled) -> None: ...


class Driven:
    """A driver over voter 1 of 3; ``completed`` collects what its rounds report."""

    def __init__(self, folder: Path) -> None:
        self.lone = LoneNode(folder)
        self.completed: list[Settled] = []
        self.driver = RaftDriver(self.lone.node, self._on_round, self._on_failed)

    def propose(self, *commands: bytes | None) -> ProposalRun:
        run = ProposalRun(commands, Owner())
        assert self.driver.submit(run)
        return run

    def round(self) -> None:
        self.lone.node.settle()
        self.driver.decide()

    def acknowledge_up_to(self, index: int) -> None:
        self.lone.receive(2, {**ACK, "next_node_idx": index + 1})
        self.round()

    def _on_round(self, completed: list[Settled], leadership: RaftLeadership) -> None:
        self.completed += completed

    def _on_failed(self, error: BaseException) -> None:
        raise error


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    with stopped_clock():
        driven = Driven(tmp_path / "voter")
        yield driven
        driven.lone.close()


def test_committed_proposals_get_their_own_results_in_order(driven: Driven) -> None:
    driven.lone.become_leader()
    first = driven.propose(b"a", None, b"b")
    driven.round()
    second = driven.propose(b"c")
    driven.round()
    assert driven.completed == []
    driven.acknowledge_up_to(driven.lone.journal.last_index)
    assert driven.completed == [
        Settled(first, 0, [b"a", None, b"b"], ProposalOutcome.COMMITTED),
        Settled(second, 0, [b"c"], ProposalOutcome.COMMITTED),
    ]


def test_a_run_may_be_committed_in_parts(driven: Driven) -> None:
    driven.lone.become_leader()
    run, behind = driven.propose(b"a", b"b", b"c"), driven.propose(b"d")
    driven.round()
    driven.acknowledge_up_to(4)
    driven.acknowledge_up_to(6)
    assert driven.completed == [
        Settled(run, 0, [b"a", b"b"], ProposalOutcome.COMMITTED),
        Settled(run, 2, [b"c"], ProposalOutcome.COMMITTED),
        Settled(behind, 0, [b"d"], ProposalOutcome.COMMITTED),
    ]


def test_p15_a_voter_that_does_not_lead_surely_applies_nothing(driven: Driven) -> None:
    run = driven.propose(b"a", b"b")
    driven.round()
    assert driven.completed == [Settled(run, 0, [None, None], ProposalOutcome.NOT_LEADER)]
    assert driven.lone.log() == []


def test_lost_leadership_leaves_the_outcome_unknown(driven: Driven) -> None:
    driven.lone.become_leader()
    run = driven.propose(b"a", b"b")
    driven.round()
    driven.acknowledge_up_to(3)
    driven.lone.append_from(2, (3, 1), [], term=5)
    driven.round()
    assert driven.completed == [
        Settled(run, 0, [b"a"], ProposalOutcome.COMMITTED),
        Settled(run, 1, [None], ProposalOutcome.UNKNOWN),
    ]


def test_proposals_whose_place_other_entries_took_are_surely_not_applied(driven: Driven) -> None:
    driven.lone.become_leader()
    run, behind = driven.propose(b"a", b"b", b"c"), driven.propose(b"d")
    driven.round()
    driven.lone.append_from(2, (3, 1), [(b"\x00x", 5), (b"\x00y", 5)], commit_index=5)
    driven.round()
    assert driven.completed == [
        Settled(run, 0, [b"a"], ProposalOutcome.COMMITTED),
        Settled(run, 1, [None, None], ProposalOutcome.NOT_LEADER),
        Settled(behind, 0, [None], ProposalOutcome.UNKNOWN),
    ]
    assert [name for _, name in driven.lone.machine.applied] == [b"a", b"x", b"y"]


def test_what_a_snapshot_jumped_over_has_no_known_outcome(driven: Driven) -> None:
    """The first entry applied after it says nothing about ours, which lay before."""
    driven.lone.become_leader()
    run = driven.propose(b"a")
    driven.round()
    driven.lone.node.on_applied([(b"\x00x", 11, 5)], [b"x"])
    driven.lone.append_from(2, (2, 1), [], term=5)
    driven.round()
    assert driven.completed == [Settled(run, 0, [None], ProposalOutcome.UNKNOWN)]


def test_a_round_takes_only_so_much(driven: Driven) -> None:
    """A huge sync would hold up the heartbeats; what waits goes into the next round."""
    driven.lone.become_leader()
    big = bytes(1 << 20)
    for _ in range(10):
        driven.propose(big)
    driven.round()
    assert len(driven.lone.log()) == 1 + 8
    driven.round()
    assert len(driven.lone.log()) == 1 + 10
