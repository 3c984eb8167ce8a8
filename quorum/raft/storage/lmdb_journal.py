"""The journal's store in LMDB: one transaction and one fsync per change (P2, P10).

On disk the key is the index of a run's first entry (u64), and the value the run (``journal_runs``).
The meta record is checksummed as well.

LMDB does not check its own pages, so they are walked before LMDB opens the file (``lmdb_check``).
The meta record names the last entry and the LMDB transaction that wrote it. So neither a shorter
nor an older log is taken for ours.
"""

import errno
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import lmdb

from quorate.common.files.data_folder import REPLACE
from quorate.common.files.durable_files import sync_folder
from quorate.common.files.lmdb_check import LmdbDamaged, check_lmdb_file
from quorate.common.files.lmdb_lock_file import allocate_lock_file, lock_file
from quorate.common.files.private_files import FILE_MODE
from quorate.quorum.raft.storage.journal import (
    NOTHING_WRITTEN,
    JournalCorrupt,
    JournalError,
    JournalWrite,
    RaftEntry,
    RaftJournal,
    Stored,
)
from quorate.quorum.raft.storage.journal_content import (
    FORMAT,
    StoredMeta,
    check_entries,
    decode_meta,
    encode_meta,
    joined,
    run_of,
)
from quorate.quorum.raft.storage.journal_runs import encode_run, runs_of

JOURNAL_FILE: Final = "journal.lmdb"

MAP_BYTES: Final = 64 << 30
"""The size of virtual address space, not of disk: the file grows as needed."""

_KEY = struct.Struct(">Q")
_ENTRIES: Final = b"entries"
_META_DB: Final = b"meta"
_META_KEY: Final = b"meta"


class LmdbJournal(RaftJournal):
    """The journal in the file ``path``, created if it is missing."""

    def __init__(self, path: Path) -> None:
        """Open the journal as ``LmdbStore`` does."""
        super().__init__(LmdbStore(path))


