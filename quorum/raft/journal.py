"""The durable journal of one voter: term, vote and entries in LMDB (P2, P10, P18).

PySyncObj reads its log as a list, so the retained entries are held in memory as one. Changes are
collected and reach the disk with ``sync()``: truncation, new entries and the meta record in one
LMDB transaction, so a crash leaves either the state before or the state after. Who calls ``sync()``
when is the node's business; term and vote alone are synced here, before ``setCurrentTerm`` returns.

Compaction moves ``first`` in the meta record; the keys below it are then garbage and are removed a
few at a time, so that no sync takes long.

On disk: key = index (u64), value = CRC-32C (u32), term (u64), command; the checksum covers index
and term too. The meta record is checksummed as well.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, overload

import lmdb
from crc32c import crc32c

from quorum.data_folder import sync_folder

FORMAT: Final = 1
MAP_BYTES: Final = 64 << 30
"""Virtual address space, not disk: the file grows as needed."""

NO_OP: Final = b"\x01"
"""The library's command of an entry that changes nothing."""

_KEY = struct.Struct(">Q")
_VALUE_HEAD = struct.Struct(">IQ")
_CHECKED_HEAD = struct.Struct(">QQ")
_META = struct.Struct(">IHQQQ")
_META_KEY: Final = b"meta"
_GARBAGE_PER_SYNC: Final = 2_000

Entry = tuple[bytes, int, int]
"""(command, index, term), as the library has it."""


class JournalError(RuntimeError):
    """The journal cannot be read or written; the voter must not go on."""


class JournalCorrupt(JournalError):
    """What is on disk is not what was written."""


class _Meta(NamedTuple):
    term: int
    voted_for: str | None
    first: int
    commit_index: int


