"""The voter set that a node follows: who counts, who gets the log, who stands, who hands over."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import quorate.quorum.raft.raft_node
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.image import VoterSet
from quorate.metadata_log.records import QuorumVoter, QuorumVoterSet
from quorate.quorum.raft.admission import Admission
from quorate.quorum.raft.driver import ProposalOutcome, ProposalRun, RaftDriver, Settled
from quorate.quorum.raft.leadership import (
    MAX_LAG,
    NEVER,
    LeadershipTransfer,
    TransferRefused,
    TransferStep,
)
from quorate.quorum.raft.leaving import RemovedFromQuorum
from quorate.quorum.raft.library import LEADER
from quorate.quorum.raft.network.transport import VoterNode
from quorate.quorum.raft.raft_clock import clock_s
from quorate.quorum.raft.storage.lmdb_journal import LmdbJournal
from tests.support.metadata import quorum_voter
from tests.support.raft_node import LoneNode
from tests.support.raft_sides import Clock, stopped_clock

FOUR = quorum_voter(4)
WATCHING = quorum_voter(4, observer=True)


@pytest.fixture
def clock() -> Iterator[Clock]:
    with stopped_clock() as clock:
        yield clock


@pytest.fixture
def lone(tmp_path: Path, clock: Clock) -> Iterator[LoneNode]:
    node = LoneNode(tmp_path / "voter")
    yield node
    node.close()


def apply_set(lone: LoneNode, *voters: QuorumVoter) -> None:
    """A set is applied; who is new connects."""
    known = {node.voter_id for node in (*lone.node.others, *lone.node.observers)}
    lone.machine.voter_set = VoterSet(voters, lone.machine.voter_set.version + 1)
    lone.node.follow_voter_set()
    for node in (*lone.node.others, *lone.node.observers):
        if node.voter_id not in known:
            lone.transport.connect(node)


def node_of(lone: LoneNode, voter_id: int) -> VoterNode:
    members = (*lone.node.others, *lone.node.observers)
    return next(node for node in members if node.voter_id == voter_id)


def acknowledge(lone: LoneNode, node: VoterNode, index: int) -> None:
    ack = {"type": "next_node_idx", "term": lone.node.term, "next_node_idx": index + 1}
    answer = {**ack, "reset": False, "success": True, "sent_s": clock_s()}
    lone.transport.receive(node, answer)


def append(lone: LoneNode, *names: bytes) -> int:
    """The leader appends entries; index of the last."""
    assert lone.node.append_run(list(names)) is not None
    lone.node.send_new_entries()
    lone.node.journal.sync()
    return lone.journal.last_index


def silence(lone: LoneNode) -> None:
    lone.node.election_deadline_s = clock_s() - 1
    lone.node.tick()


# --- what is on disk ----------------------------------------------------------------------------


def commit_index_on_disk(lone: LoneNode) -> int:
    copy = lone.folder / "crashed.lmdb"
    copy.write_bytes((lone.folder / "journal.lmdb").read_bytes())
    journal = LmdbJournal(copy)
    try:
        return journal.getRaftCommitIndex()
    finally:
        journal.close()


def test_a_voter_set_is_known_to_be_committed_on_disk_before_anybody_hears_of_it(
    lone: LoneNode,
) -> None:
    """Else a leader that is left alone and loses power waits for the vote of one that has gone."""
    lone.become_leader()
    last = append(lone, b"remove voter 3")
    acknowledge(lone, node_of(lone, 2), last)
    lone.machine.voter_set = VoterSet(tuple(lone.members[:2]), 2)
    heard: list[int] = []
    lone.node.on_applied = lambda _entries, _results: heard.append(commit_index_on_disk(lone))
    lone.node.tick()
    assert heard == [last]


def test_a_commit_index_is_on_disk_before_it_is_told_where_a_set_may_be_unapplied(
    lone: LoneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorate.quorum.raft.raft_node, "_APPLIED_PER_TICK", 1)
    lone.become_leader()
    last = append(lone, b"x", b"y", b"z")
    acknowledge(lone, node_of(lone, 2), last)
    lone.node.tick()
    assert lone.node.last_applied < lone.node.commit_index == last
    lone.node.send_append_entries()
    assert commit_index_on_disk(lone) == last


# --- who counts ---------------------------------------------------------------------------------


def test_an_observer_receives_the_log_and_its_match_commits_nothing(lone: LoneNode) -> None:
    apply_set(lone, *lone.members, WATCHING)
    lone.become_leader()
    lone.take_sent()
    last = append(lone, b"x")
    assert {to for to, _ in lone.take_sent("append_entries")} == {2, 3, 4}
    acknowledge(lone, node_of(lone, 4), last)
    lone.node.tick()
    assert lone.node.commit_index < last
    acknowledge(lone, node_of(lone, 2), last)
    lone.node.tick()
    assert lone.node.commit_index == last


def test_a_promoted_observer_counts(lone: LoneNode) -> None:
    apply_set(lone, *lone.members, WATCHING)
    lone.become_leader()
    last = append(lone, b"x")
    acknowledge(lone, node_of(lone, 4), last)
    apply_set(lone, *lone.members, FOUR)
    lone.node.tick()
    assert lone.node.commit_index < last  # Two of four.
    acknowledge(lone, node_of(lone, 3), last)
    lone.node.tick()
    assert lone.node.commit_index == last


def test_votes_of_observers_and_strangers_elect_nobody(lone: LoneNode) -> None:
    apply_set(lone, *lone.members, WATCHING)
    stranger = VoterNode(quorum_voter(9).voter_id, quorum_voter(9).raft)
    silence(lone)
    for node in (node_of(lone, 4), stranger):
        lone.transport.receive(node, {"type": "response_pre_vote", "term": lone.node.term})
    lone.node.tick()
    assert lone.take_sent("request_vote") == []
    lone.receive(2, {"type": "response_pre_vote", "term": lone.node.term})
    lone.node.tick()
    assert {to for to, _ in lone.take_sent("request_vote")} == {2, 3}
    for node in (node_of(lone, 4), stranger):
        lone.transport.receive(node, {"type": "response_vote", "term": lone.node.term})
    assert not lone.node.is_leader
    lone.receive(3, {"type": "response_vote", "term": lone.node.term})
    assert lone.node.is_leader


def test_who_took_a_voters_place_does_not_count_as_that_voter(lone: LoneNode) -> None:
    other = Admission(quorum_voter(2, folder=7), lone.members, lambda: False)
    lone.node.admission.heard(other.hello_to(lone.own.voter_id))
    silence(lone)
    lone.receive(2, {"type": "response_pre_vote", "term": lone.node.term})
    lone.node.tick()
    assert lone.take_sent("request_vote") == []
    lone.receive(3, {"type": "response_pre_vote", "term": lone.node.term})
    lone.node.tick()
    lone.receive(2, {"type": "response_vote", "term": lone.node.term})
    assert not lone.node.is_leader
    lone.receive(3, {"type": "response_vote", "term": lone.node.term})
    assert lone.node.state == LEADER
    acknowledge(lone, node_of(lone, 2), lone.journal.last_index)
    assert lone.node.match_index[node_of(lone, 2)] == 0


def test_a_removed_voter_counts_no_more(lone: LoneNode) -> None:
    lone.become_leader()
    removed = node_of(lone, 3)
    last = append(lone, b"x")
    apply_set(lone, *lone.members[:2])
    acknowledge(lone, removed, last)
    lone.node.tick()
    assert removed not in lone.node.match_index
    assert lone.node.commit_index < last
    lone.take_sent()
    append(lone, b"y")
    assert {to for to, _ in lone.take_sent("append_entries")} == {2}


def test_a_voter_added_again_has_acknowledged_nothing(lone: LoneNode) -> None:
    lone.become_leader()
    last = append(lone, b"x")
    acknowledge(lone, node_of(lone, 3), last)
    again = msgspec.structs.replace(lone.members[2], directory_id=b"another folder..")
    apply_set(lone, *lone.members[:2], again)
    assert lone.node.match_index[node_of(lone, 3)] == 0
    apply_set(lone, *lone.members[:2], again)
    acknowledge(lone, node_of(lone, 3), last)
    assert lone.node.match_index[node_of(lone, 3)] == last


def test_the_last_voter_commits_alone(lone: LoneNode) -> None:
    lone.become_leader()
    apply_set(lone, *lone.members[:2])
    apply_set(lone, *lone.members[:1])
    last = append(lone, b"x")
    lone.node.tick()
    assert lone.node.commit_index == last


def test_applying_its_own_removal_ends_the_voter(lone: LoneNode) -> None:
    lone.machine.voter_set = VoterSet(tuple(lone.members[1:]), 2)
    with pytest.raises(RemovedFromQuorum):
        lone.node.follow_voter_set()


# --- who stands ---------------------------------------------------------------------------------


def test_nobody_stands_while_committed_entries_are_unapplied(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), [(b"\x00x", 1)], commit_index=2)
    assert lone.node.last_applied < lone.node.commit_index
    assert not lone.node.may_stand
    lone.node.election_deadline_s = clock_s() - 1
    assert not lone.node.silence_is_over()
    lone.node.tick()
    assert lone.node.last_applied == lone.node.commit_index
    silence(lone)
    assert {to for to, _ in lone.take_sent("pre_vote")} == {2, 3}


def test_commit_index_is_on_disk_with_the_entries_it_came_with(
    lone: LoneNode, tmp_path: Path
) -> None:
    lone.append_from(2, (1, 0), [(b"\x00set", 1)])
    lone.append_from(2, (2, 1), [(b"\x00next set", 1)], commit_index=2)
    lone.node.settle()
    assert lone.journal.last_index == 3
    assert lone.journal._on_disk.commit_index == 2


def test_an_observer_never_stands_but_answers(tmp_path: Path, clock: Clock) -> None:
    lone = LoneNode(tmp_path / "observer")
    own = msgspec.structs.replace(lone.members[0], observer=True)
    lone.node.admission.voter_set = VoterSet((own, *lone.members[1:]), 1)
    clock.advance(10)
    lone.node.tick()
    silence(lone)
    assert lone.take_sent() == []
    lone.receive(2, {"type": "request_vote", "term": 5, "last_log_index": 1, "last_log_term": 0})
    assert [kind["type"] for _, kind in lone.take_sent()] == ["response_vote"]
    lone.close()


def test_a_voter_that_cannot_stand_does_not_spin(lone: LoneNode, clock: Clock) -> None:
    """Its election deadline passes and stays passed: waiting for it is no wait at all."""
    lone.node.admission = Admission(lone.members[0], lone.members, lambda: True)
    clock.advance(10)
    lone.node.tick()
    assert lone.node.wait_s() == lone.node.options.heartbeat_s


def test_who_cannot_stand_forgets_a_leader_that_fell_silent(lone: LoneNode, clock: Clock) -> None:
    """Else watchers at an observer that is cut off wait for ever."""
    lone.append_from(2, (1, 0), [(b"\x00x", 1)])
    lone.node.tick()
    assert lone.node.leader == lone.peer(2)
    lone.node.admission = Admission(lone.members[0], lone.members, lambda: True)
    lone.node.tick()
    assert lone.node.leader == lone.peer(2)
    clock.advance(10)
    lone.node.tick()
    assert lone.node.leader is None


def test_the_library_does_not_stand_by_itself(lone: LoneNode, clock: Clock) -> None:
    lone.node.election_deadline_s = clock_s() - 1
    lone.node.library_tick(may_stand=False)
    assert lone.take_sent() == []
    assert lone.node.election_deadline_s == clock_s() - 1


def test_a_voter_that_takes_no_part_answers_nothing(lone: LoneNode) -> None:
    fresh = Admission(lone.members[0], lone.members, lambda: True)
    lone.node.admission = fresh
    lone.receive(2, {"type": "request_vote", "term": 5, "last_log_index": 9, "last_log_term": 4})
    lone.receive(2, {"type": "pre_vote", "term": 5, "last_log_index": 9, "last_log_term": 4})
    lone.append_from(2, (1, 0), [(b"\x00x", 1)])
    lone.node.settle()
    silence(lone)
    assert lone.take_sent() == []
    assert (lone.node.term, lone.journal.last_index) == (0, 1)


# --- the first voter set ------------------------------------------------------------------------


def test_the_first_leader_commits_the_voters_before_it_leads_for_clients(lone: LoneNode) -> None:
    lone.machine.voter_set = VoterSet()
    lone.node.admission = Admission(lone.members[0], lone.members, lambda: False)
    lone.become_leader()
    acknowledge(lone, node_of(lone, 2), lone.journal.last_index)
    lone.node.tick()
    assert lone.node.has_applied_its_no_op
    last = lone.journal.last_index
    for member in lone.members[1:]:
        assert lone.journal.last_index == last  # Somebody's data folder is not known.
        assert not lone.node.leads_caught_up
        other = Admission(member, lone.members, lambda: True)
        lone.node.admission.heard(other.hello_to(lone.own.voter_id))
        lone.node.tick()
    lone.node.tick()
    assert lone.journal.last_index == last + 1
    (operation,) = decode_transaction(lone.journal[-1][0][1:]).operations
    expected = QuorumVoterSet(
        expected_version=0,
        voters=tuple(lone.members),
        metadata_version=NEWEST_METADATA_VERSION,
    )
    assert operation.records == (expected,)
    assert not lone.node.leads_caught_up
    lone.machine.voter_set = VoterSet(tuple(lone.members), last + 1)
    assert lone.node.leads_caught_up


def test_the_voters_are_not_committed_before_the_leader_is_caught_up(lone: LoneNode) -> None:
    lone.machine.voter_set = VoterSet()
    lone.node.admission = Admission(lone.members[0], lone.members, lambda: False)
    for member in lone.members[1:]:
        other = Admission(member, lone.members, lambda: True)
        lone.node.admission.heard(other.hello_to(lone.own.voter_id))
    lone.become_leader()
    last = lone.journal.last_index
    lone.node.tick()
    assert lone.journal.last_index == last
    acknowledge(lone, node_of(lone, 2), last)
    lone.node.tick()
    assert lone.journal.last_index == last + 1


# --- handing the leadership over ----------------------------------------------------------------


def told(lone: LoneNode, by: int, term: int) -> None:
    lone.receive(by, {"type": "timeout_now", "term": term})
    lone.node.tick()


def test_who_is_told_by_the_leader_stands_at_once(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), [], term=3)
    lone.take_sent()
    lone.receive(2, {"type": "timeout_now", "term": 3})
    lone.append_from(2, (1, 0), [], term=3)  # A heartbeat that was under way changes nothing.
    lone.node.tick()
    assert {(to, kind["type"]) for to, kind in lone.take_sent()} == {
        (2, "request_vote"),
        (3, "request_vote"),
    }
    assert lone.node.term == 4


def test_only_the_present_leader_can_tell_and_in_its_term(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), [], term=3)
    for by, term in ((3, 3), (2, 2), (2, 4), (3, 9)):
        told(lone, by, term)
    assert lone.node.term == 3
    lone.receive(3, {"type": "request_vote", "term": 4, "last_log_index": 9, "last_log_term": 3})
    told(lone, 2, 4)  # It leads no more.
    assert lone.node.term == 4
    assert lone.node.state == 0


def test_who_has_committed_entries_to_apply_does_not_stand_when_told(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), [(b"\x00x", 3)], commit_index=2, term=3)
    lone.receive(2, {"type": "timeout_now", "term": 3})
    assert not lone.node.may_stand


class Owner:
    def completed(self, settled: Settled) -> None: ...


def test_the_leader_tells_who_has_everything_and_holds_proposals(lone: LoneNode) -> None:
    completed: list[Settled] = []
    driver = RaftDriver(lone.node, lambda done, _: completed.extend(done), lambda _: None)
    lead(lone)
    last = append(lone, b"x")
    lone.take_sent()
    lone.node.begin_transfer(2)
    run = ProposalRun([b"late"], Owner())
    assert driver.submit(run)
    driver.decide()
    assert lone.take_sent("timeout_now") == []
    assert lone.node.sole_leader_until_s() > NEVER
    acknowledge(lone, node_of(lone, 2), last)
    driver.decide()
    assert lone.take_sent("timeout_now") == [(2, {"type": "timeout_now", "term": lone.node.term})]
    assert lone.node.sole_leader_until_s() == NEVER
    assert lone.journal.last_index == last
    vote = {"type": "request_vote", "term": lone.node.term + 1}
    lone.receive(2, {**vote, "last_log_index": last, "last_log_term": 1})
    driver.decide()
    driver.decide()
    assert completed == [Settled(run, 0, [None], ProposalOutcome.NOT_LEADER)]


def test_the_leader_goes_on_if_the_other_does_not_take_over(lone: LoneNode, clock: Clock) -> None:
    driver = RaftDriver(lone.node, lambda _done, _: None, lambda _: None)
    lead(lone)
    last = lone.journal.last_index
    lone.node.begin_transfer(2)
    with pytest.raises(TransferRefused, match="voter 2 is about to lead"):
        lone.node.begin_transfer(3)
    assert driver.submit(ProposalRun([b"late"], Owner()))
    for _ in range(2):
        driver.decide()
        clock.advance(lone.node.options.election_timeout_max_s * 1.1)
        for voter_id in (2, 3):
            acknowledge(lone, node_of(lone, voter_id), last)
    driver.decide()
    assert lone.node.is_leader
    assert not lone.node.hands_over
    assert lone.node.sole_leader_until_s() > NEVER
    assert lone.journal.last_index == last + 1


def test_rule9_who_was_added_again_has_answered_nothing_yet(lone: LoneNode) -> None:
    lead(lone)
    one, two, _ = lone.members
    assert lone.node.sole_leader_until_s() > NEVER
    apply_set(lone, one, msgspec.structs.replace(two, directory_id=b"another folder!!"))
    assert lone.node.sole_leader_until_s() == NEVER


def lead(lone: LoneNode) -> None:
    lone.become_leader()
    for voter_id in (2, 3):
        acknowledge(lone, node_of(lone, voter_id), lone.journal.last_index)
    lone.node.tick()
    assert lone.node.leads_caught_up


def test_a_transfer_that_cannot_succeed_is_refused(lone: LoneNode) -> None:
    with pytest.raises(TransferRefused, match="voter 1 does not lead"):
        lone.node.begin_transfer(2)
    lead(lone)
    apply_set(lone, *lone.members, WATCHING)
    for voter_id in (4, 9):
        with pytest.raises(TransferRefused, match="not a voter of this quorum"):
            lone.node.begin_transfer(voter_id)
    append(lone, *[b"x"] * (MAX_LAG + 1))
    with pytest.raises(TransferRefused, match="entries behind"):
        lone.node.begin_transfer(2)


def test_a_transfer_step_by_step() -> None:
    target = VoterNode(FOUR.voter_id, FOUR.raft)
    transfer = LeadershipTransfer(target, term=1, now_s=10, patience_s=1)
    assert transfer.step(10.5, match_index=4, last_index=5) is TransferStep.WAIT
    assert transfer.step(10.9, match_index=5, last_index=5) is TransferStep.TELL
    assert transfer.step(11.8, match_index=5, last_index=5) is TransferStep.WAIT
    assert transfer.step(12.0, match_index=5, last_index=5) is TransferStep.GIVE_UP
    late = LeadershipTransfer(target, term=1, now_s=10, patience_s=1)
    assert late.step(11.1, match_index=5, last_index=5) is TransferStep.GIVE_UP
