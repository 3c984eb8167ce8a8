"""The writing half of a store: the active segment, the one after it, and the table.

One thread at a time uses it: the writer's, or the event loop's under ``log.flush=os``. Work that
nobody waits for (creating the next segment ahead, sealing the last one, unlinking an empty one)
runs in the housekeeping threads, so that a commit with a roll takes no longer than another.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import chain
from pathlib import Path

from broker.log.housekeeping import Housekeeping
from broker.log.options import LogOptions
from broker.log.segment import Segment
from broker.log.table import StoreTable
from broker.log.work import (
    ANY_SEGMENT,
    NO_SEGMENT,
    Creation,
    Deletion,
    PendingBatch,
    Relocation,
    Roll,
    Truncation,
    Work,
)

log = logging.getLogger(__name__)


CreateSegment = Callable[[int], Segment]
"""Makes a new segment of that id, known to the table."""


class Journal:
    """Performs groups of work on disk, in order."""

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

    def perform(self, group: Sequence[Work]) -> Segment:
        """Do a group, all of one kind; durable on return. Returns the segment that is active.

        Batches that were dropped meanwhile are not written. What failed may be tried again.

        Raises:
            lmdb.Error, OSError: the disk is full or broken; none of the group counts as done.
        """
        match group[0]:
            case PendingBatch():
                batches = [work for work in group if isinstance(work, PendingBatch)]
                self._append([batch for batch in batches if not batch.dropped])
            case Relocation():
                works = [work.batches for work in group if isinstance(work, Relocation)]
                self._append(list(chain.from_iterable(works)))
            case Roll():
                self._roll_if_used()
            case Truncation():
                self._truncate([work for work in group if isinstance(work, Truncation)])
            case Creation():
                self._table.add_partitions([w.row for w in group if isinstance(w, Creation)])
            case Deletion():
                deletions = [work.numbers for work in group if isinstance(work, Deletion)]
                self._delete(list(chain.from_iterable(deletions)))
        return self.active

    def close(self) -> None:
        """Release the segment created ahead; every other one belongs to the store."""
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
        """Newest batches first: a crash in between leaves a shorter log, never one with a hole.

        Of a log whose batches were written again the active segment may hold older ones than those
        before it do. Then it is sealed first, and one commit of the table cuts the log.
        """
        if any(t.lowest_segment_id == ANY_SEGMENT for t in truncations):
            self._roll_if_used()
        cut = [(t.number, t.offset) for t in truncations if t.lowest_segment_id != NO_SEGMENT]
        if cut:
            self.active.delete_from(cut)
        self._table.record_truncations(truncations, self.active.id - 1)

    def _delete(self, numbers: Sequence[int]) -> None:
        """The table first: without it the batches mean nothing, whatever becomes of them."""
        self._table.remove_partitions(numbers)
        self.active.delete_from([(number, 0) for number in numbers])

    def _roll_if_used(self) -> None:
        if self.active.stored_bytes:
            self._roll()

    def _roll(self) -> None:
        """Seal the active segment and begin the next one."""
        following = self._following or self._create_following()
        self._following = None  # Whether or not there is one: what failed is tried again.
        sealed, self.active = self.active, following.result()
        log.info("log segment %d sealed, %d begun", sealed.id, self.active.id)
        self._unsealed.append(sealed)
        self._housekeeping.behind.submit(self._seal_the_last)

    def _create_following(self) -> Future[Segment]:
        self._following = self._housekeeping.ahead.submit(self._create_segment, self.active.id + 1)
        return self._following

    def _seal_the_last(self) -> None:
        """Write footers. After this, a power loss takes the segments after them alone.

        What the disk has no room for now is tried again after the next roll.
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
    """A new segment, known to the table."""
    segment = Segment.create(directory, segment_id, options.flush, options.segment_bytes)
    try:
        table.record_segments({segment_id: options.flush == "sync"})
    except Exception:
        segment.unlink()
        raise
    return segment
