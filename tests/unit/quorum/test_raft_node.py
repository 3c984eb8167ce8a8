"""The guards over the library, one fault of it at a time."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.quorum.raft.guards import SafetyViolation
from quorate.quorum.raft.library import FOLLOWER, LEADER
from quorate.quorum.raft.network.poller import READ
from quorate.quorum.raft.raft_clock import clock_s
from quorate.quorum.raft.storage.lmdb_journal import LmdbJournal
from quorate.quorum.raft.storage.snapshot_file import SnapshotPosition, write_snapshot
from tests.support.raft_node import LoneNode


def entries(*names: str, term: int = 1) -> list[tuple[bytes, int]]:
    return [(b"\x00" + name.encode(), term) for name in names]


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[LoneNode]:
    node = LoneNode(tmp_path / "voter")
    yield node
    node.close()


def test_p18_acknowledgement_waits_for_the_disk(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), entries("a", "b"))
    assert lone.take_sent("next_node_idx") == []
    assert not lone.is_synced()
    lone.node.settle()
    assert lone.is_synced()
    ((to, ack),) = lone.take_sent("next_node_idx")
    assert (to, ack["success"], ack["next_node_idx"]) == (2, True, 4)


def test_p18_one_acknowledgement_per_read(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), entries("a"))
    lone.append_from(2, (2, 1), entries("b"))
    lone.append_from(2, (3, 1), entries("c"))
    lone.node.settle()
    assert [ack["next_node_idx"] for _, ack in lone.take_sent("next_node_idx")] == [5]


def test_p18_vote_is_on_disk_before_it_is_given(lone: LoneNode, tmp_path: Path) -> None:
    lone.receive(3, {"type": "request_vote", "term": 7, "last_log_index": 1, "last_log_term": 0})
    assert lone.take_sent("response_vote") == [(3, {"type": "response_vote", "term": 7})]
    on_disk = reopened(lone, tmp_path)
    assert (on_disk.getCurrentTerm(), on_disk.getVotedForNodeId()) == (7, "3")
    on_disk.close()


def test_p18_leader_counts_its_own_entries_only_once_synced(lone: LoneNode) -> None:
    lone.become_leader()
    assert lone.is_synced()
    lone.node.append_run([b"x"])
    assert not lone.is_synced()
    ack = {"type": "next_node_idx", "term": 1, "next_node_idx": 4, "reset": False, "success": True}
    lone.receive(2, ack)
    lone.node.tick()
    assert lone.is_synced()
    assert lone.node.commit_index == 3
    assert lone.machine.applied == [(3, b"x")]


def test_an_earlier_term_is_not_committed_by_counting(lone: LoneNode) -> None:
    """Raft §5.4.2: a majority has the entries, but another leader may still replace them."""
    lone.append_from(2, (1, 0), entries("a", "b"))
    lone.become_leader()
    assert lone.node.term == 2
    ack = {"type": "next_node_idx", "term": 2, "next_node_idx": 4, "reset": False, "success": True}
    lone.receive(2, ack)
    lone.round()
    assert lone.node.commit_index == 1
    lone.receive(2, {**ack, "next_node_idx": 5})
    lone.round()
    assert lone.node.commit_index == 4
    assert lone.machine.applied == [(2, b"a"), (3, b"b")]


def test_what_a_majority_has_is_committed_at_once(tmp_path: Path) -> None:
    lone = LoneNode(tmp_path / "five", voters=5)
    lone.become_leader(votes_of=(2, 3))
    lone.node.append_run([b"a", b"b", b"c", b"d"])
    lone.round()
    ack = {"type": "next_node_idx", "term": 1, "reset": False, "success": True}
    for voter_id, matched in ((2, 6), (3, 5), (4, 3), (5, 2)):
        lone.receive(voter_id, {**ack, "next_node_idx": matched + 1})
    lone.round()
    assert lone.node.commit_index == 5
    assert lone.machine.applied == [(3, b"a"), (4, b"b"), (5, b"c")]
    lone.close()


def test_p3_snapshot_message_does_not_advance_the_commit_index(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), entries("a", "b", "c"))
    lone.receive(3, {"type": "append_entries", "term": 2, "commit_index": 4, "serialized": None})
    assert lone.node.commit_index == 1


def test_p4_late_duplicate_does_not_truncate(lone: LoneNode) -> None:
    whole = entries("a", "b", "c", "d")
    lone.append_from(2, (1, 0), whole)
    lone.append_from(2, (1, 0), whole[:2])
    lone.append_from(2, (2, 1), [])
    assert lone.log() == whole


def test_p4_late_duplicate_acknowledges_only_what_it_proves(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), entries("a", "b", "c", "d"))
    lone.node.settle()
    lone.take_sent()
    lone.append_from(2, (1, 0), entries("a", "b"), commit_index=5)
    lone.node.settle()
    assert [ack["next_node_idx"] for _, ack in lone.take_sent("next_node_idx")] == [4]
    assert lone.node.commit_index == 3


def test_p4_real_conflict_truncates(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), entries("a", "b", "c"))
    lone.append_from(3, (1, 0), entries("a") + entries("x", term=2))
    assert lone.log() == entries("a") + entries("x", term=2)


def test_p4_conflict_below_the_commit_index_stops_the_voter(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), entries("a", "b", "c"), commit_index=4)
    with pytest.raises(SafetyViolation, match="committed"):
        lone.append_from(3, (2, 1), entries("x", term=2))


def test_p5_stale_acknowledgement_is_ignored(lone: LoneNode) -> None:
    lone.become_leader()
    stale = {
        "type": "next_node_idx",
        "term": 0,
        "next_node_idx": 3,
        "reset": False,
        "success": True,
    }
    lone.receive(3, stale)
    assert lone.node.match_index[lone.peer(3)] == 0
    lone.receive(3, {**stale, "term": 1})
    assert lone.node.match_index[lone.peer(3)] == 2


def test_p5_acknowledgement_of_an_earlier_term_is_not_sent(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), entries("a"))
    lone.receive(3, {"type": "request_vote", "term": 9, "last_log_index": 9, "last_log_term": 8})
    lone.node.settle()
    assert lone.take_sent("next_node_idx") == []


def test_p5_acknowledgements_carry_the_term(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), entries("a", term=6))
    lone.node.settle()
    assert [ack["term"] for _, ack in lone.take_sent("next_node_idx")] == [6]


def test_p6_failing_apply_is_not_swallowed(lone: LoneNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(commands: list[tuple[int, bytes]]) -> object:
        raise KeyError("bug")

    monkeypatch.setattr(lone.machine, "apply_run", fail)
    lone.append_from(2, (1, 0), entries("a"), commit_index=2)
    with pytest.raises(KeyError):
        lone.node.tick()


def test_p7_conflict_skips_the_whole_term(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), entries(*"abc") + entries(*"defghij", term=2))
    lone.node.settle()
    lone.take_sent()
    lone.append_from(3, (11, 3), [], term=3)
    lone.node.settle()
    ((_, ack),) = lone.take_sent("next_node_idx")
    assert (ack["success"], ack["reset"], ack["next_node_idx"]) == (False, True, 5)


def test_p8_no_term_is_spent_without_a_majority(lone: LoneNode) -> None:
    lone.node.election_deadline_s = clock_s() - 1
    lone.node.tick()
    assert lone.node.term == 0
    assert [(to, m["type"]) for to, m in lone.take_sent()] == [(2, "pre_vote"), (3, "pre_vote")]
    lone.receive(2, {"type": "response_pre_vote", "term": 0})
    lone.node.tick()
    assert lone.node.term == 1
    assert [m["type"] for _, m in lone.take_sent()] == ["request_vote", "request_vote"]


def test_p8_pre_vote_is_refused_while_a_leader_is_heard(lone: LoneNode) -> None:
    asked = {"type": "pre_vote", "term": 1, "last_log_index": 9, "last_log_term": 1}
    lone.append_from(2, (1, 0), entries("a"))
    lone.receive(3, asked)
    assert lone.take_sent("response_pre_vote") == []
    lone.transport.disconnect(lone.peer(2))
    lone.receive(3, asked)
    assert [to for to, _ in lone.take_sent("response_pre_vote")] == [3]


def test_p8_pre_vote_is_refused_to_a_shorter_log(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), entries("a", "b"))
    lone.transport.disconnect(lone.peer(2))
    lone.receive(3, {"type": "pre_vote", "term": 1, "last_log_index": 2, "last_log_term": 1})
    assert lone.take_sent("response_pre_vote") == []


def test_p8_voters_cannot_refuse_each_other_for_ever(lone: LoneNode) -> None:
    """Ours is the longer log, theirs the higher term: without its leader, ours takes the term."""
    lone.append_from(2, (1, 0), entries("a", "b"))
    lone.transport.disconnect(lone.peer(2))
    lone.receive(3, {"type": "pre_vote", "term": 7, "last_log_index": 2, "last_log_term": 1})
    assert lone.take_sent("response_pre_vote") == []
    assert lone.node.term == 7


def test_p8_higher_term_of_a_pre_vote_does_not_disturb_a_leader(lone: LoneNode) -> None:
    lone.become_leader()
    lone.receive(3, {"type": "pre_vote", "term": 7, "last_log_index": 9, "last_log_term": 6})
    assert lone.node.is_leader
    assert lone.node.term == 1


def test_p8_leader_of_the_past_is_answered_and_steps_down(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), [], term=5)
    lone.node.settle()
    lone.take_sent()
    lone.append_from(3, (1, 0), entries("late"), term=4)
    lone.node.settle()
    ((to, answer),) = lone.take_sent("next_node_idx")
    assert (to, answer["term"], answer["success"]) == (3, 5, False)
    assert lone.log() == []


def test_p8_leader_answered_in_a_higher_term_steps_down(lone: LoneNode) -> None:
    lone.become_leader()
    answer = {"type": "next_node_idx", "term": 9, "next_node_idx": 1}
    lone.receive(3, {**answer, "reset": False, "success": False})
    assert not lone.node.is_leader
    assert (lone.node.term, lone.node.leader) == (9, None)


def test_p17_sockets_are_read_before_the_deadline_counts(lone: LoneNode) -> None:
    """A stall of our own: the heartbeat lies in the socket when the deadline has passed."""
    descriptor = os.eventfd(1)

    def heartbeat_arrives(descr: int, _event: int) -> None:
        lone.node.poller.unsubscribe(descr)
        lone.append_from(2, (1, 0), [], term=1)

    lone.node.poller.subscribe(descriptor, heartbeat_arrives, READ)
    lone.node.election_deadline_s = clock_s() - 1
    lone.node.tick()
    os.close(descriptor)
    assert lone.take_sent("pre_vote") == []
    assert lone.node.leader == lone.peer(2)


def test_p15_follower_refuses_proposals_instead_of_forwarding(lone: LoneNode) -> None:
    lone.append_from(2, (1, 0), [], term=1)
    assert lone.node.append_run([b"x"]) is None
    lone.round()
    assert lone.take_sent("apply_command") == []


def test_votes_of_one_voter_count_once(tmp_path: Path) -> None:
    lone = LoneNode(tmp_path / "five", voters=5)
    lone.node.election_deadline_s = clock_s() - 1
    lone.node.tick()
    for voter_id in (2, 3):
        lone.receive(voter_id, {"type": "response_pre_vote", "term": 0})
    lone.node.tick()
    for _ in range(3):
        lone.receive(2, {"type": "response_vote", "term": 1})
    assert lone.node.state not in (FOLLOWER, LEADER), "it is a candidate still"
    lone.receive(3, {"type": "response_vote", "term": 1})
    assert lone.node.is_leader
    lone.close()


def test_what_is_under_way_is_not_sent_again(lone: LoneNode) -> None:
    lone.become_leader()
    lone.round()
    for name in (b"a", b"b", b"c"):
        lone.node.append_run([name])
        lone.round()
    lone.take_sent()
    lone.receive(
        2,
        {"type": "next_node_idx", "term": 1, "next_node_idx": 3, "reset": False, "success": True},
    )
    lone.round()
    assert all(not m.get("entries") for to, m in lone.take_sent("append_entries") if to == 2)


# --- snapshots ----------------------------------------------------------------------------------


def snapshot_message(data: bytes, term: int = 2) -> dict[str, object]:
    return {
        "type": "append_entries",
        "term": term,
        "commit_index": 50,
        "serialized": (data, True, True),
    }


def snapshot_bytes(tmp_path: Path, index: int, term: int) -> bytes:
    path = tmp_path / "made"
    write_snapshot(path, SnapshotPosition(index, term), [b"%d:state" % index])
    return path.read_bytes()


def test_p1_snapshot_newer_than_the_journal_keeps_its_suffix(tmp_path: Path) -> None:
    """The crash between a snapshot's rename and the compaction of the journal."""
    lone = LoneNode(tmp_path / "voter")
    lone.append_from(2, (1, 0), entries("a", "b", "c", "d"), commit_index=5)
    lone.round()
    lone.close()
    write_snapshot(lone.snapshots.path, SnapshotPosition(3, 1), [b"2:a", b"3:b"])
    again = LoneNode(tmp_path / "voter")
    assert [command for _, command in again.machine.applied] == [b"a", b"b", b"c", b"d"]
    assert again.log() == entries("a", "b", "c", "d")
    again.close()


