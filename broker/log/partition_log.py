"""The log of one partition: appends, truncation, and moves of the log start.

``stored_log.StoredLog`` has the methods that read. An append is visible to ``read`` at once, from
the memory tail, so that followers fetch what is not flushed yet. It counts for this replica only
when ``flushed_offset`` has passed it. Changes are made in memory first and then on disk in the same
order, so a reader never sees a truncated batch.
"""

import asyncio
from pathlib import Path
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.admission import (
    MARKERS,
    AppendOrigin,
    produced_batches,
    replicated_batches,
)
from quorate.broker.log.batches.control_batches import decode_marker
from quorate.broker.log.batches.record_batch import (
    CONTROL,
    TRANSACTIONAL,
    Batch,
    BatchHeader,
    iterate_batches,
    put_in_place,
)
from quorate.broker.log.batches.topic_timestamps import AS_SENT
from quorate.broker.log.checkpoints.partition_row import (
    ANY_SEGMENT,
    NO_SEGMENT,
    PartitionRow,
    Truncation,
)
from quorate.broker.log.options import LogAppendInfo, Records
from quorate.broker.log.segments.batch_index import Forgotten
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.state.producer_state_manager import DuplicateBatch
from quorate.broker.log.state.transactions import record_batch_state
from quorate.broker.log.stored.log_state import LogState
from quorate.broker.log.stored.ongoing_transactions import ongoing_at
from quorate.broker.log.stored.stored_log import LogReads, StoredLog
from quorate.broker.log.writing.log_writer import LogWriter
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2

_OF_TRANSACTIONS: Final = TRANSACTIONAL | CONTROL


