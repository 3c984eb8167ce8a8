"""What a voter keeps through crashes and damage (P1, P2, P10, P11, P13)."""

import gc
import struct
import traceback
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest
from pysyncobj.journal import FileJournal

from quorate.quorum.raft.storage.journal import RaftJournal
from quorate.quorum.raft.storage.lmdb_journal import LmdbJournal, LmdbStore
from quorate.quorum.raft.storage.snapshot_file import SnapshotPosition, write_snapshot
from tests.support.raft_sides import Clock, Named, Side, StockSide, fault


def named(names: str, term: int = 1) -> list[Named]:
    return [(name.encode(), term) for name in names]


def commit_from_2(voter: Side, names: str) -> None:
    """Voter 2 leads in term 1; all of ``names`` are committed, acknowledged and applied."""
    voter.append_from(2, (1, 0), named(names), commit_index=1 + len(names))
    voter.tick()


def snapshot(voter: Side) -> None:
    """Write a snapshot of what is applied; it has its name, the journal is not compacted yet."""
    if isinstance(voter, StockSide):
        voter.voter.forceLogCompaction()
        voter.tick()
        return
    chunks = [b"%d:%s" % (index, name) for index, name in enumerate(voter.applied, 2)]
    position = SnapshotPosition(1 + len(voter.applied), 1)
    write_snapshot(voter.folder / "metadata.snapshot", position, chunks)


def snapshot_path(voter: Side) -> Path:
    return voter.folder / ("dump" if isinstance(voter, StockSide) else "metadata.snapshot")


def journal_path(voter: Side) -> Path:
    return voter.folder / ("journal" if isinstance(voter, StockSide) else "journal.lmdb")


@fault("P1", "the restart drops what was acknowledged after the snapshot")
def test_p1_crash_between_snapshot_and_compaction_loses_nothing(
    voter: Side, tmp_path: Path, closing: Callable[[Side], Side]
) -> None:
    commit_from_2(voter, "abcd")
    snapshot(voter)
    voter.append_from(2, (5, 1), named("ef"))
    voter.answer()
    # Killed here: both are acknowledged, and the journal still begins with the first entry.
    again = closing(voter.crash(tmp_path / "crashed"))
    assert [name for name, _ in again.log()][-2:] == [b"e", b"f"]


class Killed(Exception):
    """The process ends here."""


