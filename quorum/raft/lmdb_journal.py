"""The journal's store in LMDB: one transaction and one fsync per change (P2, P10).

On disk: key = index of its first entry (u64), value = a run of entries (``journal_runs``). The meta
record is checksummed as well.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import lmdb
from crc32c import crc32c

from quorum.data_folder import sync_folder
from quorum.raft.journal import Change, Entry, Journal, JournalCorrupt, JournalError, Meta, Stored
from quorum.raft.journal_runs import RunCorrupt, decode_run, encode_run, runs_of

JOURNAL_FILE: Final = "journal.lmdb"
FORMAT: Final = 3
MAP_BYTES: Final = 64 << 30
"""Virtual address space, not disk: the file grows as needed."""

_KEY = struct.Struct(">Q")
_META = struct.Struct(">IHQQQ")
_META_KEY: Final = b"meta"


class LmdbJournal(Journal):
    """The journal in the file ``path``, created if it is missing."""

    def __init__(self, path: Path) -> None:
        """As ``LmdbStore``."""
        super().__init__(LmdbStore(path))


class LmdbStore:
    """Implements ``JournalStore``."""

    def __init__(self, path: Path) -> None:
        """Open the file ``path``, creating it if it is missing.

        Raises:
            JournalError: the file cannot be opened.
        """
        self._path = path
        self._clean_below = 0
        """No run that ends below this entry is left."""
        is_new = not path.exists()
        try:
            self._env = lmdb.open(
                str(path),
                subdir=False,
                map_size=MAP_BYTES,
                max_dbs=2,
                sync=True,
                metasync=True,
                writemap=False,
            )
            with self._env.begin(write=True) as txn:
                self._entries_db = self._env.open_db(b"entries", txn=txn)
                self._meta_db = self._env.open_db(b"meta", txn=txn)
            if is_new:
                sync_folder(path.parent)
        except lmdb.Error as error:
            raise JournalError(f"cannot open journal {path}: {error}") from error

    def load(self) -> Stored | None:
        """As ``JournalStore.load``."""
        with self._env.begin() as txn:
            raw = txn.get(_META_KEY, db=self._meta_db)
            if raw is None:
                if txn.stat(self._entries_db)["entries"]:
                    raise JournalCorrupt(f"journal {self._path} has entries and no meta record")
                return None
            meta = _decode_meta(self._path, raw)
            entries = list(self._read_entries(txn, meta.first))
            if not entries or entries[0][1] != meta.first:
                raise JournalCorrupt(f"journal {self._path} lacks entry {meta.first}, its first")
            with txn.cursor(self._entries_db) as cursor:
                cursor.first()
                return Stored(meta, entries, _KEY.unpack(cursor.key())[0])

    def write(self, change: Change) -> None:
        """As ``JournalStore.write``."""
        try:
            with self._env.begin(write=True) as txn:
                with txn.cursor(self._entries_db) as cursor:
                    self._write_entries(cursor, change)
                txn.put(_META_KEY, _encode_meta(change.meta), db=self._meta_db)
        except (lmdb.Error, OSError) as error:
            raise JournalError(f"cannot write journal {self._path}: {error}") from error

    def close(self) -> None:
        self._env.close()

    def _write_entries(self, cursor: lmdb.Cursor, change: Change) -> None:
        if change.truncate_from is not None:
            self._truncate(cursor, change.truncate_from)
        for run in runs_of(change.appended):
            self._append(cursor, run)
        if change.garbage_below > self._clean_below:
            _remove_garbage(cursor, change.garbage_below)
            self._clean_below = change.garbage_below

    def _append(self, cursor: lmdb.Cursor, run: Sequence[Entry]) -> None:
        if not cursor.put(_KEY.pack(run[0][1]), encode_run(run), append=True):
            raise JournalError(f"journal {self._path} refused entry {run[0][1]}")

    def _truncate(self, cursor: lmdb.Cursor, start: int) -> None:
        if cursor.set_range(_KEY.pack(start)):
            while cursor.delete():
                pass
        if not cursor.last():
            return
        run = self._run_at(cursor)
        kept = run[: start - run[0][1]]
        if len(kept) < len(run):
            cursor.delete()
            self._append(cursor, kept)

    def _read_entries(self, txn: lmdb.Transaction, first: int) -> Iterator[Entry]:
        expected: int | None = None
        with txn.cursor(self._entries_db) as cursor:
            is_there = _find_run(cursor, first)
            while is_there:
                run = self._run_at(cursor)
                if expected is not None and expected != run[0][1]:
                    raise JournalCorrupt(
                        f"journal {self._path} goes from entry {expected - 1} to {run[0][1]}"
                    )
                yield from (entry for entry in run if entry[1] >= first)
                expected = run[-1][1] + 1
                is_there = cursor.next()

    def _run_at(self, cursor: lmdb.Cursor) -> list[Entry]:
        (index,) = _KEY.unpack(cursor.key())
        try:
            return decode_run(index, bytes(cursor.value()))
        except RunCorrupt as error:
            raise JournalCorrupt(
                f"journal {self._path}: entries from {index} on: {error}. Restore the data "
                "folder, or replace this voter: `quorate quorum remove-voter`, then add it again"
            ) from error


def _find_run(cursor: lmdb.Cursor, index: int) -> bool:
    """Go to the run that holds entry ``index``, or would; False if there is none."""
    if not cursor.set_range(_KEY.pack(index)):
        return bool(cursor.last())
    return _KEY.unpack(cursor.key())[0] == index or bool(cursor.prev())


def _remove_garbage(cursor: lmdb.Cursor, below: int) -> None:
    """Runs that end below entry ``below``: all but the last of those that begin by then."""
    if not cursor.first():
        return
    begun = []
    for key in cursor.iternext(values=False):
        if _KEY.unpack(key)[0] > below:
            break
        begun.append(bytes(key))
    for key in begun[:-1]:
        cursor.set_key(key)
        cursor.delete()


def _encode_meta(meta: Meta) -> bytes:
    body = _META.pack(0, FORMAT, meta.term, meta.first, meta.commit_index)[4:]
    body += (meta.voted_for or "").encode()
    return crc32c(body).to_bytes(4, "big") + body


def _decode_meta(path: Path, raw: bytes) -> Meta:
    if len(raw) < _META.size or crc32c(raw[4:]) != int.from_bytes(raw[:4], "big"):
        raise JournalCorrupt(f"journal {path}: checksum of term and vote is wrong")
    _, version, term, first, commit_index = _META.unpack_from(raw)
    if version != FORMAT:
        raise JournalCorrupt(f"journal {path} has format {version}, this version reads {FORMAT}")
    return Meta(term, raw[_META.size :].decode() or None, first, commit_index)
