"""The log of one partition: the one way in for every batch, and all that takes batches away.

``stored_log.StoredLog`` is the way out for all readers. An append is visible to ``read`` at once,
from the memory tail, so that followers fetch what is not flushed yet; it counts for this replica
only when ``flushed_offset`` has passed it. State changes in memory first and on disk in the same
order after it, so a reader never sees a truncated batch.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from broker.errors import KafkaError
from broker.log.admission import MARKERS, Origin, produced_batches, replicated_batches
from broker.log.batch_index import Placed
from broker.log.control_batches import decode_marker
from broker.log.keyed_records import check_keys
from broker.log.options import Appended, Records
from broker.log.producers import Original
from broker.log.record_batch import CONTROL, TRANSACTIONAL, Batch, put_in_place
from broker.log.replaying import ongoing_at
from broker.log.rewriting import relocation, replace
from broker.log.segment import Segment
from broker.log.stored_log import Forgotten, StoredLog
from broker.log.storing import timed
from broker.log.transactions import take_note
from broker.log.work import (
    ANY_SEGMENT,
    NO_SEGMENT,
    PendingBatch,
    Relocation,
    Truncation,
)
from metadata_log.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2

_OF_TRANSACTIONS: Final = TRANSACTIONAL | CONTROL


class PartitionLog(StoredLog):
    """A log that changes. ``max_batch_bytes`` may be set to the topic's own limit, ``needs_keys``
    for a compacted topic, and ``storing`` for one that stores other than it is sent."""

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
        markers = [decode_marker(*batch) for batch in batches]
        for marker in markers:
            if marker is not None:
                self.producers.check_marker(marker)
        base_offset = self.log_end_offset
        for batch, marker in zip(batches, markers, strict=True):
            at = self.log_end_offset
            self._append_at_end(batch, leader_epoch)
            take_note(self.producers, self.transactions, batch.header, at, marker)
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

    def note_flushed(self, batch: PendingBatch, segment: Segment) -> None:
        """A batch has reached the disk."""
        self._index.place(batch.base_offset, segment)
        self.flushed_offset = batch.last_offset + 1
        segment.live_batches += 1
        segment.live_bytes += batch.size

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

    def _forget_from(self, keep: int) -> Forgotten:
        """Forget the batches from position ``keep`` on; returns which segments held them."""
        index, tail = self._index, self._writer.tail
        forgotten = self._held(keep, self._flushed_batches())
        for position in range(keep, len(index)):
            tail.drop(self.number, index.base_offset(position))
        index.truncate(keep)
        return forgotten

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