class LmdbJournal:
    """Implements the library's ``Journal``. Used on the raft thread alone once it runs."""

    def __init__(self, path: Path) -> None:
        """Open the journal in the file ``path``, creating it if it is missing.

        Raises:
            JournalCorrupt: checksums, order or format are wrong.
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
        self._entries: list[Entry] = []
        self._pending: list[Entry] = []
        self._truncate_from: int | None = None
        self._dirty = False
        self._meta = _Meta(term=0, voted_for=None, first=1, commit_index=1)
        self._commit_on_disk = 1
        self._garbage_from = 1
        self._load()

    # -- what PySyncObj reads --------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        return self._entries[item]

    def getCurrentTerm(self) -> int:
        return self._meta.term

    def getVotedForNodeId(self) -> str | None:
        return self._meta.voted_for

    def getRaftCommitIndex(self) -> int:
        return self._meta.commit_index

    # -- what PySyncObj changes ------------------------------------------------------------------

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry; durable after the next ``sync``."""
        entry = (command, idx, term)
        self._entries.append(entry)
        self._pending.append(entry)
        self._dirty = True

    def deleteEntriesFrom(self, position: int) -> None:
        """Truncate: entries from list position ``position`` on are gone after the next ``sync``."""
        if position >= len(self._entries):
            return
        index = self._entries[position][1]
        del self._entries[position:]
        while self._pending and self._pending[-1][1] >= index:
            self._pending.pop()
        if self._truncate_from is None or index < self._truncate_from:
            self._truncate_from = index
        self._dirty = True

    def deleteEntriesTo(self, position: int) -> None:
        """Compact: entries before list position ``position`` are no longer needed."""
        if position <= 0:
            return
        self.sync()
        del self._entries[:position]
        self._meta = self._meta._replace(first=self._entries[0][1])
        self._dirty = True

    def setRaftCommitIndex(self, index: int) -> None:
        """Remember the commit index; it rides along with the next ``sync``."""
        if index != self._meta.commit_index:
            self._meta = self._meta._replace(commit_index=index)

    def setCurrentTerm(self, term: int, voted_for: str | None) -> None:
        """Term and vote are on disk before this returns, with every entry added before (P18)."""
        self._meta = self._meta._replace(term=term, voted_for=voted_for)
        self._dirty = True
        self.sync()

    def onOneSecondTimer(self) -> None:
        """Write the commit index of an idle log, and go on removing garbage."""
        if self._meta.commit_index != self._commit_on_disk or self._has_garbage():
            self._dirty = True
            self.sync()

    def clear(self) -> None:
        """Never: the library clears a journal only when it loads its own dumps (P1)."""
        raise JournalError("the journal is never cleared: use reset_to")

    def _destroy(self) -> None:
        self.close()

    # -- ours ------------------------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        return self._entries[0][1]

    @property
    def last_index(self) -> int:
        return self._entries[-1][1]

    def is_synced(self) -> bool:
        """Whether everything added is on disk."""
        return not self._dirty

    def term_at(self, index: int) -> int | None:
        """Term of the entry at ``index``; None if it is not in the log."""
        position = index - self._entries[0][1]
        return self._entries[position][2] if 0 <= position < len(self._entries) else None

    def sync(self) -> None:
        """Everything added, truncated or set so far is on disk when this returns: one fsync.

        Raises:
            JournalError: the disk is full or failed; what is in memory is then worth nothing.
        """
        if not self._dirty:
            return
        try:
            with self._env.begin(write=True) as txn:
                self._write(txn)
        except (lmdb.Error, OSError) as error:
            raise JournalError(f"cannot write journal {self._path}: {error}") from error
        self._pending = []
        self._truncate_from = None
        self._commit_on_disk = self._meta.commit_index
        self._dirty = False

    def reset_to(self, index: int, term: int) -> None:
        """Start over behind a snapshot of ``index``: a placeholder of that entry is all that stays.

        The placeholder only ever serves as the previous entry of ``index + 1``: it is never applied
        and never sent. Durable, and all or nothing, when this returns.
        """
        placeholder = (NO_OP, index, term)
        self._entries = [placeholder]
        self._pending = [placeholder]
        self._truncate_from = 0
        self._garbage_from = index
        self._meta = self._meta._replace(first=index, commit_index=index)
        self._dirty = True
        self.sync()

    def close(self) -> None:
        self._env.close()

    # -- disk ------------------------------------------------------------------------------------

    def _write(self, txn: lmdb.Transaction) -> None:
        with txn.cursor(self._entries_db) as cursor:
            if self._truncate_from is not None and cursor.set_range(_KEY.pack(self._truncate_from)):
                while cursor.delete():
                    pass
            if self._pending:
                _, added = cursor.putmulti(map(_encoded, self._pending), append=True)
                if added != len(self._pending):
                    raise JournalError(f"journal {self._path} refused {self._pending[added][1]}")
            self._remove_garbage(cursor)
        txn.put(_META_KEY, _encode_meta(self._meta), db=self._meta_db)

    def _has_garbage(self) -> bool:
        return self._garbage_from < self._meta.first

    def _remove_garbage(self, cursor: lmdb.Cursor) -> None:
        end = min(self._meta.first, self._garbage_from + _GARBAGE_PER_SYNC)
        if self._garbage_from >= end or not cursor.first():
            return
        limit = _KEY.pack(end)
        while bytes(cursor.key()) < limit and cursor.delete():
            pass
        self._garbage_from = end

    def _load(self) -> None:
        with self._env.begin() as txn:
            raw = txn.get(_META_KEY, db=self._meta_db)
            stored = txn.stat(self._entries_db)["entries"]
            if raw is None:
                if stored:
                    raise JournalCorrupt(f"journal {self._path} has entries and no meta record")
                return
            self._meta = _decode_meta(self._path, raw)
            self._commit_on_disk = self._meta.commit_index
            self._entries = list(self._read_entries(txn))
            if not self._entries:
                raise JournalCorrupt(
                    f"journal {self._path} lacks entry {self._meta.first}, its first"
                )
            with txn.cursor(self._entries_db) as cursor:
                cursor.first()
                self._garbage_from = _KEY.unpack(cursor.key())[0]

    def _read_entries(self, txn: lmdb.Transaction) -> Iterator[Entry]:
        expected = self._meta.first
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


def _encode_meta(meta: _Meta) -> bytes:
    body = _META.pack(0, FORMAT, meta.term, meta.first, meta.commit_index)[4:]
    body += (meta.voted_for or "").encode()
    return crc32c(body).to_bytes(4, "big") + body


def _decode_meta(path: Path, raw: bytes) -> _Meta:
    if len(raw) < _META.size or crc32c(raw[4:]) != int.from_bytes(raw[:4], "big"):
        raise JournalCorrupt(f"journal {path}: checksum of term and vote is wrong")
    _, version, term, first, commit_index = _META.unpack_from(raw)
    if version != FORMAT:
        raise JournalCorrupt(f"journal {path} has format {version}, this version reads {FORMAT}")
    return _Meta(term, raw[_META.size :].decode() or None, first, commit_index)
