"""The sources that a watch reads: the log's tail in memory, the journal, and snapshots.

Nearly all watchers read the newest transactions, which are in memory.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from quorate.common.types import MetadataOffset
from quorate.metadata_log.image import Image
from quorate.metadata_log.reader import AppliedEntry, LogEntry
from quorate.metadata_log.snapshot.snapshot import encode_snapshot
from quorate.quorum.raft.network.raft_frames import REGULAR
from quorate.quorum.raft.raft_node import RaftNode
from quorate.quorum.raft.snapshot_store import SNAPSHOT_FILE
from quorate.quorum.raft.storage.journal import RaftEntry
from quorate.quorum.raft.storage.snapshot_file import read_chunks, read_position
from quorate.quorum.voter.state_machine import is_transaction

MAX_TAIL_BYTES: Final = 4 << 20
"""The size of the tail, which is twice as much at times. A watcher further behind reads the
journal.
"""

_OVERHEAD_BYTES: Final = 160
"""The memory of one entry besides its transaction."""


class _Run(NamedTuple):
    """Entries that were applied together. They are kept and dropped as one, unless they alone are
    too much.
    """

    entries: Sequence[AppliedEntry]
    size: int

    @property
    def last_offset(self) -> MetadataOffset:
        return self.entries[-1][0]


class LogTail:
    """Entries from ``first_offset`` on, without a gap, up to what was added last."""

    def __init__(self, max_bytes: int = MAX_TAIL_BYTES) -> None:
        self._max_bytes = max_bytes
        self._runs: list[_Run] = []
        self._bytes = 0
        self.first_offset = MetadataOffset(1)
        """Everything applied from this offset on is held; below it, read the journal or
        a snapshot.
        """

    @property
    def last_offset(self) -> MetadataOffset:
        """The offset of the newest entry held, or 0 if there is none."""
        return self._runs[-1].last_offset if self._runs else MetadataOffset(0)

    def extend(self, entries: Sequence[AppliedEntry]) -> None:
        """Add what was applied next. The caller does not change it afterwards."""
        if not entries:
            return
        size = _size(entries)
        if size > self._max_bytes:
            half = len(entries) // 2
            if half:
                self.extend(entries[:half])
                self.extend(entries[half:])
                return
        self._runs.append(_Run(entries, size))
        self._bytes += size
        if self._bytes > 2 * self._max_bytes:
            self._shrink()

    def restart(self, first_offset: MetadataOffset) -> None:
        """Forget everything: the state jumped to ``first_offset - 1``."""
        self._runs = []
        self._bytes = 0
        self.first_offset = first_offset

    def read(self, start: MetadataOffset, max_bytes: int) -> list[LogEntry]:
        """Return entries from ``start`` on, at least one if there is any; ``start >=
        first_offset``.
        """
        found: list[LogEntry] = []
        size = 0
        for run in self._runs[bisect_left(self._runs, start, key=_last_offset) :]:
            at = 0 if found else bisect_left(run.entries, start, key=_offset)
            for entry in run.entries[at:]:
                if found and size >= max_bytes:
                    return found
                found.append(LogEntry(*entry))
                size += len(entry[1])
        return found

    def _shrink(self) -> None:
        drop = 0
        while self._bytes > self._max_bytes:
            self._bytes -= self._runs[drop].size
            drop += 1
        self.first_offset = MetadataOffset(self._runs[drop - 1].last_offset + 1)
        del self._runs[:drop]


def _size(entries: Sequence[AppliedEntry]) -> int:
    return sum([len(transaction) for _, transaction in entries]) + _OVERHEAD_BYTES * len(entries)


def _offset(entry: AppliedEntry) -> MetadataOffset:
    return entry[0]


def _last_offset(run: _Run) -> MetadataOffset:
    return run.last_offset


# Watchers get entries out of the journal, once these have left the tail of the log in memory.


_READ_BYTES: Final = 1 << 20
_READ_ENTRIES: Final = 2_000


class JournalRange(NamedTuple):
    """Transactions out of the journal. Everything up to ``last_offset`` was looked at."""

    entries: list[LogEntry]
    last_offset: MetadataOffset


def journal_reader(start: MetadataOffset) -> Callable[[RaftNode], list[RaftEntry] | None]:
    """Return a function for the raft thread, which returns some applied entries from ``start`` on,
    or None if they are compacted.
    """

    def read(node: RaftNode) -> list[RaftEntry] | None:
        journal = node.journal
        # The first entry may be the placeholder of a snapshot.
        if start <= journal.first_index:
            return None
        position = start - journal.first_index
        count = max(0, min(_READ_ENTRIES, node.last_applied - start + 1))
        return journal[position : position + count]

    return read


def transactions(entries: Sequence[RaftEntry], start: MetadataOffset) -> JournalRange:
    """Pick the transactions, on the event loop: doing so on the raft thread would hold it up."""
    found: list[LogEntry] = []
    size, last = 0, start - 1
    for command, last, _ in entries:
        if command[0] == REGULAR and is_transaction(command[1:]):
            found.append(LogEntry(MetadataOffset(last), command[1:]))
            size += len(command)
            if size >= _READ_BYTES:
                break
    return JournalRange(found, MetadataOffset(last))


# All watchers who need a snapshot at about the same time share one encoding of the image.
#
# Encoding 200,000 partitions takes 0.1 s, and after a restart every broker of a cluster may ask.


REUSE_S = 1.0
CHUNK_BYTES = 64 << 10
"""Some 7,000 partitions. Encoding them takes a few milliseconds, in which the event loop does
nothing else.
"""


class EncodedSnapshot(NamedTuple):
    """The state after ``offset``; only no-ops lie between that and ``next_offset``."""

    offset: MetadataOffset
    next_offset: MetadataOffset
    chunks: list[bytes]


class SharedSnapshot:
    """Keeps the last encoding for ``REUSE_S``, for all watchers that need one. Use it on the event
    loop.
    """

    def __init__(self) -> None:
        self._next_offset = MetadataOffset(0)
        self._encoding: asyncio.Task[EncodedSnapshot] | None = None

    async def of(
        self,
        image: Image,
        applied_offset: MetadataOffset,
        retained_from: MetadataOffset,
        at_least: MetadataOffset,
    ) -> EncodedSnapshot:
        """Return a snapshot of ``image``, or an earlier one if everything since is still retained.

        It is never earlier than ``at_least``, which is applied.
        """
        needed_from = max(retained_from, at_least + 1)
        if self._encoding is None or self._next_offset < needed_from:
            self._next_offset = MetadataOffset(applied_offset + 1)
            self._encoding = asyncio.create_task(
                _encode(image, self._next_offset), name="watch-snapshot"
            )
            self._encoding.add_done_callback(self._keep_for_a_while)
        # Shielded, because it is shared: a watcher that goes away must not cancel it for others.
        return await asyncio.shield(self._encoding)

    def _keep_for_a_while(self, encoding: "asyncio.Task[EncodedSnapshot]") -> None:
        def forget() -> None:
            if self._encoding is encoding:
                self._encoding = None

        encoding.get_loop().call_later(REUSE_S, forget)


async def _encode(image: Image, next_offset: MetadataOffset) -> EncodedSnapshot:
    chunks = []
    for chunk in encode_snapshot(image, CHUNK_BYTES):
        chunks.append(chunk)
        await asyncio.sleep(0)
    return EncodedSnapshot(image.offset, next_offset, chunks)


# Time travel begins at the snapshot from which a voter's journal continues.


def oldest_state(folder: Path) -> EncodedSnapshot:
    """Return the snapshot in a running voter's data folder, or without one the state before
    everything.

    Entries from ``next_offset`` on are in the journal, unless it was compacted meanwhile.

    Raises:
        SnapshotCorrupt: it is damaged.
    """
    path = folder / SNAPSHOT_FILE
    try:
        position = read_position(path)
        chunks = list(read_chunks(path))
    except FileNotFoundError:
        # Entry 1 is the library's own; no transaction has ever been there.
        return EncodedSnapshot(MetadataOffset(0), MetadataOffset(2), list(encode_snapshot(Image())))
    offset = MetadataOffset(position.last_index)
    return EncodedSnapshot(offset, MetadataOffset(offset + 1), chunks)