class PartitionLog(StoredLog):
    """A partition log that can be changed."""

    def __init__(
        self,
        row: PartitionRow,
        state: LogState,
        reads: LogReads,
        writer: LogWriter,
        max_batch_bytes: int,
    ) -> None:
        super().__init__(row, state, reads)
        self.max_batch_bytes = max_batch_bytes
        """The largest batch that the log takes; a topic may have a limit of its own."""
        self.needs_keys = False
        """Whether every record must have a key, as in a compacted topic."""
        self.storing = AS_SENT
        """The configuration that determines how produced batches are stored."""
        self._writer = writer

    @property
    def row(self) -> PartitionRow:
        """The row of the log in the table of its folder, as one that counts has it."""
        tip = self.tip
        return PartitionRow(
            self.number,
            tip.topic_id,
            tip.partition,
            self.topic,
            self.log_start_offset,
            self.assigned_at,
            self.placement,
        )

    @property
    def directory(self) -> Path:
        """The folder that holds the log."""
        return self._writer.directory

    @property
    def is_offline(self) -> bool:
        """Whether the disk of its folder has failed: the log takes nothing more."""
        return self._writer.failure is not None

    @property
    def is_full(self) -> bool:
        """Whether the disk of its folder is full: appends are refused, and reads go on."""
        return self._writer.space.is_full

    def append_as_leader(
        self,
        records: Records | list[Batch],
        leader_epoch: LeaderEpoch,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        """Assign the batches offsets from the log end on and the leader epoch, and append all or
        none.

        Those of clients are a list that a ``LogValidator`` has returned. Of bytes, as coordinators
        write them, the headers and the checksums are checked here.

        Batches that an idempotent producer has sent before are not appended again. The result has
        the offset of the first batch, whether it is new or not, and the offset up to which the log
        must be replicated to have them all. If the memory of ``records`` is writable, the log takes
        it over, see ``put_in_place``.

        Raises:
            KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE,
                UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_COMPRESSION_TYPE, KAFKA_STORAGE_ERROR,
                TRANSACTIONAL_ID_AUTHORIZATION_FAILED; OUT_OF_ORDER_SEQUENCE_NUMBER,
                INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED from ``producers``;
                INVALID_TXN_STATE from ``transactions``.
        """
        self._check_writable()
        if isinstance(records, list):
            batches = records
        else:
            batches = produced_batches(records, self.max_batch_bytes, self._where, origin)
        if origin is MARKERS:
            return self._append_markers(batches, leader_epoch)
        if len(batches) > 1 or batches[0].header.producer_id >= 0:
            appended = self._append_once(batches, leader_epoch)
        else:
            base_offset = self.log_end_offset
            self._append_at_end(batches[0], leader_epoch)
            appended = LogAppendInfo(base_offset, self.log_end_offset - 1)
        return self._with_time(appended, origin)

    def find_originals(self, records: Records, origin: AppendOrigin) -> LogAppendInfo | None:
        """Return where the log has the batches, or None if it certainly has none of them.

        What refuses new batches, such as a limit of the topic, does not concern those that are in
        the log. Markers have no originals: one may end what has begun since one like it.

        Raises:
            KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT; INVALID_PRODUCER_EPOCH or
                OUT_OF_ORDER_SEQUENCE_NUMBER from ``producers``; NOT_ENOUGH_REPLICAS_AFTER_APPEND
                if the log has some of them.
        """
        if origin is MARKERS:
            return None
        originals = self.producers.find_originals(iterate_batches(records, self._where))
        return None if originals is None else self._with_time(LogAppendInfo(*originals), origin)

    def _with_time(self, appended: LogAppendInfo, origin: AppendOrigin) -> LogAppendInfo:
        if self.storing.log_append_time and origin.is_client:
            return appended._replace(log_append_time_ms=self._time_of(appended.base_offset))
        return appended

    def _append_once(self, batches: list[Batch], leader_epoch: LeaderEpoch) -> LogAppendInfo:
        """Append the batches that are not duplicates."""
        originals = self.producers.find_duplicates(batches)
        if self.transactions.ongoing or len(batches) > 1:
            pairs = zip(batches, originals, strict=True)
            self.transactions.check([batch for batch, original in pairs if original is None])
        first: DuplicateBatch | None = None
        last_offset = -1
        for batch, original in zip(batches, originals, strict=True):
            if original is None:
                self._check_producer(batch.header)
                base_offset = self.log_end_offset
                self._append_at_end(batch, leader_epoch)
                if batch.header.attributes & _OF_TRANSACTIONS:
                    self._record_batch(batch, base_offset)
                else:
                    self.producers.record(batch.header, base_offset)
                original = DuplicateBatch(base_offset, self.log_end_offset - 1)
            first = first or original
            last_offset = max(last_offset, original.last_offset)
        assert first is not None
        return LogAppendInfo(first.base_offset, last_offset)

    def _check_producer(self, header: BatchHeader) -> None:
        """Raise ``BrokenInvariant`` if a batch that was taken for new would repeat a sequence."""
        known = self.producers.get(header.producer_id)
        if known is not None and not known.may_take(header):
            raise BrokenInvariant(
                self._where,
                "a producer's epoch never falls, and no sequence is appended twice (KIP-98)",
                producer_id=header.producer_id,
                epoch=header.producer_epoch,
                sequence=header.base_sequence,
                known_epoch=known.epoch,
                known_sequence=known.last_sequence,
            )

    def _append_markers(self, batches: list[Batch], leader_epoch: LeaderEpoch) -> LogAppendInfo:
        markers = [decode_marker(*batch) for batch in batches]
        for marker in markers:
            if marker is not None:
                self.producers.check_marker(marker)
        base_offset = self.log_end_offset
        for batch, marker in zip(batches, markers, strict=True):
            at = self.log_end_offset
            self._append_at_end(batch, leader_epoch)
            record_batch_state(self.producers, self.transactions, batch.header, at, marker)
        return LogAppendInfo(base_offset, self.log_end_offset - 1)

    def _record_batch(self, batch: Batch, base_offset: int) -> None:
        """Update the producer state and the transactions for a batch that is now in the log."""
        header = batch.header
        if not header.attributes & _OF_TRANSACTIONS:
            self.producers.record(header, base_offset)
            return
        marker = decode_marker(*batch) if header.is_control else None
        record_batch_state(self.producers, self.transactions, header, base_offset, marker)

    def append_as_follower(self, records: Records) -> LogAppendInfo:
        """Append a leader's batches unchanged. The first must begin at the log end.

        If this log is empty and the leader's log begins inside the first batch, that batch may
        begin earlier.

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
            self._record_batch(batch, header.base_offset)
        return LogAppendInfo(base_offset, self.log_end_offset - 1)

    async def truncate_to(self, offset: int) -> None:
        """Remove every batch whose last offset is at or beyond ``offset``. This is durable on
        return.

        The log then ends at ``offset``, or at the start of the batch that contained it.

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
        await self._writer.truncate(truncation, forgotten)

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all batches. The log then starts and ends at ``offset``. This is durable on
        return.

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
        await self._writer.truncate(truncation, forgotten)

    async def start_at(self, offset: int) -> None:
        """Move the log start to ``offset`` and remove the batches that end below it. This is
        durable on return.

        A log that starts at ``offset`` or later stays as it is.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; OFFSET_OUT_OF_RANGE if ``offset`` lies beyond what is
                durable.
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
        deleted = len(index) if offset == self.log_end_offset else index.position_of(offset)
        forgotten = self._held(0, deleted)
        for position in range(deleted):
            self._reads.tail.drop(self.number, index.base_offset(position))
        index.drop_before(deleted)
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
        await self._writer.truncate(moved, forgotten)

    def note_deleted(self) -> Forgotten:
        """Refuse appends and reads from now on, free the memory, and return the segments that hold
        the batches."""
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
        if base_offset != self.log_end_offset and (len(self._index) or last_offset < base_offset):
            raise BrokenInvariant(
                self._where,
                "a batch begins at the log end (C12)",
                base_offset=base_offset,
                last_offset=last_offset,
                log_end=self.log_end_offset,
            )
        epochs, size = self.leader_epochs, len(records)
        if leader_epoch != epochs.latest_epoch:
            epochs.assign(leader_epoch, max(base_offset, self.log_start_offset))
        batch = PendingBatch(
            self.number,
            base_offset,
            last_offset,
            records,
            leader_epoch,
            epochs.latest_start_offset,
            size,
        )
        self._index.append(base_offset, size, max_timestamp)
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
        """Remove the batches from position ``keep`` on from memory. Return the segments that hold
        them."""
        index, tail = self._index, self._reads.tail
        forgotten = self._held(keep, self._flushed_batches())
        for position in range(keep, len(index)):
            tail.drop(self.number, index.base_offset(position))
        index.truncate(keep)
        return forgotten

    def _lowest_id(self, forgotten: Forgotten) -> int:
        """Return the oldest segment that may hold the removed batches, including the unflushed
        ones."""
        if self._has_versions:
            return ANY_SEGMENT
        return min(
            [segment.id for segment, _, _ in forgotten], default=self._writer.segments.newest.id
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
    """Return bytes that nobody will change: the buffer's own if it is immutable, else a copy."""
    if isinstance(data.obj, bytes):
        return data.obj if len(data.obj) == len(data) else data
    return bytes(data)
