"""Damage to the journal's file: found when the voter starts, whatever byte it hit (P10)."""

import errno
import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from quorate.common.files.lmdb_check import check_lmdb_file
from quorate.quorum.raft.storage.journal import JournalCorrupt, JournalError, RaftEntry
from quorate.quorum.raft.storage.lmdb_journal import LmdbJournal

PAGE = 4096
TRANSACTION_AT = 144
"""Of a root page, in LMDB's file: the number that decides which root is the newer."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a journal with a past: truncated, compacted, a large entry, two votes."""
    path = tmp_path / "journal.lmdb"
    journal = LmdbJournal(path)
    for index in range(1, 201):
        journal.add(b"\x00entry %d" % index, index, 1)
        if index % 20 == 0:
            journal.sync()
    journal.deleteEntriesFrom(150)
    journal.add(b"\x00" + b"large" * 4_000, 151, 2)
    journal.setCurrentTerm(2, "3")
    journal.deleteEntriesTo(50)
    journal.add(b"\x00the last", 152, 2)
    journal.setCurrentTerm(3, "2")
    journal.close()
    return path


State = tuple[list[RaftEntry], int, str | None]


def state(journal: LmdbJournal) -> State:
    return journal[:], journal.getCurrentTerm(), journal.getVotedForNodeId()


def state_or_refusal(path: Path) -> State | None:
    """None: refused with a message that names the file. Anything else that happens is an error."""
    refusal = None
    try:
        journal = LmdbJournal(path)
    except JournalError as error:
        refusal = str(error)
    if refusal is not None:
        assert str(path) in refusal
        return None
    found = state(journal)
    journal.close()
    return found


def regions(content: bytes) -> Iterator[int]:
    """Some bytes of every page: of its header, of its index, of what it holds."""
    chance = random.Random(1)
    for page in range(0, len(content), PAGE):
        yield from (page + chance.randrange(10), page + 10, page + 12)
        yield from (page + chance.randrange(16, 60), page + chance.randrange(60, PAGE))


def test_p10_no_flipped_byte_makes_another_log(path: Path, tmp_path: Path) -> None:
    """Every page of the file, free ones too: the log is read as it was, or not at all."""
    content = path.read_bytes()
    journal = LmdbJournal(path)
    whole = state(journal)
    journal.close()
    damaged = tmp_path / "damaged.lmdb"
    refused = 0
    for at in regions(content):
        damaged.write_bytes(content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :])
        found = state_or_refusal(damaged)
        assert found in (None, whole), f"byte {at}"
        refused += found is None
    assert refused > 20


def test_p10_no_truncation_makes_another_log(path: Path, tmp_path: Path) -> None:
    content = path.read_bytes()
    whole = state_or_refusal(path)
    damaged = tmp_path / "damaged.lmdb"
    for size in [0, 100, PAGE, PAGE + 100, *range(2 * PAGE, len(content), 3 * PAGE)]:
        damaged.write_bytes(content[:size])
        assert state_or_refusal(damaged) in (None, whole), f"{size} bytes"
    damaged.write_bytes(b"")
    with pytest.raises(JournalCorrupt, match="truncated"):
        LmdbJournal(damaged)


def root_of(content: bytearray, *, newer: bool) -> int:
    numbers = [transaction(content, root) for root in (0, PAGE)]
    return PAGE * numbers.index(max(numbers) if newer else min(numbers))


def transaction(content: bytearray, root: int) -> int:
    return int(struct.unpack_from("<Q", content, root + TRANSACTION_AT)[0])


def test_p10_older_root_is_not_taken_for_the_newest(path: Path) -> None:
    """As LMDB would: it goes on from the other root, and the last vote is forgotten."""
    content = bytearray(path.read_bytes())
    root = root_of(content, newer=True)
    struct.pack_into("<Q", content, root + TRANSACTION_AT, 1)
    path.write_bytes(content)
    with pytest.raises(JournalCorrupt, match="not of one and the next"):
        LmdbJournal(path)


def test_p10_older_tree_under_the_newest_root_is_found(path: Path) -> None:
    """The newest root points at the pages of the one before."""
    content = bytearray(path.read_bytes())
    new, old = root_of(content, newer=True), root_of(content, newer=False)
    number = transaction(content, new)
    content[new + 16 : new + PAGE] = content[old + 16 : old + PAGE]
    struct.pack_into("<Q", content, new + TRANSACTION_AT, number)
    path.write_bytes(content)
    with pytest.raises(JournalCorrupt, match=f"but write {number} was the last"):
        LmdbJournal(path)


def test_p10_falling_terms_are_no_log(tmp_path: Path) -> None:
    """An old page with entries of its own time, checksums and all, in the place of a newer one."""
    path = tmp_path / "journal.lmdb"
    journal = LmdbJournal(path)
    for index, term in enumerate([1, 1, 3, 2], 1):
        journal.add(b"\x00", index, term)
    journal.sync()
    journal.close()
    with pytest.raises(JournalCorrupt, match="later term before"):
        LmdbJournal(path)


def test_p10_roots_follow_one_another_after_every_write(tmp_path: Path) -> None:
    path = tmp_path / "journal.lmdb"
    journal = LmdbJournal(path)
    for index in range(1, 12):
        journal.add(b"\x00", index, 1)
        journal.sync()
        check_lmdb_file(path)
    journal.close()
    again = LmdbJournal(path)
    check_lmdb_file(path)
    again.close()


def test_p10_a_truncated_file_is_refused_before_lmdb_maps_it(path: Path) -> None:
    """Behind the end of the file, memory-mapped pages raise SIGBUS."""
    os.truncate(path, 4 * PAGE)
    with pytest.raises(JournalCorrupt, match=r"truncated: 16384 of .* Restore the data folder"):
        LmdbJournal(path)


def test_lock_files_have_blocks_before_lmdb_maps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written through a map, a hole in one ends the voter on a full disk."""
    opened_with: list[int] = []
    real_open = lmdb.open

    def noting(path: str, **options: Any) -> lmdb.Environment:  # noqa: ANN401 - LMDB's own
        opened_with.append(os.stat(path + "-lock").st_blocks * 512)
        return real_open(path, **options)

    monkeypatch.setattr(lmdb, "open", noting)
    path = tmp_path / "journal.lmdb"
    LmdbJournal(path).close()
    assert len(opened_with) == 2, "when it is made and when it is used"
    assert min(opened_with) >= 8192


def test_a_full_disk_is_not_taken_for_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(JournalError, match="Free space on its disk, then start") as refused:
        LmdbJournal(path)
    assert not isinstance(refused.value, JournalCorrupt)


def test_journal_is_created_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.lmdb"

    class Killed(Exception):
        pass

    def killed(self: Path, target: Path) -> Path:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(Killed):
            LmdbJournal(path)
    assert not path.exists()
    LmdbJournal(path).close()
    assert sorted(each.name for each in tmp_path.glob("*.new*")) == []
