"""The log of one partition: the one way in for every batch, and the way out for all readers.

An append is visible to ``read`` at once, from the memory tail, so that followers fetch what is not
flushed yet; it counts for this replica only when ``flushed_offset`` has passed it. State changes in
memory first and on disk in the same order after it, so a reader never sees a truncated batch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

from broker.errors import KafkaError
from broker.log.admission import MARKERS, Origin, produced_batches, replicated_batches
from broker.log.batch_index import BatchIndex, Placed
from broker.log.cleanable import Cleanable, cleanable
from broker.log.cold_read import ColdRead
from broker.log.control_batches import decode_marker
from broker.log.damage import DamagedBatch
from broker.log.keyed_records import check_keys
from broker.log.leader_epochs import LeaderEpochHistory
from broker.log.memory_tail import MemoryTail
from broker.log.options import Appended, LogRead, Records
from broker.log.producers import Original, PartitionProducers
from broker.log.record_batch import CONTROL, TRANSACTIONAL, Batch, put_in_place
from broker.log.replaying import ongoing_at
from broker.log.retention import Retention, SegmentTimes, batches_to_delete
from broker.log.rewriting import relocation, replace
from broker.log.segment import Segment
from broker.log.segment_file import NotCached
from broker.log.storing import AS_SENT, timed
from broker.log.timestamps import first_of_greatest, first_record_at
from broker.log.transactions import PartitionTransactions, take_note
from broker.log.work import (
    ANY_SEGMENT,
    NO_SEGMENT,
    PartitionRow,
    PendingBatch,
    Relocation,
    Truncation,
)
from metadata_log.types import LeaderEpoch, TopicId, TopicIdPartition, TopicPartition
from quorate_proto.v1 import errors_pb2

_SMALL_CHUNK_BYTES = 4096
"""Chunks below this size are joined: a copy is cheaper than many pieces on their way out."""


Forgotten = Sequence[tuple[Segment, int, int]]
"""How many flushed batches of each segment a log no longer has, and their bytes."""


_NO_OFFSET: Final = 2**63
"""Beyond every offset."""
_OF_TRANSACTIONS: Final = TRANSACTIONAL | CONTROL


OnDamaged = Callable[["PartitionLog", DamagedBatch], None]
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


class PartitionLog:
    """The log of one partition. Every method runs on the event-loop thread.

    ``[log_start_offset, log_end_offset)`` is readable; below ``flushed_offset`` it is durable
    (``log.flush=os``: written). ``max_batch_bytes`` may be set to the topic's own limit,
    ``needs_keys`` for a compacted topic, and ``storing`` for one that stores other than it is sent.
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

    def append_as_leader(
        self,
        records: Records,
        leader_epoch: LeaderEpoch,
        origin: Origin = Origin.CLIENT,
        now_ms: int = 0,
    ) -> Appended:
        """Validate, give offsets from the log end on and the epoch, append all or nothing.

        Batches that an idempotent producer sent before are not appended again: the answer says
        where the first batch is, new or not, and up to where the log must reach to have them all.
        Where ``records`` can be written to, they are the log's from now on: see ``put_in_place``.
        ``now_ms``: wall clock, for topics that look at it (``storing``).

        Raises:
            KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE,
                UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_COMPRESSION_TYPE, KAFKA_STORAGE_ERROR,
                TRANSACTIONAL_ID_AUTHORIZATION_FAILED; OUT_OF_ORDER_SEQUENCE_NUMBER,
                INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED from ``producers``;
                INVALID_TXN_STATE from ``transactions``.
        """
        self._check_writable()
        batches = produced_batches(records, self.max_batch_bytes, self._where, origin)
        if origin is MARKERS:
            return self._append_markers(batches, leader_epoch)
        if origin.is_client:
            if self.needs_keys:
                check_keys(batches, self._where)
            batches = timed(batches, self.storing, now_ms, self._where)
        if len(batches) > 1 or batches[0].header.producer_id >= 0:
            appended = self._append_once(batches, leader_epoch)
        else:
            base_offset = self.log_end_offset
            self._append_at_end(batches[0], leader_epoch)
            appended = Appended(base_offset, self.log_end_offset - 1)
        if self.storing.log_append_time and origin.is_client:
            return appended._replace(log_append_time_ms=self._time_of(appended.base_offset))
        return appended

    def _time_of(self, base_offset: int) -> int:
        """Of all records of the batch there, which may have been appended long ago; -1: unknown."""
        position = self._index.position_of(base_offset)
        return self._index.greatest_timestamp(position) if position >= 0 else -1

    def _append_once(self, batches: list[Batch], leader_epoch: LeaderEpoch) -> Appended:
        """Append what is new of ``batches``."""
        originals = self.producers.find_originals(batches)
        if self.transactions.ongoing or len(batches) > 1:
            pairs = zip(batches, originals, strict=True)
            self.transactions.check([batch for batch, original in pairs if original is None])
        first: Original | None = None
        last_offset = -1
        for batch, original in zip(batches, originals, strict=True):
            if original is None:
                base_offset = self.log_end_offset
                self._append_at_end(batch, leader_epoch)
                if batch.header.attributes & _OF_TRANSACTIONS:
                    self._take_note(batch, base_offset)
                else:
                    self.producers.record(batch.header, base_offset)
                original = Original(base_offset, self.log_end_offset - 1)
            first = first or original
            last_offset = max(last_offset, original.last_offset)
        assert first is not None
        return Appended(first.base_offset, last_offset)

    def _append_markers(self, batches: list[Batch], leader_epoch: LeaderEpoch) -> Appended:
        for batch in batches:
            marker = decode_marker(*batch)
            if marker is not None:
                self.producers.check_marker(marker)
        base_offset = self.log_end_offset
        for batch in batches:
            at = self.log_end_offset
            self._append_at_end(batch, leader_epoch)
            self._take_note(batch, at)
        return Appended(base_offset, self.log_end_offset - 1)

    def _take_note(self, batch: Batch, base_offset: int) -> None:
        """Of who wrote it; once it is in the log."""
        header = batch.header
        if not header.attributes & _OF_TRANSACTIONS:
            self.producers.record(header, base_offset)
            return
        marker = decode_marker(*batch) if header.is_control else None
        take_note(self.producers, self.transactions, header, base_offset, marker)

    def append_as_follower(self, records: Records) -> Appended:
        """Append a leader's batches as they are: the first must begin at the log end.

        Before it, if this log is empty and its leader's begins inside that batch, too.

        Raises:
            KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_FOR_MESSAGE_FORMAT,
                KAFKA_STORAGE_ERROR; OFFSET_OUT_OF_RANGE if they do not continue the log.
        """
        self._check_writable()
        batches = replicated_batches(
            records, self.log_start_offset, self.log_end_offset, self._where
        )
        base_offset = self.log_end_offset
        for batch in batches:
            header, data = batch
            self._append(
                _kept(data),
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                LeaderEpoch(header.leader_epoch),
            )
            self._take_note(batch, header.base_offset)
        return Appended(base_offset, self.log_end_offset - 1)

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

    async def truncate_to(self, offset: int) -> None:
        """Drop every batch whose last offset is at or beyond ``offset``; durable on return.

        The log then ends at ``offset``, or where the batch that contained it began.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; OFFSET_OUT_OF_RANGE below the start of the log.
        """
        while self.rewriting is not None and not self.rewriting.done():
            await asyncio.wait([self.rewriting])
        self._check_writable()
        if offset >= self.log_end_offset:
            return
        if offset < self.log_start_offset:
            raise KafkaError(
                errors_pb2.OFFSET_OUT_OF_RANGE,
                f"{self._where}: cannot truncate to {offset}, the log starts at "
                f"{self.log_start_offset}; start it afresh there instead",
            )
        keep = max(0, self._index.position_of(offset))
        from_offset = self._index.base_offset(keep)
        end_offset = max(self.log_start_offset, from_offset)
        if not keep:
            self.transactions.under_way_at(end_offset, ())
        elif not self.transactions.can_truncate_to(end_offset):
            self.transactions.under_way_at(end_offset, await ongoing_at(self, end_offset))
        forgotten = self._forget_from(keep)
        self._end_at(end_offset)
        truncation = Truncation(self.number, from_offset, self._lowest_id(forgotten))
        await self._writer.submit_truncation(truncation, forgotten)

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log starts and ends at ``offset``. Durable on return.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._check_writable()
        forgotten = self._forget_from(0)
        self.log_start_offset = offset
        self.log_end_offset = self.flushed_offset = self.cleaned_offset = offset
        self.truncations += 1
        self.checkpointed_high_watermark = offset
        self.leader_epochs.clear()
        self.producers.clear()
        self.transactions.clear()
        truncation = Truncation(self.number, 0, self._lowest_id(forgotten), log_start_offset=offset)
        await self._writer.submit_truncation(truncation, forgotten)

    async def start_at(self, offset: int) -> None:
        """Nothing below ``offset`` is read from now on, and batches that end below it are dropped.

        Durable on return. A log that begins there, or beyond, stays as it is.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; OFFSET_OUT_OF_RANGE beyond what is durable.
        """
        self._check_exists()
        self._writer.check_works()
        if offset <= self.log_start_offset:
            return
        if offset > self.flushed_offset:
            raise KafkaError(
                errors_pb2.OFFSET_OUT_OF_RANGE,
                f"{self._where}: the log cannot begin at {offset}, it is durable up to "
                f"{self.flushed_offset}",
            )
        index = self._index
        gone = len(index) if offset == self.log_end_offset else index.position_of(offset)
        forgotten = self._held(0, gone)
        for position in range(gone):
            self._writer.tail.drop(self.number, index.base_offset(position))
        index.drop_before(gone)
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.transactions.forget_aborted_before(offset)
        moved = Truncation(
            self.number,
            self.log_end_offset,
            NO_SEGMENT,
            log_start_offset=offset,
            producers=self.producers.pack_before(offset),
        )
        await self._writer.submit_truncation(moved, forgotten)

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

    def note_flushed(self, batch: PendingBatch, segment: Segment) -> None:
        """A batch has reached the disk."""
        self._index.place(batch.base_offset, segment)
        self.flushed_offset = batch.last_offset + 1
        segment.live_batches += 1
        segment.live_bytes += batch.size

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

    def begin_rewrite(self, old: Sequence[Placed], new: Sequence[Batch]) -> Relocation | None:
        """For the store: the work that puts ``new`` in the place of ``old``, as ``rewriting`` has
        it; None if ``old`` is not there. Whoever gets it submits it."""
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
        self.has_versions = self.has_versions or work is not None
        return work

    def note_rewritten(self, work: Relocation, segment: Segment) -> Forgotten:
        """A rewrite is in ``segment``; returns what it replaced, if it is ``work.is_done``."""
        replaced = replace(self._index, self._flushed_batches(), work, segment)
        work.is_done = bool(replaced)
        for placed in replaced:
            self._writer.tail.drop(self.number, placed.base_offset)
        return [(placed.segment, 1, placed.size) for placed in replaced]

    def note_deleted(self) -> Forgotten:
        """Nothing may be appended or read any more; its memory is given back."""
        self._deleted = True
        forgotten = self._forget_from(0)
        self._end_at(self.log_start_offset)
        self.transactions.clear()
        return forgotten

    def _append(
        self,
        records: Records,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        leader_epoch: LeaderEpoch,
    ) -> None:
        self.leader_epochs.assign(leader_epoch, max(base_offset, self.log_start_offset))
        epoch_start_offset = self.leader_epochs.latest_start_offset
        batch = PendingBatch(
            self.number, base_offset, last_offset, records, leader_epoch, epoch_start_offset
        )
        self._index.append(base_offset, batch.size, max_timestamp)
        self.log_end_offset = last_offset + 1
        self._writer.submit_batch(batch)

    def _append_at_end(self, batch: Batch, leader_epoch: LeaderEpoch) -> None:
        header, data = batch
        offset = self.log_end_offset
        self._append(
            put_in_place(data, offset, leader_epoch),
            offset,
            offset + header.last_offset_delta,
            header.max_timestamp,
            leader_epoch,
        )

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

    def _forget_from(self, keep: int) -> Forgotten:
        """Forget the batches from position ``keep`` on; returns which segments held them."""
        index, tail = self._index, self._writer.tail
        forgotten = self._held(keep, self._flushed_batches())
        for position in range(keep, len(index)):
            tail.drop(self.number, index.base_offset(position))
        index.truncate(keep)
        return forgotten

    def _flushed_batches(self) -> int:
        return self._index.first_at_or_after(self.flushed_offset)

    def _held(self, first: int, end: int) -> Forgotten:
        """Which segments hold the flushed batches at positions ``first`` to ``end``."""
        index = self._index
        return [
            (segment, beyond - begin, index.bytes_of(begin, beyond))
            for segment, begin, beyond in index.spans(first, end)
        ]

    def _lowest_id(self, forgotten: Forgotten) -> int:
        """The oldest segment that may hold what was forgotten, the unflushed included."""
        if self.has_versions:
            return ANY_SEGMENT
        return min(
            [segment.id for segment, _, _ in forgotten], default=self._writer.newest_segment.id
        )

    def _end_at(self, offset: int) -> None:
        self.truncations += 1
        self.log_end_offset = offset
        self.cleaned_offset = min(self.cleaned_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        self.checkpointed_high_watermark = min(self.checkpointed_high_watermark, offset)
        self.leader_epochs.truncate_from_end(offset)
        self.producers.truncate_from_end(offset)
        self.transactions.truncate_from_end(offset)

    def _check_writable(self) -> None:
        self._check_exists()
        self._writer.check_writable()

    def _check_exists(self) -> None:
        if self._deleted:
            raise KafkaError(
                errors_pb2.NOT_LEADER_OR_FOLLOWER,
                f"{self._where}: its log was deleted here; refresh metadata",
            )


def _kept(data: memoryview) -> Records:
    """Bytes that nobody will change: the buffer's own if it is immutable, else a copy."""
    if isinstance(data.obj, bytes):
        return data.obj if len(data.obj) == len(data) else data
    return bytes(data)