def test_p1_journal_behind_its_snapshot_is_refused(tmp_path: Path) -> None:
    lone = LoneNode(tmp_path / "voter", snapshot_max_entries=2, retained_entries=0)
    lone.append_from(2, (1, 0), entries("a", "b", "c", "d"), commit_index=5)
    while lone.journal.first_index == 1:
        lone.round()
    lone.close()
    lone.snapshots.path.unlink()
    with pytest.raises(SafetyViolation, match="no snapshot"):
        LoneNode(tmp_path / "voter")


def test_log_is_compacted_by_size_on_both_sides_of_the_snapshot(tmp_path: Path) -> None:
    """Entries lie in memory: ten large ones weigh more than a thousand small ones."""
    # Whether a fast disk is done with all rounds within one pause must not matter.
    lone = LoneNode(
        tmp_path / "voter", snapshot_max_bytes=5_000, retained_bytes=2_500, apply_pause_s=0.0
    )
    for index in range(1, 21):
        command = b"\0" + bytes(999)
        lone.append_from(2, (index, 1 if index > 1 else 0), [(command, 1)], commit_index=index + 1)
        lone.round()
        lone.round()
    position = lone.snapshots.position()
    assert position is not None
    assert position.last_index > 15
    # The snapshot's own last entry, and what fits before it.
    assert position.last_index - lone.journal.first_index == 3
    assert len(lone.journal) < 10
    lone.close()


