"""The journal: what is on disk when, and that nothing else is ever taken for it (P2, P10, P18)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.quorum.raft.storage.journal import JournalCorrupt, RaftEntry
from quorate.quorum.raft.storage.journal_runs import runs_of
from quorate.quorum.raft.storage.lmdb_journal import LmdbJournal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.lmdb"


@pytest.fixture
def journal(path: Path) -> Iterator[LmdbJournal]:
    opened = LmdbJournal(path)
    for index in range(1, 11):
        opened.add(b"\x00entry %d" % index, index, 1)
        opened.sync()
    yield opened
    opened.close()


def after_crash(path: Path) -> LmdbJournal:
    """The journal as a crash at this moment leaves it: what was not synced is not in the file."""
    copy = path.with_name("crashed.lmdb")
    copy.write_bytes(path.read_bytes())
    return LmdbJournal(copy)


def contents(journal: LmdbJournal) -> list[RaftEntry]:
    return journal[:]


def indexes(journal: LmdbJournal) -> list[int]:
    return [index for _, index, _ in journal[:]]


def test_d1_entries_survive_a_crash_once_synced(journal: LmdbJournal, path: Path) -> None:
    journal.add(b"\x00late", 11, 2)
    crashed = after_crash(path)
    assert indexes(crashed) == list(range(1, 11))
    crashed.close()
    journal.sync()
    crashed = after_crash(path)
    assert contents(crashed) == contents(journal)
    crashed.close()


def test_p18_term_and_vote_are_durable_at_once(journal: LmdbJournal, path: Path) -> None:
    journal.add(b"\x00before the vote", 11, 4)
    journal.setCurrentTerm(5, "2")
    crashed = after_crash(path)
    assert (crashed.getCurrentTerm(), crashed.getVotedForNodeId()) == (5, "2")
    assert crashed.last_index == 11
    crashed.close()


def test_p10_vote_for_nobody_is_not_a_vote(journal: LmdbJournal, path: Path) -> None:
    journal.setCurrentTerm(6, None)
    crashed = after_crash(path)
    assert crashed.getVotedForNodeId() is None
    crashed.close()


def test_p2_truncation_is_all_or_nothing(journal: LmdbJournal, path: Path) -> None:
    before = contents(journal)
    journal.deleteEntriesFrom(5)
    journal.add(b"\x00other", 6, 2)
    crashed = after_crash(path)
    assert contents(crashed) == before
    crashed.close()
    journal.sync()
    crashed = after_crash(path)
    assert contents(crashed) == [*before[:5], (b"\x00other", 6, 2)]
    crashed.close()


def test_p2_compaction_is_all_or_nothing(journal: LmdbJournal, path: Path) -> None:
    journal.deleteEntriesTo(7)
    crashed = after_crash(path)
    assert indexes(crashed) == list(range(1, 11))
    crashed.close()
    journal.sync()
    crashed = after_crash(path)
    assert indexes(crashed) == [8, 9, 10]
    crashed.close()


def test_compacted_entries_leave_the_disk(journal: LmdbJournal, path: Path) -> None:
    journal.deleteEntriesTo(7)
    journal.onOneSecondTimer()
    journal.close()
    env = lmdb.open(str(path), subdir=False, max_dbs=2)
    with env.begin() as txn:
        assert txn.stat(env.open_db(b"entries", txn=txn))["entries"] == 3
    env.close()


def one_run(journal: LmdbJournal) -> LmdbJournal:
    """Entries 11 to 20, in one sync."""
    journal.extend([(b"\x00entry %d" % index, index, 1) for index in range(11, 21)])
    journal.sync()
    return journal


@pytest.mark.parametrize("kept_up_to", [10, 11, 15, 19])
def test_truncation_cuts_a_run(journal: LmdbJournal, path: Path, kept_up_to: int) -> None:
    one_run(journal).deleteEntriesFrom(kept_up_to)
    journal.add(b"\x00new", kept_up_to + 1, 2)
    journal.sync()
    crashed = after_crash(path)
    assert contents(crashed) == contents(journal)
    assert crashed[-1] == (b"\x00new", kept_up_to + 1, 2)
    crashed.close()


@pytest.mark.parametrize("first", [10, 11, 15, 20])
def test_compaction_may_begin_within_a_run(journal: LmdbJournal, path: Path, first: int) -> None:
    one_run(journal).add(b"\x00after it", 21, 1)
    journal.sync()
    journal.deleteEntriesTo(first - 1)
    journal.onOneSecondTimer()
    crashed = after_crash(path)
    assert indexes(crashed) == list(range(first, 22))
    crashed.close()


def test_a_run_is_cut_where_it_gets_large(journal: LmdbJournal, path: Path) -> None:
    large = bytes(400 << 10)
    journal.extend([(large, index, 1) for index in range(11, 21)])
    journal.sync()
    assert [len(run) for run in runs_of(journal[10:])] == [3, 3, 3, 1]
    crashed = after_crash(path)
    assert contents(crashed) == contents(journal)
    crashed.close()


def test_p1_reset_leaves_the_placeholder_alone(journal: LmdbJournal, path: Path) -> None:
    journal.reset_to(40, 3)
    crashed = after_crash(path)
    assert contents(crashed) == [(b"\x01", 40, 3)]
    assert crashed.getRaftCommitIndex() == 40
    crashed.add(b"\x00next", 41, 3)
    crashed.sync()
    assert crashed.term_at(41) == 3
    crashed.close()


def test_commit_index_is_written_by_the_timer(journal: LmdbJournal, path: Path) -> None:
    journal.setRaftCommitIndex(9)
    journal.onOneSecondTimer()
    crashed = after_crash(path)
    assert crashed.getRaftCommitIndex() == 9
    crashed.close()


def tamper(path: Path, change: Callable[[lmdb.Environment, lmdb.Transaction], object]) -> None:
    env = lmdb.open(str(path), subdir=False, max_dbs=2)
    with env.begin(write=True) as txn:
        change(env, txn)
    env.close()


def key(index: int) -> bytes:
    return index.to_bytes(8, "big")


def test_p10_flipped_byte_is_found(journal: LmdbJournal, path: Path) -> None:
    journal.close()

    def flip(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
        entries = env.open_db(b"entries", txn=txn)
        value = bytearray(txn.get(key(4), db=entries) or b"")
        value[-1] ^= 1
        txn.put(key(4), bytes(value), db=entries)

    tamper(path, flip)
    with pytest.raises(JournalCorrupt, match="entries from 4 on: the checksum"):
        LmdbJournal(path)


def test_p10_missing_entry_is_found(journal: LmdbJournal, path: Path) -> None:
    journal.close()
    tamper(path, lambda env, txn: txn.delete(key(4), db=env.open_db(b"entries", txn=txn)))
    with pytest.raises(JournalCorrupt, match="from entry 3 to 5"):
        LmdbJournal(path)


@pytest.mark.parametrize("damage", [b"", b"short", b"\x00" * 40])
def test_p10_damaged_vote_is_not_forgotten(journal: LmdbJournal, path: Path, damage: bytes) -> None:
    journal.setCurrentTerm(5, "2")
    journal.close()
    tamper(path, lambda env, txn: txn.put(b"meta", damage, db=env.open_db(b"meta", txn=txn)))
    with pytest.raises(JournalCorrupt, match="term and vote"):
        LmdbJournal(path)


def test_p10_missing_meta_record_is_found(journal: LmdbJournal, path: Path) -> None:
    journal.close()
    tamper(path, lambda env, txn: txn.delete(b"meta", db=env.open_db(b"meta", txn=txn)))
    with pytest.raises(JournalCorrupt, match="no meta record"):
        LmdbJournal(path)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "truncate", "compact", "sync", "vote", "crash"]),
        st.integers(0, 8),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_d4_journal_equals_a_list_through_crashes(steps: list[tuple[str, int]]) -> None:
    """The model: a list, and the copy of it that was synced last."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal.lmdb"
        journal = LmdbJournal(path)
        journal.add(b"\x01", 1, 0)
        journal.sync()
        model: list[RaftEntry] = [(b"\x01", 1, 0)]
        synced = list(model)
        term = 1
        for step, number in steps:
            match step:
                case "add":
                    for _ in range(number):
                        entry = (b"\x00%d" % term, model[-1][1] + 1, term)
                        journal.add(*entry)
                        model.append(entry)
                case "truncate" if number:
                    journal.deleteEntriesFrom(number)
                    del model[number:]
                    term += 1
                case "compact" if number < len(model):
                    journal.deleteEntriesTo(number)
                    if number:
                        synced = list(model)  # It syncs first.
                    del model[:number]
                case "sync" | "vote":
                    if step == "sync":
                        journal.sync()
                    else:
                        journal.setCurrentTerm(term, "3")
                    synced = list(model)
                case "crash":
                    journal.close()
                    journal = LmdbJournal(path)
                    model = list(synced)
            assert journal[:] == model
        journal.close()
