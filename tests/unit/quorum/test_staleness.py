"""A voter whose data folder is an old copy of itself: who knows it, and what it may do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from quorate.common.types import VoterId
from quorate.quorum.operations.stale_folder import STALE_FILE, remember_stale, require_not_stale
from quorate.quorum.raft.admission import Admission
from quorate.quorum.raft.leaving import VoterStale
from quorate.quorum.raft.network.raft_connection import Connection
from quorate.quorum.raft.network.raft_frames import LENGTH_BYTES, encode_hello, encode_refusal
from quorate.quorum.raft.staleness import CheckedFolder, LogEnd, lacking
from quorate.quorum.raft.storage.journal import RaftJournal
from quorate.quorum.raft.storage.lmdb_journal import LmdbJournal
from quorate.quorum.raft.storage.promises import (
    Promise,
    decode_promises,
    encode_promises,
    strongest,
)
from quorate_proto.v1.raft_pb2 import RAFT_REFUSAL_STALE, RaftHello, RaftPromise, RaftRefusal
from tests.support.metadata import quorum_voter
from tests.support.raft_node import LoneNode
from tests.unit.quorum.test_transport import CLUSTER, Kept, transport_of

OWN = quorum_voter(1)
PATIENCE_S = 1.2


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[RaftJournal]:
    """Of a voter in term 3 that voted for voter 2: entries 1 to 4, of terms 1, 1, 2 and 3."""
    journal = LmdbJournal(tmp_path / "journal.lmdb")
    for index, term in enumerate((1, 1, 2, 3), 1):
        journal.add(b"\x00x", index, term)
    journal.setRaftCommitIndex(3)
    journal.setCurrentTerm(3, "2")
    yield journal
    journal.close()


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[LoneNode]:
    lone = LoneNode(tmp_path / "lone")
    yield lone
    lone.close()


class Marks(list[str]):
    """What a folder was marked with."""


def checked(journal: RaftJournal, marks: list[str] | None = None) -> CheckedFolder:
    remember = (marks if marks is not None else Marks()).append
    return CheckedFolder(1, OWN.directory_id, journal, PATIENCE_S, remember)


def hello_of(voter_id: int, promise: Promise | None = None, **fields: Any) -> RaftHello:  # noqa: ANN401
    directory_id = quorum_voter(voter_id).directory_id
    hello = RaftHello(voter_id=voter_id, directory_id=directory_id, **fields)
    if promise is not None:
        hello.promise.CopyFrom(RaftPromise(**promise._asdict()))
    return hello


# --- what is lacking ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("promise", "lacks"),
    [
        (Promise(b"", 4), "saw it in term 4"),
        (Promise(b"", 3, voted=True), ""),
        (Promise(b"", 3, 4, 3), ""),
        (Promise(b"", 3, 5, 3), "has entry 5, and it ends at 4"),
        (Promise(b"", 3, 3, 3), "has entry 3 of term 3, and it has another one"),
        (Promise(b"", 2, 9, 2, voted=True), ""),
    ],
    ids=["term", "vote", "entry", "fewer entries", "another entry", "an earlier term"],
)
def test_a_folder_lacks_what_it_promised_in_its_own_term_or_a_later_one(
    journal: RaftJournal, promise: Promise, lacks: str
) -> None:
    found = lacking(promise, 2, journal)
    assert lacks in found
    assert bool(found) == bool(lacks)


def test_a_vote_for_another_in_the_term_is_a_vote_forgotten(journal: RaftJournal) -> None:
    assert "has its vote in term 3" in lacking(Promise(b"", 3, voted=True), 4, journal)


def test_what_lies_behind_the_snapshot_is_not_lacking(journal: RaftJournal) -> None:
    journal.deleteEntriesTo(3)
    assert not lacking(Promise(b"", 3, 2, 1), 2, journal)


def test_the_strongest_promise_is_of_the_newest_term_and_has_the_most_of_it() -> None:
    folder = b"a" * 16
    kept = strongest(None, Promise(folder, 2, 5, 1))
    kept = strongest(kept, Promise(folder, 2, 4, 1))
    assert kept == Promise(folder, 2, 5, 1)
    kept = strongest(kept, Promise(folder, 2, voted=True))
    assert kept == Promise(folder, 2, 5, 1, voted=True)
    assert strongest(kept, Promise(folder, 1, 9, 1)) is kept
    assert strongest(kept, Promise(folder, 3)) == Promise(folder, 3)
    assert strongest(kept, Promise(b"b" * 16, 1)) == Promise(b"b" * 16, 1), "another folder"


def test_promises_are_read_as_they_were_written() -> None:
    promises = {1: Promise(b"a" * 16, 7, 5, 6, voted=True), 300: Promise(b"b" * 16, 1 << 40)}
    encoded = encode_promises(promises)
    assert decode_promises(encoded) == promises
    for wrong in (b"", encoded[:-1], encoded + b"\x00"):
        with pytest.raises(ValueError, match="promises"):
            decode_promises(wrong)


# --- the voter that is told ---------------------------------------------------------------------


def test_a_voter_that_lacks_what_it_promised_leaves_and_marks_its_folder(
    journal: RaftJournal,
) -> None:
    marks = Marks()
    folder = checked(journal, marks)
    with pytest.raises(VoterStale, match=r"voter 3 knows that it has entry 5.*remove-voter 1"):
        folder.heard(hello_of(3, Promise(OWN.directory_id, 3, 5, 3)))
    assert len(marks) == 1
    assert "entry 5" in marks[0]
    assert not folder.is_vouched


def test_the_promise_of_another_folder_is_not_its_own(journal: RaftJournal) -> None:
    checked(journal).heard(hello_of(3, Promise(b"f" * 16, 9)))


def test_a_hello_tells_the_promise_and_what_is_committed(journal: RaftJournal) -> None:
    promise = Promise(b"f" * 16, 3, 4, 3, voted=True)
    journal.note_promise(2, promise)
    hello = RaftHello()
    checked(journal).tell(hello, 2)
    assert hello.promise == RaftPromise(**promise._asdict())
    assert (hello.term, hello.commit_index, hello.commit_term) == (3, 3, 2)
    hello = RaftHello()
    checked(journal).tell(hello, 3)
    assert not hello.HasField("promise")


def admission_of(journal: RaftJournal, voters: int = 3) -> Admission:
    members = [quorum_voter(number) for number in range(1, voters + 1)]
    folders = {int(voter.voter_id): voter.directory_id for voter in members}
    return Admission(OWN, members, journal.is_fresh, folders, folder=checked(journal))


def test_a_voter_that_was_started_takes_part_when_it_has_heard_all_others(
    journal: RaftJournal,
) -> None:
    admission = admission_of(journal)
    admission.check(100.0)
    assert admission.is_admitted
    assert not admission.takes_part
    admission.heard(hello_of(2))
    assert not admission.takes_part
    admission.heard(hello_of(3))
    assert admission.takes_part


def test_a_voter_does_not_wait_for_ever_for_one_that_is_down(journal: RaftJournal) -> None:
    admission = admission_of(journal)
    admission.check(100.0)
    admission.heard(hello_of(2))
    admission.check(100.0 + PATIENCE_S - 0.01)
    assert not admission.takes_part
    admission.check(100.0 + PATIENCE_S)
    assert admission.takes_part


def test_a_voter_without_others_waits_for_nobody(journal: RaftJournal) -> None:
    admission = admission_of(journal, voters=1)
    admission.check(100.0)
    assert admission.takes_part


# --- what others know ---------------------------------------------------------------------------


def promises_to(lone: LoneNode) -> dict[int, Promise]:
    return {v: p._replace(directory_id=b"") for v, p in lone.journal.promises.items()}


def is_known(lone: LoneNode, *voter_ids: int) -> None:
    for voter_id in voter_ids:
        lone.node.admission.heard(hello_of(voter_id))


def test_a_leader_remembers_votes_and_acknowledgements(lone: LoneNode) -> None:
    is_known(lone, 2, 3)
    lone.become_leader((2,))
    term, last = lone.node.term, lone.journal.last_index
    assert promises_to(lone) == {2: Promise(b"", term, voted=True)}
    answer = {"type": "next_node_idx", "term": term, "reset": False, "success": True}
    lone.receive(3, {**answer, "next_node_idx": last + 1})
    assert promises_to(lone)[3] == Promise(b"", term, last, term)
    lone.receive(2, {**answer, "next_node_idx": last})
    assert promises_to(lone)[2] == Promise(b"", term, last - 1, 0, voted=True)
    lone.receive(3, {**answer, "next_node_idx": 1, "success": False, "reset": True})
    assert promises_to(lone)[3].last_index == last, "a refusal takes nothing back"


def test_promises_cost_no_fsync_and_are_kept_within_a_second(lone: LoneNode) -> None:
    is_known(lone, 2, 3)
    lone.become_leader((2,))
    lone.round()
    assert lone.is_synced()
    answer = {"type": "next_node_idx", "term": lone.node.term, "reset": False, "success": True}
    lone.receive(3, {**answer, "next_node_idx": lone.journal.last_index + 1})
    assert lone.is_synced(), "nothing waits for the disk"
    promises = lone.journal.promises
    lone.journal.onOneSecondTimer()
    lone.journal.close()
    lone.journal = LmdbJournal(lone.folder / "journal.lmdb")
    assert lone.journal.promises == promises


def test_a_follower_remembers_what_the_leader_called_committed(lone: LoneNode) -> None:
    is_known(lone, 2, 3)
    entries = [(b"\x00a", 2, 4), (b"\x00b", 3, 4)]
    append = {"type": "append_entries", "term": 4, "prevLogIdx": 1, "prevLogTerm": 0}
    lone.receive(2, {**append, "entries": entries, "commit_index": 2})
    assert promises_to(lone) == {2: Promise(b"", 4, 2, 4)}, "3 may not be on the leader's disk"


def test_who_asks_for_votes_is_in_that_term(lone: LoneNode) -> None:
    is_known(lone, 2, 3)
    asked = {"type": "request_vote", "term": 6, "last_log_index": 1, "last_log_term": 0}
    lone.receive(2, asked)
    assert promises_to(lone)[2] == Promise(b"", 6)


def test_the_promises_of_a_removed_voter_are_forgotten(lone: LoneNode) -> None:
    lone.journal.note_promise(2, Promise(b"f" * 16, 1))
    lone.journal.note_promise(3, Promise(b"f" * 16, 1))
    lone.journal.forget_promises(3)
    assert lone.journal.promises.keys() == {2}


# --- what is not remembered does no harm --------------------------------------------------------


def votes(lone: LoneNode, **asked: int) -> list[int]:
    asked = {"last_log_index": 1, "last_log_term": 0, **asked}
    lone.take_sent()
    lone.receive(2, {"type": "request_vote", **asked})
    return [to for to, _ in lone.take_sent("response_vote")]


def with_checked_folder(lone: LoneNode) -> CheckedFolder:
    member = lone.members[0]
    folder = CheckedFolder(1, member.directory_id, lone.journal, PATIENCE_S, Marks().append)
    lone.node.admission = Admission(member, lone.members, lambda: False, folder=folder)
    return folder


def test_no_vote_is_given_in_a_term_that_was_heard_of_before_taking_part(lone: LoneNode) -> None:
    folder = with_checked_folder(lone)
    folder.heard(hello_of(3, term=5))
    folder.vouch()
    folder.heard(hello_of(3, term=6))
    assert votes(lone, term=5) == []
    assert lone.node.term == 5, "on disk before anything else"
    assert votes(lone, term=6) == [2]


def test_nothing_is_answered_before_the_folder_is_vouched_for(lone: LoneNode) -> None:
    with_checked_folder(lone)
    assert votes(lone, term=5) == []
    assert lone.node.term == 0


def test_no_vote_for_a_voter_that_lacks_what_is_committed(lone: LoneNode) -> None:
    folder = with_checked_folder(lone)
    folder.vouch()
    folder.heard(hello_of(3, commit_index=7, commit_term=4))
    assert folder.committed == LogEnd(4, 7)
    assert votes(lone, term=5, last_log_index=6, last_log_term=4) == []
    pre_vote = {"type": "pre_vote", "term": 5, "last_log_index": 6, "last_log_term": 4}
    lone.receive(2, pre_vote)
    assert lone.take_sent("response_pre_vote") == []
    assert votes(lone, term=5, last_log_index=7, last_log_term=4) == [2]


def test_a_voter_that_lacks_what_is_committed_does_not_stand(lone: LoneNode) -> None:
    folder = with_checked_folder(lone)
    folder.vouch()
    assert lone.node._is_candidate()
    folder.heard(hello_of(3, commit_index=7, commit_term=4))
    assert not lone.node._is_candidate()


# --- who is told --------------------------------------------------------------------------------


def test_a_stale_voter_tells_all_that_it_leaves(lone: LoneNode) -> None:
    with_checked_folder(lone)
    lone.node.admission.follow(lone.machine.voter_set)
    transport = transport_of(lone, lone.node.admission)
    other, teller = Kept(3), Kept(2)
    transport._connections[3] = cast(Connection, other)
    hello = hello_of(2, Promise(lone.members[0].directory_id, 9), cluster_id=CLUSTER, format=1)
    hello.directory_id = lone.members[1].directory_id
    with pytest.raises(VoterStale):
        transport._on_frame(cast(Connection, teller), encode_hello(hello)[LENGTH_BYTES:])
    for told in (other, teller):
        assert [said.reason for said in told.sent] == [RAFT_REFUSAL_STALE]  # type: ignore[union-attr]


def test_who_is_told_shows_it_until_the_voter_is_welcome_again(lone: LoneNode) -> None:
    admission = lone.node.admission
    transport = transport_of(lone, admission)
    farewell = RaftRefusal(reason=RAFT_REFUSAL_STALE, detail="an old copy")
    transport._on_frame(cast(Connection, Kept(2)), encode_refusal(farewell)[LENGTH_BYTES:])
    assert admission.stale == {2: "an old copy"}
    admission.check(0.0)
    admission.check(1_000.0)  # It is not this voter that is refused.
    admission.heard(hello_of(2))
    assert admission.stale == {}


def test_a_voter_of_an_earlier_release_does_not_take_it_for_its_own_removal(
    lone: LoneNode,
) -> None:
    """It knows no such reason, and goes by the voter set that the refusal follows from: none."""
    earlier = lone.node.admission
    assert not earlier.refused(RaftRefusal(reason=RAFT_REFUSAL_STALE), 0.0)
    earlier.check(1_000.0)


# --- the mark -----------------------------------------------------------------------------------


def test_a_marked_folder_is_refused_until_it_is_replaced(tmp_path: Path) -> None:
    require_not_stale(tmp_path)
    remember_stale(tmp_path, "it is an old copy")
    with pytest.raises(VoterStale, match="it is an old copy"):
        require_not_stale(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"detail": "x"}', b"\xff"])
def test_a_damaged_mark_is_a_mark(tmp_path: Path, content: bytes) -> None:
    (tmp_path / STALE_FILE).write_bytes(content)
    with pytest.raises(VoterStale, match="remove-voter"):
        require_not_stale(tmp_path)


def test_a_disk_that_takes_no_mark_does_not_keep_the_voter_from_leaving(tmp_path: Path) -> None:
    remember_stale(tmp_path / "not there", "it is an old copy")


def test_the_folder_of_the_voter_that_joins_is_its_own(journal: RaftJournal) -> None:
    """A voter that was removed, emptied and added again has another directory id."""
    joined = msgspec.structs.replace(OWN, directory_id=b"n" * 16)
    folder = CheckedFolder(1, joined.directory_id, journal, PATIENCE_S, Marks().append)
    folder.heard(hello_of(VoterId(2), Promise(OWN.directory_id, 99)))