def test_p1_committed_entries_missing_from_the_journal_are_refused(tmp_path: Path) -> None:
    lone = LoneNode(tmp_path / "voter")
    lone.append_from(2, (1, 0), entries("a", "b"), commit_index=3)
    lone.round()
    lone.journal.deleteEntriesFrom(2)
    lone.journal.sync()
    lone.close()
    with pytest.raises(SafetyViolation, match="journal ends at 2"):
        LoneNode(tmp_path / "voter")


def test_p11_installed_snapshot_replaces_state_and_log(lone: LoneNode, tmp_path: Path) -> None:
    lone.append_from(2, (1, 0), entries("a"))
    lone.receive(3, snapshot_message(snapshot_bytes(tmp_path, 40, 2)))
    lone.round()
    assert lone.machine.applied == [(40, b"state")]
    assert (lone.journal.first_index, lone.node.last_applied, lone.node.commit_index) == (40,) * 3
    lone.node.settle()
    acks = [ack for to, ack in lone.take_sent("next_node_idx") if ack["success"] and to == 3]
    assert acks[-1]["next_node_idx"] == 41
    lone.append_from(3, (40, 2), entries("next", term=2), commit_index=41)
    lone.node.tick()
    assert lone.machine.applied[-1] == (41, b"next")


def test_p3_installed_snapshot_acknowledges_only_what_is_in_it(
    lone: LoneNode, tmp_path: Path
) -> None:
    lone.append_from(2, (1, 0), entries("a", "b", "c", "d"))
    lone.node.settle()
    lone.take_sent()
    lone.receive(3, snapshot_message(snapshot_bytes(tmp_path, 3, 1)))
    lone.round()
    lone.node.settle()
    assert lone.log() == entries("a", "b", "c", "d")
    acks = [ack for to, ack in lone.take_sent("next_node_idx") if ack["success"] and to == 3]
    assert [ack["next_node_idx"] for ack in acks] == [4]


