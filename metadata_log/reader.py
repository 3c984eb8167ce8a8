"""The one reader of the metadata log, from an offset on, with a snapshot where that is compacted
away.

Watches, standby controllers, tools and time travel all read through it. It is pull-based and pure:
the owner of the log provides a ``MetadataLog``, and the reader asks for the next events.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from quorate.common.types import MetadataOffset
from quorate.metadata_log.apply import apply
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.image import Image
from quorate.metadata_log.snapshot.snapshot import decode_snapshot


class LogEntry(NamedTuple):
    """One applied transaction, encoded. Offsets grow but are not contiguous: no-ops lie between
    them.
    """

    offset: MetadataOffset
    transaction: bytes


AppliedEntry = tuple[MetadataOffset, bytes]
"""A ``LogEntry``, or its plain form, which costs less where the entry may never be read."""


class SnapshotStart(NamedTuple):
    """Reading begins with a snapshot: the state after ``offset``, as encoded chunks."""

    offset: MetadataOffset
    chunks: Iterable[bytes]


class MetadataLog(Protocol):
    """The holder of the log: a voter's state machine, or a file."""

    @property
    def first_offset(self) -> MetadataOffset:
        """The first offset that is retained. Everything below it is in snapshots alone."""

    @property
    def applied_offset(self) -> MetadataOffset:
        """The offset up to which everything is applied."""

    def entries(self, start: MetadataOffset, max_bytes: int) -> Sequence[LogEntry]:
        """Return retained, applied entries from ``start`` on; at least one if there is any."""

    def snapshot(self) -> SnapshotStart:
        """Return a snapshot at or after ``first_offset - 1``."""


class MetadataLogReader:
    """Reads a log in order from an offset, never skipping or repeating a transaction.

    ``next_offset`` is the first offset not yet delivered. Starting at 0, or below what is retained,
    the first event is a snapshot.
    """

    def __init__(self, log: MetadataLog, start: MetadataOffset) -> None:
        self._log = log
        self.next_offset = start

    def next_events(self, max_bytes: int = 1 << 20) -> SnapshotStart | Sequence[LogEntry]:
        """Return a snapshot to load, or entries in order. The list is empty once everything applied
        was delivered.
        """
        if self.next_offset < max(1, self._log.first_offset):
            snapshot = self._log.snapshot()
            self.next_offset = MetadataOffset(snapshot.offset + 1)
            return snapshot
        applied = self._log.applied_offset
        entries = self._log.entries(self.next_offset, max_bytes)
        last = entries[-1].offset if entries else applied
        cut_short = bool(entries) and last < applied and self._has_more(last)
        delivered = last if cut_short else max(last, applied)
        self.next_offset = MetadataOffset(max(self.next_offset, delivered + 1))
        return entries

    def _has_more(self, offset: MetadataOffset) -> bool:
        """Return whether a transaction follows after ``offset``, and not only no-ops."""
        return bool(self._log.entries(MetadataOffset(offset + 1), 1))


def images(reader: MetadataLogReader, image: Image, up_to: MetadataOffset) -> Iterator[Image]:
    """Yield the successive images up to ``up_to``: time travel over what is retained."""
    while reader.next_offset <= up_to:
        events = reader.next_events()
        if isinstance(events, SnapshotStart):
            image = decode_snapshot(events.chunks)
            yield image
            continue
        if not events:
            return
        for entry in events:
            if entry.offset > up_to:
                return
            image = apply(image, entry.offset, decode_transaction(entry.transaction)).image
            yield image
