"""Writes to the disk for a store: to the active segment, the next one, and the table.

One thread at a time uses it: the writer's or the event loop's (``group_commit``). Slow work that no
commit needs to wait for (creating the next segment, sealing the last one, deleting an empty
one) runs in the housekeeping threads, so that a commit with a roll takes no longer than another.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import chain
from pathlib import Path

from quorate.broker.log.checkpoints.partition_row import ANY_SEGMENT, NO_SEGMENT, Truncation
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.options import LogOptions
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.stored.relocation import Relocation
from quorate.broker.log.writing.housekeeping import Housekeeping
from quorate.broker.log.writing.write_operations import (
    HostedThrough,
    PartitionCreation,
    PartitionDeletion,
    SegmentRoll,
    WriteOperation,
)

log = logging.getLogger(__name__)


CreateSegment = Callable[[int], Segment]
"""Creates a new segment with that id, which is added to the table."""


class Journal:
    """Performs groups of write operations on disk, in order."""

    def __init__(
        self,
        options: LogOptions,
        table: StoreTable,
        housekeeping: Housekeeping,
        create_segment: CreateSegment,
        active: Segment,
        following: Segment | None,
    ) -> None:
        self.active = active
        self._create_segment = create_segment
        self._options = options
        self._table = table
        self._housekeeping = housekeeping
        self._unsealed: deque[Segment] = deque()
        """Rolled, and without a footer yet; oldest first."""
        self._following: Future[Segment] | None = None
        if following is not None:
            self._following = Future()
            self._following.set_result(following)

    def perform(self, group: Sequence[WriteOperation]) -> Segment:
        """Perform a group of operations of one kind. It is durable on return. Return the active
        segment.

        Batches that were dropped meanwhile are not written. A group that failed may be tried again.

        Raises:
            lmdb.Error, OSError: The disk is full or broken. No operation of the group counts as
                done.
        """
        match group[0]:
            case PendingBatch():
                self._append(
                    [work for work in group if isinstance(work, PendingBatch) and not work.dropped]
                )
            case Relocation():
                works = [work.batches for work in group if isinstance(work, Relocation)]
                self._append(list(chain.from_iterable(works)))
            case SegmentRoll():
                self._roll_if_used()
            case Truncation():
                self._truncate([work for work in group if isinstance(work, Truncation)])
            case PartitionCreation():
                self._table.add_partitions(
                    [w.row for w in group if isinstance(w, PartitionCreation)]
                )
            case HostedThrough():
                offsets = [work.offset for work in group if isinstance(work, HostedThrough)]
                self._table.change_history(lambda known: known.with_hosted_through(max(offsets)))
            case PartitionDeletion():
                deletions = [work.numbers for work in group if isinstance(work, PartitionDeletion)]
                self._delete(list(chain.from_iterable(deletions)))
        return self.active

    def commits(self) -> dict[int, int]:
        """Return the last commit of the active segment, by id. Any thread may ask."""
        active = self.active
        return {active.id: active.commit}

    def close(self) -> None:
        """Close the segment that was created ahead. Every other segment belongs to the store."""
        if self._following is not None and self._following.exception() is None:
            self._following.result().close()

    def _append(self, batches: Sequence[PendingBatch]) -> None:
        used_bytes = self.active.used_bytes
        if used_bytes >= self._options.segment_bytes:
            self._roll()
        elif used_bytes >= self._options.segment_bytes // 2 and self._following is None:
            self._create_following()
        self.active.append(batches)

    def _truncate(self, truncations: Sequence[Truncation]) -> None:
        """Truncate logs, newest batches first. A crash in between leaves a shorter log, never one
        with a gap.

        If batches of a log were rewritten, the active segment may hold older batches than earlier
        segments. It is then sealed first, and one commit of the table truncates the log.
        """
        if any(t.lowest_segment_id == ANY_SEGMENT for t in truncations):
            self._roll_if_used()
        cut = [(t.number, t.offset) for t in truncations if t.lowest_segment_id != NO_SEGMENT]
        if cut:
            self.active.delete_from(cut)
        self._table.record_truncations(truncations, self.active.id - 1)

    def _delete(self, numbers: Sequence[int]) -> None:
        """Delete partitions, first from the table. Without their rows the batches have no meaning,
        whatever happens to them."""
        self._table.remove_partitions(numbers)
        self.active.delete_from([(number, 0) for number in numbers])

    def _roll_if_used(self) -> None:
        if self.active.stored_bytes:
            self._roll()

    def _roll(self) -> None:
        """Seal the active segment and begin the next one."""
        following = self._following or self._create_following()
        self._following = None  # Cleared first, so that a failed creation is tried again.
        sealed, self.active = self.active, following.result()
        log.info("log segment %d sealed, %d begun", sealed.id, self.active.id)
        self._unsealed.append(sealed)
        self._housekeeping.behind.submit(self._seal_the_last)

    def _create_following(self) -> Future[Segment]:
        self._following = self._housekeeping.ahead.submit(self._create_segment, self.active.id + 1)
        return self._following

    def _seal_the_last(self) -> None:
        """Write the footers of segments that are no longer active. A power loss can then only
        destroy the segments after them.

        A footer that the full disk has no space for is tried again after the next roll.
        """
        for sealed in [one for one in tuple(self._unsealed) if not one.is_unlinked]:
            try:
                self._table.record_footer(sealed.id, sealed.seal())
                sealed.is_volatile = False
            except Exception:
                log.exception("cannot seal log segment %s: tried again later", sealed.path)
            else:
                self._unsealed.remove(sealed)


def create_segment(
    directory: Path, options: LogOptions, table: StoreTable, segment_id: int
) -> Segment:
    """Return a new segment that is in the table."""
    segment = Segment.create(directory, segment_id, options.flush, options.segment_bytes)
    try:
        table.record_segments({segment_id: options.flush == "sync"})
    except Exception:
        segment.unlink()
        raise
    return segment