def test_p11_truncated_snapshot_is_refused_and_may_come_again(
    lone: LoneNode, tmp_path: Path
) -> None:
    whole = snapshot_bytes(tmp_path, 40, 2)
    lone.receive(3, snapshot_message(whole[:-3]))
    lone.round()
    assert lone.machine.applied == []
    assert lone.node.last_applied == 1
    assert not lone.snapshots.path.exists()
    lone.receive(3, snapshot_message(whole))
    lone.round()
    assert lone.node.last_applied == 40


def test_p11_older_snapshot_does_not_replace_a_newer_one(lone: LoneNode, tmp_path: Path) -> None:
    for index, term in ((40, 2), (20, 1)):
        lone.receive(3, snapshot_message(snapshot_bytes(tmp_path, index, term)))
        lone.round()
    assert lone.snapshots.position() == (40, 2)
    assert lone.node.last_applied == 40


def test_voter_stays_alive_while_it_checks_a_snapshot(lone: LoneNode, tmp_path: Path) -> None:
    """Decoding 200,000 partitions may take longer than the leader waits for an answer."""
    lone.background.at_once = False
    lone.receive(3, snapshot_message(snapshot_bytes(tmp_path, 40, 2)))
    lone.round()
    lone.take_sent()
    # The next entries, the next heartbeat, and the whole snapshot once more.
    lone.append_from(3, (41, 2), entries("next", term=2), commit_index=41)
    lone.append_from(3, (42, 2), [], commit_index=41)
    lone.receive(3, snapshot_message(b"again"))
    lone.round()
    lone.round()
    answers = [m for to, m in lone.take_sent("next_node_idx") if to == 3]
    assert len(answers) == 3
    assert not any(answer["success"] or answer["reset"] for answer in answers)
    assert lone.node.last_applied == 1
    lone.background.run()
    lone.round()
    assert lone.machine.applied == [(40, b"state")]


