"""Batches written again: copied out of a segment that is to go, or replaced by smaller ones.

What is to be replaced is compared with the index twice. When it is asked for: nothing else may have
become of it since it was read. And when it is durable: the start of the log may have moved on
meanwhile, so that a part of it is gone; what is left is replaced all the same. Truncations wait for
a rewrite to be done, or a longer batch could come back where a shorter one was cut off.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.log.batch_index import BatchIndex, Entry, Placed
from broker.log.leader_epochs import LeaderEpochHistory
from broker.log.record_batch import Batch
from broker.log.segment import Segment
from broker.log.work import PendingBatch, Relocation

if TYPE_CHECKING:
    from broker.log.partition_log import PartitionLog
    from broker.log.stored_log import Forgotten


class Rewrite(NamedTuple):
    """``old``: successive batches of a log, in sealed segments. ``new``: what takes their place.

    Each new batch begins where an old one does, and each ends where one ends; together they span
    the same offsets. Their bytes are stored as they are.
    """

    log: "PartitionLog"
    old: Sequence[Placed]
    new: Sequence[Batch]


Submit = Callable[[Relocation], "asyncio.Future[None]"]
"""Done when the work is durable, and the index knows."""
Release = Callable[["Forgotten"], None]
"""Nothing of these batches is needed in these segments any more."""


class Rewriting:
    """One rewrite at a time, and old batches kept as long as new ones could be lost.

    A segment written without fsync is lost in a power loss until it is sealed: what was copied into
    it stays where it was as long.
    """

    def __init__(self, submit: Submit, release: Release) -> None:
        self._submit = submit
        self._release = release
        self._turn = asyncio.Lock()
        self._kept: deque[tuple[Segment, Forgotten]] = deque()
        """Segments with copies, as they were written, and what each keeps from going."""

    async def rewrite(self, rewrites: Sequence[Rewrite]) -> list[bool]:
        """Whether each was done; not if its log no longer has what it replaces. Durable on return.

        What follows one of the same log that is not done is not done either.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
            ValueError: the new batches do not span what the old ones do, as ``Rewrite`` says.
        """
        async with self._turn:
            works = _begun(rewrites)
            submitted: list[asyncio.Future[None]] = []
            for each, work in zip(rewrites, works, strict=True):
                if work is not None:
                    each.log.rewriting = self._submit(work)
                    submitted.append(each.log.rewriting)
            if submitted:
                await asyncio.wait(submitted)
            for done in submitted:
                done.result()
        return [work is not None and work.is_done for work in works]

    def done(self, work: Relocation, segment: Segment, log: "PartitionLog | None") -> None:
        """``work`` is in ``segment``; ``log``: its log, None if that is gone."""
        if log is None:
            return
        self.keep_until_durable(segment, log.note_rewritten(work, segment))

    def keep_until_durable(self, segment: Segment, forgotten: "Forgotten") -> None:
        """Let go of what ``segment`` has copies of once it is durable: now, if it is."""
        self._kept.append((segment, forgotten))
        self.let_go()

    def let_go(self) -> None:
        """Of what has durable copies by now."""
        while self._kept and not self._kept[0][0].is_volatile:
            self._release(self._kept.popleft()[1])

    def is_waited_for(self, segment: Segment) -> bool:
        """Whether something is kept until ``segment`` is durable."""
        return any(each is segment and forgotten for each, forgotten in self._kept)

    def kept_bytes(self) -> Counter[int]:
        """Segment id → bytes of batches that live elsewhere already."""
        kept: Counter[int] = Counter()
        for _, forgotten in self._kept:
            for segment, _, size in forgotten:
                kept[segment.id] += size
        return kept


def _begun(rewrites: Sequence[Rewrite]) -> list[Relocation | None]:
    """The work of each, until one of its log has none."""
    works: list[Relocation | None] = []
    halted: set[int] = set()
    for each in rewrites:
        number = each.log.number
        work = None if number in halted else each.log.begin_rewrite(each.old, each.new)
        if work is None:
            halted.add(number)
        works.append(work)
    return works


def relocation(
    number: int,
    index: BatchIndex,
    flushed: int,
    log_end_offset: int,
    epochs: LeaderEpochHistory,
    old: Sequence[Placed],
    new: Sequence[Batch],
) -> Relocation | None:
    """The work that replaces ``old``, or None if it is not among the first ``flushed`` batches.

    Raises:
        ValueError: as ``Rewriting.rewrite``.
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
        )
        for header, data in new
    ]
    beyond = first + len(old)
    end_offset = index.base_offset(beyond) if beyond < len(index) else log_end_offset
    _check_spans([placed.base_offset for placed in old], end_offset, batches)
    return Relocation(number, old, batches, [header.max_timestamp for header, _ in new])


def replace(index: BatchIndex, flushed: int, work: Relocation, segment: Segment) -> list[Placed]:
    """Have the index name what ``work`` wrote into ``segment``; returns what it named before.

    Nothing if what was to be replaced is not there any more.
    """
    if not len(index):
        return []
    gone = sum(placed.base_offset < index.base_offset(0) for placed in work.old)
    left = work.old[gone:]
    first = _position(index, flushed, left) if left else None
    if first is None:
        return []
    entries = [
        Entry(batch.base_offset, batch.size, max_timestamp)
        for batch, max_timestamp in zip(work.batches, work.max_timestamps, strict=True)
        if batch.last_offset >= left[0].base_offset
    ]
    index.replace(first, first + len(left), flushed, entries, segment)
    segment.live_batches += len(entries)
    segment.live_bytes += sum(entry.size for entry in entries)
    return list(left)


def _position(index: BatchIndex, flushed: int, old: Sequence[Placed]) -> int | None:
    """Where ``old`` is in the index, if it is there as it was."""
    first = index.first_at_or_after(old[0].base_offset)
    end = first + len(old)
    return first if end <= flushed and index.placed(first, end) == list(old) else None


def _check_spans(bases: Sequence[int], end_offset: int, batches: Sequence[PendingBatch]) -> None:
    """``bases``: where the old batches begin; ``end_offset``: where the last of them ends."""
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
