"""The journal of one voter: term, vote and entries, and when they are on disk (P2, P10, P18).

PySyncObj reads its log as a list, so the retained entries are held in memory as one. Changes are
collected and reach the disk with ``sync()``: truncation, new entries and the meta record go into
one ``JournalWrite``, which the store writes as a whole. So a crash leaves either the state before
or the state after. ``RaftNode`` decides when to call ``sync()``; only term and vote are synced
here, before ``setCurrentTerm`` returns.

Compaction moves ``first`` in the meta record. What the store holds below it is then garbage, and is
removed a few entries at a time, so that no sync takes long.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, overload

from quorate.quorum.raft.storage.promises import Promise, Promises, strongest

NO_OP: Final = b"\x01"
"""The library's command of an entry that changes nothing."""

_GARBAGE_PER_SYNC: Final = 2_000

RaftEntry = tuple[bytes, int, int]
"""(command, index, term), as the library has it."""


class JournalError(RuntimeError):
    """The journal cannot be read or written; the voter must not go on."""


class JournalCorrupt(JournalError):
    """The journal on disk differs from what was written to it."""


class Meta(NamedTuple):
    """The values stored beside the entries."""

    term: int
    voted_for: str | None
    first: int
    """The index of the first entry that belongs to the log."""
    commit_index: int
    promises: Promises
    """The promises of other voters to this one. They are never changed in place."""
    adopts: int = 0
    """The index of the leader's snapshot that was about to take its place in the folder, or 0."""


ANY_SNAPSHOT: Final = (1 << 64) - 1
"""``Meta.adopts`` of a journal of an earlier release, which did not say."""

NOTHING_WRITTEN: Final = Meta(0, None, first=1, commit_index=1, promises={})
"""The meta record of a voter that has neither voted nor written."""


class Stored(NamedTuple):
    """The contents of a store."""

    meta: Meta
    entries: list[RaftEntry]
    """Entries from ``meta.first`` on, without a gap."""
    garbage_from: int
    """Entries from here up to ``meta.first`` are still to be removed."""


class JournalWrite(NamedTuple):
    """One write, in this order: truncate, append, remove garbage, replace the meta record."""

    truncate_from: int | None
    appended: Sequence[RaftEntry]
    garbage_below: int
    meta: Meta


class JournalStore(Protocol):
    """The durable storage of a journal."""

    def load(self) -> Stored | None:
        """Return the contents, or None if nothing was ever written.

        Raises:
            JournalCorrupt: it is not what was written.
        """

    def write(self, change: JournalWrite) -> None:
        """Write the change: all of it is on disk on return; after a crash before that, all or
        nothing.

        Raises:
            JournalError: the disk is full or failed.
        """

    def close(self) -> None: ...


