"""Reads a partition's log: new batches from memory, old ones from segments.

``partition_log.PartitionLog`` adds the methods that change it.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.record_batch import Batch
from quorate.broker.log.batches.timestamp_search import first_of_greatest, first_record_at
from quorate.broker.log.checkpoints.partition_row import PartitionRow
from quorate.broker.log.options import ColdRead, LogRead, Records
from quorate.broker.log.segments.batch_index import Forgotten, MemoryTail, PlacedBatch
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.segments.segment_file import NotCached
from quorate.broker.log.stored.cleanable import Cleanable, cleanable
from quorate.broker.log.stored.log_state import LogState
from quorate.broker.log.stored.relocation import Relocation, relocation, replace
from quorate.broker.log.stored.retention import Retention, SegmentTimes, batches_to_delete
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import TopicId, TopicIdPartition, TopicPartition
from quorate_proto.v1 import errors_pb2

_SMALL_CHUNK_BYTES = 4096
"""Chunks below this size are joined, because a copy is cheaper than sending many pieces."""


_NO_OFFSET: Final = 2**63
"""A number above every offset."""


OnDamaged = Callable[["StoredLog", DamagedBatch | BrokenInvariant], None]
"""Called when a batch of this log was read and is damaged, or the log broke an invariant."""


class LogReads:
    """The objects that the logs of one store share for reading.

    ``tail`` holds the newest batches. ``on_damaged`` is called with every damaged batch each time
    it is read.
    """

    def __init__(self, tail: MemoryTail, readers: Executor, on_damaged: OnDamaged) -> None:
        """``readers`` are the threads that read data that is only on disk."""
        self.tail = tail
        self.on_damaged = on_damaged
        self._readers = readers

    async def load(self, cold: NotCached) -> None:
        """Wait until the data is in the page cache."""
        await asyncio.get_running_loop().run_in_executor(self._readers, cold.load)


class StoredLog:
    """The batches of one partition. Every method runs on the event-loop thread.

    ``[log_start_offset, log_end_offset)`` is readable. Below ``flushed_offset`` it is durable (with
    ``log.flush=os``: written).
    """

    def __init__(self, row: PartitionRow, state: LogState, reads: LogReads) -> None:
        self.tip = TopicIdPartition(TopicId(row.topic_id), row.partition)
        self.topic = row.topic
        self.assigned_at = row.assigned_at
        """The metadata offset at which this broker was given the partition."""
        self.placement = row.placement
        """The number of times that the replica was moved to another log folder."""
        self.number = row.number
        """The number of the partition in this store."""
        self.log_start_offset = row.log_start_offset
        self.log_end_offset = state.log_end_offset
        self.flushed_offset = state.log_end_offset
        self.checkpointed_high_watermark = max(
            row.log_start_offset, min(state.checkpointed_high_watermark, state.log_end_offset)
        )
        self.lacks_committed = state.checkpointed_high_watermark > state.log_end_offset
        """Whether the log was found to end below its own checkpointed high watermark (rule 8)."""
        self.leader_epochs = state.leader_epochs
        self.producers = state.producers
        self.transactions = state.transactions
        self.cleaned_offset = min(state.cleaned_offset, state.log_end_offset)
        """The first offset that compaction has not processed."""
        self.truncations = 0
        """The number of truncations of the end of the log."""
        self.rewriting: asyncio.Future[None] | None = None
        """A future that is done when no older batches are being replaced."""
        self._has_versions = state.has_versions
        self._where = str(TopicPartition(row.topic, row.partition))
        self._reads = reads
        self._index = state.batches
        self._deleted = False

    def __repr__(self) -> str:
        return f"<log {self._where} [{self.log_start_offset}, {self.log_end_offset})>"

    @property
    def size_bytes(self) -> int:
        """The bytes of its batches."""
        return self._index.total_bytes

    @property
    def has_transactions(self) -> bool:
        """Whether the last stable offset may lie below the high watermark."""
        return self.transactions.first_unstable >= 0

    def stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset. No transaction below it is open."""
        return max(self.log_start_offset, self.transactions.stable_offset(high_watermark))

    def _time_of(self, base_offset: int) -> int:
        """Return the timestamp of a batch that may have been appended long ago, or -1 if it is
        unknown."""
        position = self._index.position_of(base_offset)
        return self._index.greatest_timestamp(position) if position >= 0 else -1

    def settle_transactions(self, high_watermark: int) -> None:
        """Record that the markers below ``high_watermark`` are committed."""
        if self.transactions.unsettled is not None:
            self.transactions.settle(high_watermark)

    def note_flushed(self, batch: PendingBatch, segment: Segment) -> None:
        """Record that a batch is in ``segment``."""
        end = batch.last_offset + 1
        if not self.flushed_offset < end <= self.log_end_offset:
            raise BrokenInvariant(
                self._where,
                "batches become durable in order, up to the log end (C12)",
                flushed=self.flushed_offset,
                durable=end,
                log_end=self.log_end_offset,
            )
        self._index.place(batch.base_offset, segment)
        self.flushed_offset = end
        segment.hold(1, batch.size)

    def report_damage(self, damaged: DamagedBatch | BrokenInvariant) -> None:
        """Tell the owner of the store that nobody may rely on this log."""
        self._reads.on_damaged(self, damaged)

    def note_checkpointed(self, high_watermark: int) -> None:
        """Record the high watermark that the checkpoint holds; a restart begins from it."""
        self.checkpointed_high_watermark = high_watermark

    def note_cleaned(self, offset: int) -> None:
        """Record that the log was compacted up to ``offset``."""
        self.cleaned_offset = min(offset, self.log_end_offset)
        self.transactions.forget_aborted_before(self.cleaned_offset)

    def begin_rewrite(self, old: Sequence[PlacedBatch], new: Sequence[Batch]) -> Relocation | None:
        """Return the write operation that replaces ``old`` by ``new``, see ``Rewrite``.

        Return None if the log does not have ``old``. The caller submits the operation and then
        calls ``note_rewriting``.

        Raises:
            ValueError: The new batches do not span the same offsets as the old ones.
        """
        if self._deleted:
            return None
        work = relocation(
            self.number,
            self._index,
            self._flushed_batches(),
            self.log_end_offset,
            self.leader_epochs,
            old,
            new,
        )
        self._has_versions = self._has_versions or work is not None
        return work

    def note_rewriting(self, rewriting: "asyncio.Future[None]") -> None:
        """Record that batches are being replaced until ``rewriting`` is done."""
        self.rewriting = rewriting

    def note_rewritten(self, work: Relocation, segment: Segment) -> Forgotten:
        """Record that the rewritten batches are in ``segment``. Return what they replaced, if
        ``work.is_done``."""
        replaced = replace(self._index, self._flushed_batches(), work, segment)
        work.is_done = bool(replaced)
        for placed in replaced:
            self._reads.tail.drop(self.number, placed.base_offset)
        return [(placed.segment, 1, placed.size) for placed in replaced]

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        up_to_offset: int,
        wanted_end: int = _NO_OFFSET,
        *,
        wait: bool = True,
    ) -> LogRead:
        """Read whole batches from the one that contains ``start_offset`` on, up to ``max_bytes``.

        At least one batch is read if there is one whose last offset is below ``up_to_offset``. No
        batch that begins at or beyond ``wanted_end`` is read, and none from a damaged batch on.

        Raises:
            DamagedBatch: The first batch is damaged.
            ColdRead: The disk would have to be waited for, and ``wait`` is False.
            KafkaError: OFFSET_OUT_OF_RANGE outside [log start, log end].
        """
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise KafkaError(
                errors_pb2.OFFSET_OUT_OF_RANGE,
                f"{self._where}: offset {start_offset} is outside the log, which has "
                f"[{self.log_start_offset}, {self.log_end_offset})",
            )
        first = self._index.position_of(start_offset)
        limit = min(
            self._index.whole_batches_below(up_to_offset, self.log_end_offset),
            self._index.first_at_or_after(wanted_end),
        )
        if start_offset >= self.log_end_offset or first >= limit:
            return LogRead([], start_offset, 0)
        end, size = self._index.end_of_read(first, limit, max_bytes)
        try:
            chunks = self._chunks(first, end, wait=wait)
        except NotCached as cold:
            raise ColdRead(size, partial(self._reads.load, cold)) from None
        except DamagedBatch as damaged:
            self._reads.on_damaged(self, damaged)
            end = self._index.first_at_or_after(damaged.base_offset)
            if end <= first:
                raise
            # The batches before the damaged one are valid, and a reader gets them.
            chunks, size = self._chunks(first, end), self._index.bytes_of(first, end)
        if len(chunks) > 1 and size < len(chunks) * _SMALL_CHUNK_BYTES:
            chunks = [b"".join(chunks)]
        return LogRead(chunks, self._next_offset(end - 1), size)

    def retained_from(
        self, committed_offset: int, retention: Retention, now_ms: int, times: SegmentTimes
    ) -> int:
        """Return the offset at which the log should begin by ``retention``. ``start_at`` moves the
        start there.

        It is at or below ``committed_offset``, and flushed. ``now_ms`` is the wall clock, and
        ``times`` are the segment times of the store.
        """
        if retention.is_for_ever:
            return self.log_start_offset
        index = self._index
        deletable = min(committed_offset, self.flushed_offset)
        limit = index.whole_batches_below(deletable, self.log_end_offset)
        count = batches_to_delete(index, limit, retention, now_ms, times)
        return max(self.log_start_offset, self._next_offset(count - 1) if count else 0)

    def offset_for_timestamp(self, timestamp_ms: int, up_to_offset: int) -> tuple[int, int] | None:
        """Return (offset, timestamp in ms) of the first record at or after ``timestamp_ms``.

        Return None if there is none below ``up_to_offset``.

        Raises:
            KafkaError: CORRUPT_MESSAGE if the producer wrote what cannot be decoded;
                KAFKA_STORAGE_ERROR.
        """
        position = self._index.first_with_timestamp(timestamp_ms)
        while position < len(self._index) and self._index.base_offset(position) < up_to_offset:
            batch = b"".join(self._one(position))
            found = first_record_at(batch, timestamp_ms, self.log_start_offset, up_to_offset)
            if found is not None:
                return found
            position += 1
        return None

    def offset_of_max_timestamp(self, up_to_offset: int) -> tuple[int, int] | None:
        """Return (offset, timestamp in ms) of the first record with the greatest timestamp.

        Only records below ``up_to_offset`` count. Return None if there is none. One batch is read.
        If the greatest timestamp was in a part that the log has lost since (deleted records with
        timestamps ahead of all later ones), all batches are read.

        Raises:
            KafkaError: what ``offset_for_timestamp`` raises.
        """
        index = self._index
        end = index.first_at_or_after(up_to_offset)
        if not end:
            return None
        first = index.first_with_timestamp(index.greatest_timestamp(end - 1))
        start = self.log_start_offset
        found = first_record_at(
            b"".join(self._one(first)), index.greatest_timestamp(first), start, up_to_offset
        )
        if found is not None:
            return found
        everything = (b"".join(self._one(position)) for position in range(end))
        return first_of_greatest(everything, start, up_to_offset)

    def cleanable(self, up_to_offset: int, newest_ms: int | None) -> Cleanable:
        """Return the part of the log that may be compacted, see ``cleanable``."""
        up_to_offset = min(up_to_offset, self.flushed_offset)
        cleaned_offset = max(self.log_start_offset, self.cleaned_offset)
        return cleanable(self._index, self.log_end_offset, cleaned_offset, up_to_offset, newest_ms)

    def placed_from(
        self, start_offset: int, end_offset: int, max_bytes: int
    ) -> tuple[list[PlacedBatch], int]:
        """Return about ``max_bytes`` of flushed batches, and the first offset after them.

        They begin with the one that contains ``start_offset``. None begins at or beyond
        ``end_offset``.
        """
        index = self._index
        limit = min(index.first_at_or_after(end_offset), self._flushed_batches())
        first = max(0, index.position_of(start_offset))
        if first >= limit:
            return [], start_offset
        end, _ = index.end_of_read(first, limit, max_bytes)
        return index.placed(first, end), self._next_offset(end - 1)

    def placed(self, start_offset: int, end_offset: int) -> list[PlacedBatch]:
        """Return the flushed batches that begin in [start, end), with their places."""
        index = self._index
        end = min(index.first_at_or_after(end_offset), self._flushed_batches())
        return index.placed(min(index.first_at_or_after(start_offset), end), end)

    def placed_in(self, segment: Segment) -> list[list[PlacedBatch]]:
        """Return the batches in ``segment``, grouped into lists of successive batches."""
        spans = self._index.spans(0, self._flushed_batches())
        return [self._index.placed(first, end) for at, first, end in spans if at is segment]

    def _one(self, position: int) -> list[Records]:
        try:
            return self._chunks(position, position + 1)
        except DamagedBatch as damaged:
            self._reads.on_damaged(self, damaged)
            raise

    def _chunks(self, first: int, end: int, *, wait: bool = True) -> list[Records]:
        """Return the batches from ``first`` to ``end``: old ones from disk, new ones from memory.

        The tail evicts the oldest first, so the batches that it lacks come before those that it
        has.
        """
        index, tail, number = self._index, self._reads.tail, self.number
        in_memory: list[Records] = []
        position = end
        while position > first:
            batch = tail.get(number, index.base_offset(position - 1))
            if batch is None:
                break
            in_memory.append(batch.records)
            position -= 1
        chunks: list[Records] = []
        for segment, begin, beyond in index.spans(first, position):
            chunks += segment.read(number, index.entries(begin, beyond), wait=wait)
        in_memory.reverse()
        chunks += in_memory
        return chunks

    def _next_offset(self, position: int) -> int:
        """Return the first offset after the batch at ``position``."""
        if position + 1 < len(self._index):
            return self._index.base_offset(position + 1)
        return self.log_end_offset

    def _flushed_batches(self) -> int:
        return self._index.first_at_or_after(self.flushed_offset)

    def _held(self, first: int, end: int) -> Forgotten:
        """Return the segments that hold the flushed batches at positions ``first`` to ``end``."""
        index = self._index
        return [
            (segment, beyond - begin, index.bytes_of(begin, beyond))
            for segment, begin, beyond in index.spans(first, end)
        ]