class LmdbStore:
    """Implements ``JournalStore``."""

    def __init__(self, path: Path) -> None:
        """Open the file ``path``, creating it if it is missing.

        Raises:
            JournalCorrupt: the file is not what LMDB writes.
            JournalError: the file cannot be opened.
        """
        self._path = path
        self._clean_below = 0
        """No run that ends below this entry is left."""
        self._last = 0
        """The index of the last entry in the file, or 0 if there is none."""
        try:
            if not path.exists():
                _create(path)
            check_lmdb_file(path)
            self._env = _open(path)
            # A voter that was killed inside a commit may have left it in memory alone; what is
            # read here is answered for.
            self._env.sync(True)
            self._entries_db = self._env.open_db(_ENTRIES, create=False)
            self._meta_db = self._env.open_db(_META_DB, create=False)
        except LmdbDamaged as error:
            raise JournalCorrupt(f"journal {error}. {REPLACE}") from error
        except (lmdb.Error, OSError) as error:
            raise JournalError(_why_not_opened(path, error)) from error

    def load(self) -> Stored | None:
        """Return the contents, as ``JournalStore.load`` says."""
        try:
            with self._env.begin() as txn:
                meta, stored = self._load(txn)
            if meta.format != FORMAT:
                self._rewrite(meta)
            return stored
        except (lmdb.Error, struct.error, ValueError) as error:
            raise JournalCorrupt(f"journal {self._path} is damaged ({error}). {REPLACE}") from error

    def write(self, change: JournalWrite) -> None:
        """Write the change, as ``JournalStore.write`` says."""
        last = self._last
        if change.truncate_from is not None:
            last = min(last, change.truncate_from - 1)
        if change.appended:
            last = change.appended[-1][1]
        try:
            with self._env.begin(write=True) as txn:
                with txn.cursor(self._entries_db) as cursor:
                    self._write_entries(cursor, change)
                txn.put(_META_KEY, encode_meta(change.meta, last, txn.id()), db=self._meta_db)
        except (lmdb.Error, struct.error, OSError) as error:
            raise JournalError(
                f"cannot write journal {self._path}: {error}. Free space or repair the disk, then "
                "start this voter again: what it acknowledged is in the journal"
            ) from error
        self._last = last

    def close(self) -> None:
        self._env.close()

    def _write_entries(self, cursor: lmdb.Cursor, change: JournalWrite) -> None:
        if change.truncate_from is not None:
            self._truncate(cursor, change.truncate_from)
        for run in runs_of(change.appended):
            self._append(cursor, run)
        if change.garbage_below > self._clean_below:
            _remove_garbage(cursor, change.garbage_below)
            self._clean_below = change.garbage_below

    def _append(self, cursor: lmdb.Cursor, run: Sequence[RaftEntry]) -> None:
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

    def _rewrite(self, stored: StoredMeta) -> None:
        """Write the meta record of an earlier release in the format of this one, which that release
        refuses.
        """
        with self._env.begin(write=True) as txn:
            meta = encode_meta(stored.meta, stored.last, txn.id())
            txn.put(_META_KEY, meta, db=self._meta_db)

    def _load(self, txn: lmdb.Transaction) -> tuple[StoredMeta, Stored]:
        raw = txn.get(_META_KEY, db=self._meta_db)
        if raw is None:
            raise JournalCorrupt(f"journal {self._path} has no meta record. {REPLACE}")
        found = decode_meta(self._path, bytes(raw))
        entries = list(self._read_entries(txn, found.meta.first))
        check_entries(self._path, entries, found.meta.first, found.last)
        if found.written_by != txn.id():
            raise JournalCorrupt(
                f"journal {self._path} has the state of write {found.written_by}, but write "
                f"{txn.id()} was the last. {REPLACE}"
            )
        self._last = found.last
        if not entries:
            return found, Stored(found.meta, [], found.meta.first)
        with txn.cursor(self._entries_db) as cursor:
            cursor.first()
            return found, Stored(found.meta, entries, _KEY.unpack(cursor.key())[0])

    def _read_entries(self, txn: lmdb.Transaction, first: int) -> Iterator[RaftEntry]:
        with txn.cursor(self._entries_db) as cursor:
            if _find_run(cursor, first):
                yield from joined(self._path, self._runs_from(cursor), first)

    def _runs_from(self, cursor: lmdb.Cursor) -> Iterator[list[RaftEntry]]:
        yield self._run_at(cursor)
        while cursor.next():
            yield self._run_at(cursor)

    def _run_at(self, cursor: lmdb.Cursor) -> list[RaftEntry]:
        (index,) = _KEY.unpack(cursor.key())
        return run_of(self._path, index, bytes(cursor.value()))


def _find_run(cursor: lmdb.Cursor, index: int) -> bool:
    """Move to the run that holds entry ``index``, or would hold it; return False if
    there is none.
    """
    if not cursor.set_range(_KEY.pack(index)):
        return bool(cursor.last())
    return _KEY.unpack(cursor.key())[0] == index or bool(cursor.prev())


def _remove_garbage(cursor: lmdb.Cursor, below: int) -> None:
    """Remove runs that end below entry ``below``: all but the last of those that begin by then."""
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


def _why_not_opened(path: Path, error: Exception) -> str:
    """Return what to do about the error."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            f"cannot open journal {path}: {error}. Free space on its disk, then start this voter "
            "again: what it acknowledged is in the journal"
        )
    return (
        f"cannot open journal {path}: {error}. Let this user read and write it, or, if it is "
        f"damaged: {REPLACE}"
    )


# --- files --------------------------------------------------------------------------------------


def _open(path: Path) -> lmdb.Environment:
    allocate_lock_file(path)
    return lmdb.open(
        str(path),
        subdir=False,
        mode=FILE_MODE,
        map_size=MAP_BYTES,
        max_dbs=2,
        sync=True,
        metasync=True,
        writemap=False,
    )


def _create(path: Path) -> None:
    """Create the file completely or not at all: a journal without its record of term and vote is
    damaged.
    """
    scratch = path.with_name(f"{path.name}.new")
    scratch.unlink(missing_ok=True)
    env = _open(scratch)
    with env.begin(write=True) as txn:
        env.open_db(_ENTRIES, txn=txn)
        meta_db = env.open_db(_META_DB, txn=txn)
        nothing = encode_meta(NOTHING_WRITTEN, last=0, written_by=txn.id())
        txn.put(_META_KEY, nothing, db=meta_db)
    env.close()
    lock_file(scratch).unlink()
    scratch.replace(path)
    sync_folder(path.parent)