@fault("P2", "removing the head rewrites the rest in place: a crash midway loses it")
def test_p2_crash_while_the_head_is_removed_loses_no_entry(
    side: type[Side], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 entries, of which the first 10 go; killed in the middle of it."""
    path = tmp_path / "journal"
    journal = new_journal(side, path)
    for index in range(1, 501):
        journal.add(b"\x00%d" % index, index, 1)
    flush(journal)
    with monkeypatch.context() as patch:
        kill_midway(journal, patch)
        with pytest.raises(Killed):
            remove_head(journal, 10)
    (tmp_path / "crashed").write_bytes(path.read_bytes())
    journal._destroy()
    left = new_journal(side, tmp_path / "crashed")
    indexes = [index for _, index, _ in left[:]]
    left._destroy()
    assert indexes[-490:] == list(range(11, 501))


def new_journal(side: type[Side], path: Path) -> FileJournal | LmdbJournal:
    return FileJournal(str(path)) if side is StockSide else LmdbJournal(path)


def flush(journal: FileJournal | RaftJournal) -> None:
    if isinstance(journal, RaftJournal):
        journal.sync()
    else:
        journal.flush()


def remove_head(journal: FileJournal | RaftJournal, count: int) -> None:
    journal.deleteEntriesTo(count)
    flush(journal)


def kill_midway(journal: FileJournal | RaftJournal, patch: pytest.MonkeyPatch) -> None:
    """Ours: everything is in LMDB's transaction, only the commit is missing."""
    if isinstance(journal, RaftJournal):
        write_entries = LmdbStore._write_entries

        def write_and_die(self: LmdbStore, *arguments: object) -> None:
            write_entries(self, *arguments)  # type: ignore[arg-type]
            raise Killed

        patch.setattr(LmdbStore, "_write_entries", write_and_die)
        return
    add, added = journal.add, iter(range(100))

    def add_or_die(*entry: object) -> None:
        if next(added, None) is None:
            raise Killed
        add(*entry)

    patch.setattr(journal, "add", add_or_die)


def refused(start: Callable[[], Side]) -> bool:
    """Whether the voter says clearly that it does not start on this data."""
    try:
        start().close()
    except RuntimeError:
        return True
    return False


def damage(path: Path, change: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


@fault("P10", "a flipped byte of an entry is applied")
def test_p10_flipped_byte_in_an_entry_is_never_applied(voter: Side, tmp_path: Path) -> None:
    commit_from_2(voter, "ab")
    voter.append_from(2, (3, 1), [(b"precious", 1)])
    voter.tick()
    crashed = voter.crashed(tmp_path / "crashed")

    def flip(content: bytearray) -> None:
        at = content.find(b"precious")
        while at >= 0:
            content[at] ^= 1
            at = content.find(b"precious", at)

    damage(crashed / journal_path(voter).name, flip)
    assert refused(lambda: voter.restarted(crashed))


@fault("P10", "a vote that cannot be read is forgotten, and given a second time")
def test_p10_damaged_vote_is_not_given_again(
    voter: Side, tmp_path: Path, closing: Callable[[Side], Side]
) -> None:
    """Only the record of term and vote is damaged, every byte of it."""
    asks = {"type": "request_vote", "term": 1, "last_log_index": 9, "last_log_term": 1}
    voter.receive(2, asks)
    assert_voted(voter)
    crashed = voter.crashed(tmp_path / "crashed")
    if isinstance(voter, StockSide):
        damage(crashed / "journal.meta", lambda content: content.__setitem__(slice(None), b"?"))
    else:
        overwrite_meta_record(crashed / "journal.lmdb")
    try:
        again = closing(voter.restarted(crashed))
    except RuntimeError:
        return
    again.receive(3, asks)
    assert again.take_sent("response_vote") == []


def assert_voted(voter: Side) -> None:
    if not voter.take_sent("response_vote"):
        raise RuntimeError("the vote was not given")


def overwrite_meta_record(path: Path) -> None:
    env = lmdb.open(str(path), subdir=False, max_dbs=2)
    with env.begin(write=True) as txn:
        txn.put(b"meta", b"?", db=env.open_db(b"meta", txn=txn))
    env.close()


@fault("P10", "a tail that the crash left as zeros is an error of struct, not of the journal")
def test_p10_tail_of_zeros_is_refused_with_a_reason(voter: Side, tmp_path: Path) -> None:
    """The pages of a file that is not synced are written in any order: the head came first."""
    commit_from_2(voter, "a" * 300)
    crashed = voter.crashed(tmp_path / "crashed")
    path = crashed / journal_path(voter).name
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + bytes(len(whole) - 8192))
    try:
        says_why = refused(lambda: voter.restarted(crashed))
    except struct.error as error:
        says_why = False
        traceback.clear_frames(error.__traceback__)  # They hold the stock journal's open file.
    gc.collect()
    assert says_why


@fault("P11", "a truncated snapshot is only logged: the voter leads, with nothing")
def test_p11_truncated_snapshot_is_refused(voter: Side, tmp_path: Path) -> None:
    commit_from_2(voter, "abcd")
    snapshot(voter)
    crashed = voter.crashed(tmp_path / "crashed")
    cut = crashed / snapshot_path(voter).name
    cut.write_bytes(cut.read_bytes()[:-10])
    assert refused(lambda: voter.restarted(crashed))


@fault("P13", "methods are numbered by name: a new one changes what old entries do")
def test_p13_newer_version_reads_old_entries_as_they_were_meant(
    lone: Side, tmp_path: Path, closing: Callable[[Side], Side], clock: Clock
) -> None:
    lead_alone(lone, clock)
    for name in (b"a", b"b"):
        lone.propose(name, lambda _result, _reason: None)
    for _ in range(3):
        lone.tick()
    if lone.applied != [b"a", b"b"]:
        raise RuntimeError("nothing was committed")
    newer = closing(lone.crash(tmp_path / "upgraded", newer=True))
    lead_alone(newer, clock)
    newer.tick()
    assert newer.applied == [b"a", b"b"]


def lead_alone(lone: Side, clock: Clock) -> None:
    clock.advance(2)
    for _ in range(3):
        lone.tick()
    if not lone.leads:
        raise RuntimeError("a lone voter does not lead")