def test_p1_older_snapshot_that_is_still_written_never_replaces_a_received_one(
    tmp_path: Path,
) -> None:
    lone = LoneNode(tmp_path / "voter", snapshot_max_entries=2, retained_entries=0)
    lone.background.at_once = False
    lone.append_from(2, (1, 0), entries("a", "b"), commit_index=3)
    lone.round()
    assert lone.snapshots.writing
    lone.receive(3, snapshot_message(snapshot_bytes(tmp_path, 40, 2)))
    lone.background.run_newest()
    lone.round()
    assert lone.snapshots.position() is None
    assert lone.node.last_applied == 3
    lone.background.run()
    lone.round()
    assert lone.snapshots.position() == (40, 2)
    assert (lone.node.last_applied, lone.journal.first_index) == (40, 40)
    lone.close()


def test_p11_snapshot_that_cannot_be_read_stops_the_voter(
    lone: LoneNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksums are right, so another voter has it: what is here must not be touched."""

    def fail(chunks: object) -> None:
        raise ValueError("a format of the future")

    monkeypatch.setattr(lone.snapshots, "_decode", fail)
    lone.receive(3, snapshot_message(snapshot_bytes(tmp_path, 40, 2)))
    with pytest.raises(ValueError, match="future"):
        lone.round()
    assert not lone.snapshots.path.exists()


def test_p7_answers_to_what_was_sent_meanwhile_do_not_undo_going_back(lone: LoneNode) -> None:
    """Or leader and follower go round and round: each time the same messages are sent."""
    lone.become_leader()
    lone.node.append_run([b"%d" % number for number in range(8)])
    lone.round()
    conflict = {"type": "next_node_idx", "term": 1, "reset": True, "success": False}
    for index in (3, 6, 6):
        lone.receive(3, {**conflict, "next_node_idx": index})
    assert lone.node.next_index[lone.peer(3)] == 3
    lone.receive(3, {**conflict, "next_node_idx": 5, "reset": False, "success": True})
    assert lone.node.next_index[lone.peer(3)] == 5


def leader_beyond_voter_3(tmp_path: Path) -> LoneNode:
    """It has compacted what voter 3 asks for: only a snapshot helps."""
    lone = LoneNode(tmp_path / "voter", snapshot_max_entries=2, retained_entries=1)
    lone.become_leader()
    lone.node.append_run([b"a", b"b", b"c"])
    lone.round()
    ack = {"type": "next_node_idx", "term": 1, "next_node_idx": 6, "reset": False, "success": True}
    lone.receive(2, ack)
    while lone.journal.first_index == 1:
        lone.round()
    lone.receive(3, {**ack, "next_node_idx": 2, "reset": True, "success": False})
    return lone


def test_snapshot_goes_to_a_follower_that_lags(tmp_path: Path) -> None:
    lone = leader_beyond_voter_3(tmp_path)
    lone.take_sent()
    lone.node.send_append_entries()
    (piece,) = [m["serialized"] for to, m in lone.take_sent("append_entries") if "serialized" in m]
    assert piece == (lone.snapshots.path.read_bytes(), True, True)
    assert lone.node.next_index[lone.peer(3)] == 6
    lone.close()


def test_leader_does_not_wait_for_a_connection_that_is_full_of_snapshot(tmp_path: Path) -> None:
    """The library asks for pieces again and again, for a whole heartbeat's period."""
    lone = leader_beyond_voter_3(tmp_path)
    lone.transport.is_full = True
    lone.take_sent()
    lone.node.send_append_entries()
    (waits,) = [message for to, message in lone.take_sent("append_entries") if to == 3]
    assert waits["serialized"] is None
    lone.transport.is_full = False
    lone.node.send_append_entries()
    (piece,) = [m["serialized"] for to, m in lone.take_sent("append_entries") if "serialized" in m]
    assert piece == (lone.snapshots.path.read_bytes(), True, True)
    lone.close()


def test_restart_applies_what_was_committed(tmp_path: Path) -> None:
    lone = LoneNode(tmp_path / "voter")
    lone.append_from(2, (1, 0), entries("a", "b"), commit_index=2)
    lone.round()
    lone.close()
    again = LoneNode(tmp_path / "voter")
    assert again.machine.applied == [(2, b"a")]
    assert again.node.election_deadline_s > clock_s()
    again.close()


def reopened(lone: LoneNode, tmp_path: Path) -> LmdbJournal:
    """What a crash at this moment would leave."""
    copy = tmp_path / "copy.lmdb"
    copy.write_bytes((lone.folder / "journal.lmdb").read_bytes())
    return LmdbJournal(copy)
