"""The driver without its thread: what becomes of proposals."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quorum.raft.driver import Leadership, Outcome, Proposal, RaftDriver
from tests.support.raft_node import LoneNode
from tests.support.raft_sides import stopped_clock

ACK = {"type": "next_node_idx", "term": 1, "reset": False, "success": True}


class Owner:
    """Is told by the voter, not by the driver."""

    def completed(self, proposal: Proposal) -> None: ...


class Driven:
    """A driver over voter 1 of 3; ``completed`` collects what its rounds report."""

    def __init__(self, folder: Path) -> None:
        self.lone = LoneNode(folder)
        self.completed: list[Proposal] = []
        self.driver = RaftDriver(self.lone.node, self._on_round, self._on_failed)

    def propose(self, *commands: bytes | None) -> list[Proposal]:
        proposals = [Proposal(command, Owner()) for command in commands]
        assert self.driver.submit(proposals)
        return proposals

    def round(self) -> None:
        self.lone.node.settle()
        self.driver.decide()

    def acknowledge_everything(self) -> None:
        self.lone.receive(2, {**ACK, "next_node_idx": self.lone.journal.last_index + 1})
        self.round()

    def _on_round(self, completed: list[Proposal], leadership: Leadership) -> None:
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
    driven.acknowledge_everything()
    assert driven.completed == first + second
    assert [proposal.outcome for proposal in driven.completed] == [Outcome.COMMITTED] * 4
    assert [proposal.result for proposal in driven.completed] == [b"a", None, b"b", b"c"]


def test_p15_a_voter_that_does_not_lead_surely_applies_nothing(driven: Driven) -> None:
    (proposal,) = driven.propose(b"a")
    driven.round()
    assert driven.completed == [proposal]
    assert proposal.outcome is Outcome.NOT_LEADER
    assert driven.lone.log() == []


def test_lost_leadership_leaves_the_outcome_unknown(driven: Driven) -> None:
    driven.lone.become_leader()
    (proposal,) = driven.propose(b"a")
    driven.round()
    driven.lone.append_from(2, (1, 0), [], term=5)
    driven.round()
    assert driven.completed == [proposal]
    assert proposal.outcome is Outcome.UNKNOWN


def test_proposal_whose_place_another_entry_took_is_surely_not_applied(driven: Driven) -> None:
    driven.lone.become_leader()
    (proposal,) = driven.propose(b"a")
    driven.round()
    driven.lone.append_from(2, (1, 0), [(b"\x00x", 5), (b"\x00y", 5)], commit_index=3)
    driven.round()
    assert driven.completed == [proposal]
    assert proposal.outcome is Outcome.NOT_LEADER
    assert driven.lone.machine.applied == [(2, b"x"), (3, b"y")]


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