class RaftJournal:
    """The library's ``Journal``, implemented here. Once it runs, only the raft thread uses it."""

    def __init__(self, store: JournalStore) -> None:
        """Go on with what the store holds.

        Raises:
            JournalCorrupt: as ``JournalStore.load``.
        """
        self._store = store
        self._pending: list[RaftEntry] = []
        self._truncate_from: int | None = None
        self._dirty = False
        stored = store.load() or Stored(NOTHING_WRITTEN, [], 1)
        self._meta, self._entries, self._garbage_from = stored
        self._on_disk = self._meta
        self.durable_index = self._entries[-1][1] if self._entries else 0
        """The index of the last entry on disk, or 0."""

    # -- what PySyncObj reads --------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, item: int) -> RaftEntry: ...
    @overload
    def __getitem__(self, item: slice) -> list[RaftEntry]: ...
    def __getitem__(self, item: int | slice) -> RaftEntry | list[RaftEntry]:
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
        self.durable_index = min(self.durable_index, index - 1)
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
        """Remember the commit index; the next ``sync`` writes it."""
        if index != self._meta.commit_index:
            self._meta = self._meta._replace(commit_index=index)

    def setCurrentTerm(self, term: int, voted_for: str | None) -> None:
        """Set term and vote. They are on disk on return, with every entry added before (P18)."""
        self._meta = self._meta._replace(term=term, voted_for=voted_for)
        self._dirty = True
        self.sync()

    def onOneSecondTimer(self) -> None:
        """Write the commit index and the promises of an idle log, and go on removing garbage."""
        if self._meta != self._on_disk or self._has_garbage():
            self._dirty = True
            self.sync()

    def clear(self) -> None:
        """Refuse: the library clears a journal only when it loads its own dumps (P1)."""
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

    def extend(self, entries: Sequence[RaftEntry]) -> None:
        """Add many entries, the first of which follows our last one."""
        self._entries += entries
        self._pending += entries
        self._dirty = True

    def is_fresh(self) -> bool:
        """Return whether this voter has never voted nor written an entry: it has nothing to
        remember.
        """
        meta = self._meta
        return len(self._entries) < 2 and meta.first == 1 and not (meta.term or meta.voted_for)

    def slice(self, first: int, count: int) -> list[RaftEntry]:
        """Return at most ``count`` entries from index ``first`` on, which must be in the log."""
        position = first - self.first_index
        return self._entries[position : position + count]

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at ``index``, or None if it is not in the log."""
        position = index - self._entries[0][1]
        return self._entries[position][2] if 0 <= position < len(self._entries) else None

    def sync(self) -> None:
        """Have everything added, truncated or set so far on disk on return, with one fsync.

        Raises:
            JournalError: the disk is full or failed; what is in memory is then worth nothing.
        """
        if not self._dirty:
            return
        garbage_below = min(self._meta.first, self._garbage_from + _GARBAGE_PER_SYNC)
        self._store.write(
            JournalWrite(self._truncate_from, self._pending, garbage_below, self._meta)
        )
        self._garbage_from = max(self._garbage_from, garbage_below)
        self._pending = []
        self._truncate_from = None
        self._on_disk = self._meta
        self.durable_index = self._entries[-1][1] if self._entries else 0
        self._dirty = False

    def keep_commit_index(self) -> None:
        """Have the commit index on disk on return, even if nothing else is to be written."""
        if self._meta.commit_index != self._on_disk.commit_index:
            self._dirty = True
            self.sync()

    @property
    def promises(self) -> Promises:
        """The promises of other voters to this one."""
        return self._meta.promises

    def note_promise(self, voter_id: int, promise: Promise) -> None:
        """Remember what a voter promised; the next ``sync`` writes it, or the timer of a second.

        It costs no fsync of its own: in a quorum that writes, the next one comes with the next
        entries.
        """
        known = self._meta.promises.get(voter_id)
        kept = strongest(known, promise)
        if kept is not known:
            self._meta = self._meta._replace(promises={**self._meta.promises, voter_id: kept})

    def adopts_snapshot(self, index: int) -> None:
        """Have on disk on return that the leader's snapshot of ``index`` is about to take its place
        in the folder, where it may lie beyond our log until ``reset_to``.
        """
        self._meta = self._meta._replace(adopts=index)
        self._dirty = True
        self.sync()

    def may_end_before(self, snapshot_index: int) -> bool:
        """Return whether the log may end before the snapshot in the folder, or differ from it. It
        may only after a crash in the middle of adopting that one: else this journal is an old copy.
        """
        return self._meta.adopts in (snapshot_index, ANY_SNAPSHOT)

    def snapshot_is_adopted(self) -> None:
        """Note that log and snapshot fit together; the next ``sync`` writes it."""
        if self._meta.adopts:
            self._meta = self._meta._replace(adopts=0)

    def keep_promises(self) -> None:
        """Have the promises on disk on return: the timer may not come again."""
        if self._meta.promises != self._on_disk.promises:
            self._dirty = True
            self.sync()

    def forget_promises(self, voter_id: int) -> None:
        """Forget what a voter promised that is no longer a member."""
        kept = {known: promise for known, promise in self.promises.items() if known != voter_id}
        self._meta = self._meta._replace(promises=kept)

    def reset_to(self, index: int, term: int) -> None:
        """Start over after a snapshot of ``index``: only a placeholder of that entry stays.

        The placeholder only serves as the previous entry of ``index + 1``: it is never applied and
        never sent. The change is durable, and all or nothing, on return.
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
        self._store.close()

    def _has_garbage(self) -> bool:
        return self._garbage_from < self._meta.first
