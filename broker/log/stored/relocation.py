"""Rewrites of batches of one partition: the write operation for the log writer, and the change of
the index.

The old batches are compared with the index twice. The first time is when the rewrite is requested:
they must not have changed since they were read. The second time is when the new batches are
durable: the start of the log may have moved meanwhile, so that some old batches are gone. The
remaining ones are replaced all the same.
"""

from collections.abc import Sequence

from quorate.broker.log.batches.record_batch import Batch
from quorate.broker.log.segments.batch_index import BatchIndex, IndexEntry, PlacedBatch
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.state.leader_epoch_cache import LeaderEpochCache


class Relocation:
    """The write of batches of one partition into the active segment, in place of ``old``.

    ``old`` are successive batches in sealed segments. Each of ``batches`` spans the offsets of one
    or more of them, and together they span the same offsets, so that the newest version of every
    offset counts when the store opens. If the bytes are equal it is a copy that lets the old
    segment be deleted. They become durable together. ``is_done`` means that they have taken the
    place of ``old``.
    """

    __slots__ = ("batches", "is_done", "max_timestamps", "number", "old", "size")

    def __init__(
        self,
        number: int,
        old: Sequence[PlacedBatch],
        batches: Sequence[PendingBatch],
        max_timestamps: Sequence[int],
    ) -> None:
        self.number = number
        self.old = old
        self.batches = batches
        self.max_timestamps = max_timestamps
        self.is_done = False
        self.size = sum(batch.size for batch in batches)


def relocation(
    number: int,
    index: BatchIndex,
    flushed: int,
    log_end_offset: int,
    epochs: LeaderEpochCache,
    old: Sequence[PlacedBatch],
    new: Sequence[Batch],
) -> Relocation | None:
    """Return the relocation that replaces ``old``, or None if the first ``flushed`` batches do not
    contain it.

    Raises:
        ValueError: what ``Rewriter.rewrite`` raises.
    """
    first = _position(index, flushed, old)
    if first is None or any(not placed.segment.is_sealed for placed in old):
        return None
    batches = [
        PendingBatch(
            number,
            header.base_offset,
            header.last_offset,
            data,
            header.leader_epoch if epochs.start_of(header.leader_epoch) >= 0 else -1,
            epochs.start_of(header.leader_epoch),
            len(data),
        )
        for header, data in new
    ]
    beyond = first + len(old)
    end_offset = index.base_offset(beyond) if beyond < len(index) else log_end_offset
    _check_spans([placed.base_offset for placed in old], end_offset, batches)
    return Relocation(number, old, batches, [header.max_timestamp for header, _ in new])


def replace(
    index: BatchIndex, flushed: int, work: Relocation, segment: Segment
) -> list[PlacedBatch]:
    """Point the index to the batches that ``work`` wrote into ``segment``. Return the places of the
    old ones.

    Return an empty list if the index no longer has the batches to replace.
    """
    if not len(index):
        return []
    deleted = sum(placed.base_offset < index.base_offset(0) for placed in work.old)
    left = work.old[deleted:]
    first = _position(index, flushed, left) if left else None
    if first is None:
        return []
    entries = [
        IndexEntry(batch.base_offset, batch.size, max_timestamp)
        for batch, max_timestamp in zip(work.batches, work.max_timestamps, strict=True)
        if batch.last_offset >= left[0].base_offset
    ]
    index.replace(first, first + len(left), flushed, entries, segment)
    segment.hold(len(entries), sum(entry.size for entry in entries))
    return list(left)


def _position(index: BatchIndex, flushed: int, old: Sequence[PlacedBatch]) -> int | None:
    """Return the position of ``old`` in the index, or None if the index does not have it
    unchanged."""
    first = index.first_at_or_after(old[0].base_offset)
    end = first + len(old)
    return first if end <= flushed and index.placed(first, end) == list(old) else None


def _check_spans(bases: Sequence[int], end_offset: int, batches: Sequence[PendingBatch]) -> None:
    """Check that the new batches span the same offsets. ``bases`` are the base offsets of the old
    batches, and ``end_offset`` is where the last of them ends."""
    known = {*bases, end_offset}
    wanted = bases[0]
    for batch in batches:
        if batch.base_offset != wanted or batch.last_offset + 1 not in known:
            raise ValueError(
                f"a new batch spans [{batch.base_offset}, {batch.last_offset + 1}), which is not "
                f"what old ones do from {wanted} on"
            )
        wanted = batch.last_offset + 1
    if wanted != end_offset:
        raise ValueError(f"the new batches end at {wanted}, the old ones at {end_offset}")
