"""What a partition's log holds, and reading it: from memory what is new, from segments what is old.

``partition_log.PartitionLog`` adds what changes it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

from broker.errors import KafkaError
from broker.log.batch_index import BatchIndex, Placed
from broker.log.cleanable import Cleanable, cleanable
from broker.log.cold_read import ColdRead
from broker.log.damage import DamagedBatch
from broker.log.leader_epochs import LeaderEpochHistory
from broker.log.memory_tail import MemoryTail
from broker.log.options import LogRead, Records
from broker.log.producers import PartitionProducers
from broker.log.retention import Retention, SegmentTimes, batches_to_delete
from broker.log.segment import Segment
from broker.log.segment_file import NotCached
from broker.log.storing import AS_SENT
from broker.log.timestamps import first_of_greatest, first_record_at
from broker.log.transactions import PartitionTransactions
from broker.log.work import (
    PartitionRow,
    PendingBatch,
    Truncation,
)
from metadata_log.types import TopicId, TopicIdPartition, TopicPartition
from quorate_proto.v1 import errors_pb2

_SMALL_CHUNK_BYTES = 4096
"""Chunks below this size are joined: a copy is cheaper than many pieces on their way out."""


Forgotten = Sequence[tuple[Segment, int, int]]
"""How many flushed batches of each segment a log no longer has, and their bytes."""


_NO_OFFSET: Final = 2**63
"""Beyond every offset."""


OnDamaged = Callable[["StoredLog", DamagedBatch], None]
"""A batch of this log was read and is not what was written."""


class Writer(Protocol):
    """What a log asks of its store."""

    tail: MemoryTail
    newest_segment: Segment
    on_damaged: "OnDamaged"

    def load(self, cold: NotCached) -> Awaitable[None]:
        """Have the page cache hold what was not there."""

    def check_writable(self) -> None:
        """Raise KAFKA_STORAGE_ERROR once the disk is full or has failed."""

    def check_works(self) -> None:
        """Raise KAFKA_STORAGE_ERROR once the disk has failed."""

    def submit_batch(self, batch: PendingBatch) -> None:
        """Have a batch written."""

    def submit_truncation(self, truncation: Truncation, forgotten: Forgotten) -> Awaitable[None]:
        """Have a truncation made durable, and let go of what it ``forgot`` only then."""


class StoredLog:
    """The batches of one partition. Every method runs on the event-loop thread.

    ``[log_start_offset, log_end_offset)`` is readable; below ``flushed_offset`` it is durable
    (``log.flush=os``: written).
    """

    def __init__(
        self,
        row: PartitionRow,
        writer: Writer,
        max_batch_bytes: int,
        index: BatchIndex,
        leader_epochs: LeaderEpochHistory,
        producers: PartitionProducers,
        transactions: PartitionTransactions,
        log_end_offset: int,
        checkpointed_high_watermark: int,
    ) -> None:
        self.tip = TopicIdPartition(TopicId(row.topic_id), row.partition)
        self.topic = row.topic
        self.assigned_at = row.assigned_at
        self.number = row.number
        self.log_start_offset = row.log_start_offset
        self.log_end_offset = log_end_offset
        self.flushed_offset = log_end_offset
        self.checkpointed_high_watermark = checkpointed_high_watermark
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.transactions = transactions
        self.max_batch_bytes = max_batch_bytes
        self.needs_keys = False
        self.storing = AS_SENT
        self.cleaned_offset = row.log_start_offset
        """The first offset that compaction has not looked at."""
        self.truncations = 0
        """How often the end of the log was cut off."""
        self._where = str(TopicPartition(row.topic, row.partition))
        self._writer = writer
        self._index = index
        self._deleted = False
        self.rewriting: asyncio.Future[None] | None = None
        """Done when no older batches are being replaced."""
        self.has_versions = False
        """Whether segments may hold older versions of its batches, which truncations void, too."""

    def __repr__(self) -> str:
        return f"<log {self._where} [{self.log_start_offset}, {self.log_end_offset})>"

    @property
    def size_bytes(self) -> int:
        """Bytes of its batches."""
        return self._index.total_bytes

    def stable_offset(self, high_watermark: int) -> int:
        """As far as is read by whoever wants nothing of a transaction that is not over."""
        return max(self.log_start_offset, self.transactions.stable_offset(high_watermark))

    def _time_of(self, base_offset: int) -> int:
        """Of all records of the batch there, which may have been appended long ago; -1: unknown."""
        position = self._index.position_of(base_offset)
        return self._index.greatest_timestamp(position) if position >= 0 else -1

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        up_to_offset: int,
        wanted_end: int = _NO_OFFSET,
        *,
        wait: bool = True,
    ) -> LogRead:
        """Whole batches from the one that contains ``start_offset``, up to ``max_bytes`` of them.

        At least one, if there is one whose last offset is below ``up_to_offset``; none that begins
        at or beyond ``wanted_end``, and none from a damaged one on.

        Raises:
            DamagedBatch: the first one is damaged.
            ColdRead: the disk would have to be waited for, and ``wait`` is False.
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
            raise ColdRead(size, partial(self._writer.load, cold)) from None
        except DamagedBatch as damaged:
            self._writer.on_damaged(self, damaged)
            end = self._index.first_at_or_after(damaged.base_offset)
            if end <= first:
                raise
            # What lies before it is right, and a reader gets as far as that.
            chunks, size = self._chunks(first, end), self._index.bytes_of(first, end)
        if len(chunks) > 1 and size < len(chunks) * _SMALL_CHUNK_BYTES:
            chunks = [b"".join(chunks)]
        return LogRead(chunks, self._next_offset(end - 1), size)

    def retained_from(
        self, committed_offset: int, retention: Retention, now_ms: int, times: SegmentTimes
    ) -> int:
        """Where the log is to begin, as ``retention`` has it: ``start_at`` takes it there.

        At or below ``committed_offset`` and what is flushed. ``now_ms``: wall clock; ``times``: of
        the store's segments.
        """
        if retention.is_for_ever:
            return self.log_start_offset
        index = self._index
        deletable = min(committed_offset, self.flushed_offset)
        limit = index.whole_batches_below(deletable, self.log_end_offset)
        gone = batches_to_delete(index, limit, retention, now_ms, times)
        return max(self.log_start_offset, self._next_offset(gone - 1) if gone else 0)

    def offset_for_timestamp(self, timestamp_ms: int, up_to_offset: int) -> tuple[int, int] | None:
        """(offset, timestamp in ms) of the first record at or after ``timestamp_ms``.

        None if there is none below ``up_to_offset``.

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
        """(offset, timestamp in ms) of the first record below ``up_to_offset`` with the greatest
        timestamp; None: there is no record.

        One batch is read, unless the greatest was in what the log has lost since (deleted records
        with timestamps ahead of all that came later): then all of them.

        Raises:
            KafkaError: as ``offset_for_timestamp``.
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
        """What of the log may be compacted; as ``cleanable`` has it."""
        up_to_offset = min(up_to_offset, self.flushed_offset)
        cleaned_offset = max(self.log_start_offset, self.cleaned_offset)
        return cleanable(self._index, self.log_end_offset, cleaned_offset, up_to_offset, newest_ms)

    def placed_from(
        self, start_offset: int, end_offset: int, max_bytes: int
    ) -> tuple[list[Placed], int]:
        """About ``max_bytes`` of flushed batches, and the first offset beyond them.

        From the one that contains ``start_offset`` on; none that begins at or beyond the end.
        """
        index = self._index
        limit = min(index.first_at_or_after(end_offset), self._flushed_batches())
        first = max(0, index.position_of(start_offset))
        if first >= limit:
            return [], start_offset
        end, _ = index.end_of_read(first, limit, max_bytes)
        return index.placed(first, end), self._next_offset(end - 1)

    def placed(self, start_offset: int, end_offset: int) -> list[Placed]:
        """The flushed batches that begin in [start, end), and where they are."""
        index = self._index
        end = min(index.first_at_or_after(end_offset), self._flushed_batches())
        return index.placed(min(index.first_at_or_after(start_offset), end), end)

    def placed_in(self, segment: Segment) -> list[list[Placed]]:
        """The batches that lie in ``segment``, successive ones together."""
        spans = self._index.spans(0, self._flushed_batches())
        return [self._index.placed(first, end) for at, first, end in spans if at is segment]

    def _one(self, position: int) -> list[Records]:
        try:
            return self._chunks(position, position + 1)
        except DamagedBatch as damaged:
            self._writer.on_damaged(self, damaged)
            raise

    def _chunks(self, first: int, end: int, *, wait: bool = True) -> list[Records]:
        """The batches at positions ``first`` to ``end``: old ones from disk, new ones from memory.

        The tail evicts oldest first, so what it lacks of a log comes before what it has.
        """
        index, tail, number = self._index, self._writer.tail, self.number
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
        """The first offset beyond the batch at ``position``."""
        if position + 1 < len(self._index):
            return self._index.base_offset(position + 1)
        return self.log_end_offset

    def _flushed_batches(self) -> int:
        return self._index.first_at_or_after(self.flushed_offset)

    def _held(self, first: int, end: int) -> Forgotten:
        """Which segments hold the flushed batches at positions ``first`` to ``end``."""
        index = self._index
        return [
            (segment, beyond - begin, index.bytes_of(begin, beyond))
            for segment, begin, beyond in index.spans(first, end)
        ]
