"""The journal's store in LMDB: one transaction and one fsync per change (P2, P10).

On disk: key = index (u64), value = CRC-32C (u32), term (u64), command; the checksum covers index
and term too. The meta record is checksummed as well.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import lmdb
from crc32c import crc32c

from quorum.data_folder import sync_folder
from quorum.raft.journal import Change, Entry, Journal, JournalCorrupt, JournalError, Meta, Stored

JOURNAL_FILE: Final = "journal.lmdb"
FORMAT: Final = 2
MAP_BYTES: Final = 64 << 30
"""Virtual address space, not disk: the file grows as needed."""

_KEY = struct.Struct(">Q")
_VALUE_HEAD = struct.Struct(">IQ")
_CHECKED_HEAD = struct.Struct(">QQ")
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
            if not entries:
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
        start = change.truncate_from
        if start is not None and cursor.set_range(_KEY.pack(start)):
            while cursor.delete():
                pass
        if change.appended:
            _, added = cursor.putmulti(map(_encoded, change.appended), append=True)
            if added != len(change.appended):
                raise JournalError(f"journal {self._path} refused {change.appended[added][1]}")
        limit = _KEY.pack(change.garbage_below)
        if cursor.first():
            while bytes(cursor.key()) < limit and cursor.delete():
                pass

    def _read_entries(self, txn: lmdb.Transaction, first: int) -> Iterator[Entry]:
        expected = first
        with txn.cursor(self._entries_db) as cursor:
            if not cursor.set_range(_KEY.pack(expected)):
                return
            for key, value in cursor:
                (index,) = _KEY.unpack(key)
                if index != expected:
                    raise JournalCorrupt(
                        f"journal {self._path} goes from entry {expected - 1} to {index}"
                    )
                yield self._decoded(index, bytes(value))
                expected += 1

    def _decoded(self, index: int, value: bytes) -> Entry:
        checksum, term = _VALUE_HEAD.unpack_from(value)
        command = value[_VALUE_HEAD.size :]
        if crc32c(command, crc32c(_CHECKED_HEAD.pack(index, term))) != checksum:
            raise JournalCorrupt(
                f"journal {self._path}: checksum of entry {index} is wrong. Move the data folder "
                "aside only if the other voters are healthy: they then bring this one up again"
            )
        return command, index, term


def _encoded(entry: Entry) -> tuple[bytes, bytes]:
    command, index, term = entry
    checksum = crc32c(command, crc32c(_CHECKED_HEAD.pack(index, term)))
    return _KEY.pack(index), _VALUE_HEAD.pack(checksum, term) + command


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
