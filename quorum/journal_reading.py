"""What watchers get out of the journal, once it has left the tail of the log in memory."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from metadata_log.reader import LogEntry
from metadata_log.types import MetadataOffset
from quorum.raft.frames import REGULAR
from quorum.raft.journal import Entry
from quorum.raft.node import RaftNode
from quorum.state_machine import is_transaction

_READ_BYTES: Final = 1 << 20
_READ_ENTRIES: Final = 2_000


class JournalRange(NamedTuple):
    """Transactions out of the journal; everything up to ``last_offset`` was looked at."""

    entries: list[LogEntry]
    last_offset: MetadataOffset


def journal_reader(start: MetadataOffset) -> Callable[[RaftNode], list[Entry] | None]:
    """To be called on the raft thread: some applied entries from ``start`` on; None: compacted."""

    def read(node: RaftNode) -> list[Entry] | None:
        journal = node.journal
        # The first entry may be the placeholder of a snapshot.
        if start <= journal.first_index:
            return None
        position = start - journal.first_index
        count = max(0, min(_READ_ENTRIES, node.last_applied - start + 1))
        return journal[position : position + count]

    return read


def transactions(entries: Sequence[Entry], start: MetadataOffset) -> JournalRange:
    """On the event loop: telling what is a transaction would hold up the raft thread."""
    found: list[LogEntry] = []
    size, last = 0, start - 1
    for command, last, _ in entries:
        if command[0] == REGULAR and is_transaction(command[1:]):
            found.append(LogEntry(MetadataOffset(last), command[1:]))
            size += len(command)
            if size >= _READ_BYTES:
                break
    return JournalRange(found, MetadataOffset(last))
