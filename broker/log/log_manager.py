"""All partition logs of a broker: one folder of segments, one writer, one memory tail.

``LogManager`` opens and closes the folder and knows which logs there are. What the logs have
written goes through ``writing.log_writer``; which segments live and which go is in
``writing.live_segments``. See ``segments.segment`` for the layout on disk, ``writing.group_commit``
for durability.
"""

import asyncio
import logging
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from quorate.broker.log.checkpoints.log_checkpoints import LogCheckpoints
from quorate.broker.log.checkpoints.partition_row import PartitionRow
from quorate.broker.log.checkpoints.table_rows import StoreRun
from quorate.broker.log.future_logs import FolderParts, FutureLogs
from quorate.broker.log.options import LogOptions
from quorate.broker.log.partition_log import PartitionLog
from quorate.broker.log.recovery.recovery import RecoveredLogDirectory, current_boot_id, recover
from quorate.broker.log.rewriting.relocator import Relocator
from quorate.broker.log.rewriting.rewriter import Rewrite, Rewriter
from quorate.broker.log.segments.batch_index import MemoryTail
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.stored.log_state import LogState, empty_log
from quorate.broker.log.stored.retention import SegmentTimes, segment_times
from quorate.broker.log.stored.stored_log import LogReads, OnDamaged, StoredLog
from quorate.broker.log.writing.disk_space import DiskReserve, DiskSpace, OnRoom
from quorate.broker.log.writing.group_commit import InlineCommit, SyncedCommit
from quorate.broker.log.writing.housekeeping import Housekeeping
from quorate.broker.log.writing.journal import CreateSegment, Journal, create_segment
from quorate.broker.log.writing.live_segments import LiveSegments
from quorate.broker.log.writing.log_writer import (
    CommitKind,
    LogManagerListener,
    LogWriter,
    OnFailed,
    OnFlushed,
)
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import TopicIdPartition

log = logging.getLogger(__name__)

_PRODUCERS_PER_BREATH = 10_000
"""The number of producers that are examined before other tasks get their turn: some milliseconds of
work."""


def _ignore_room(has_room: bool) -> None:
    """Do nothing. This is the callback of an owner that need not know whether the disk has room."""


def _log_damaged(damaged_log: StoredLog, damaged: DamagedBatch | BrokenInvariant) -> None:
    log.error("%r: %s", damaged_log, damaged)


class LogCallbacks(NamedTuple):
    """The functions by which the log manager informs its owner, on the event loop."""

    flushed: OnFlushed
    failed: OnFailed
    room: OnRoom = _ignore_room
    damaged: OnDamaged = _log_damaged
    """Called with every damaged batch each time it is read."""

    @classmethod
    def to(cls, listener: LogManagerListener) -> "LogCallbacks":
        """Return callbacks that all go to one listener."""
        return cls(
            listener.on_flushed, listener.on_log_failed, listener.on_room, listener.on_damaged
        )


class LogManager:
    """The partition logs of one broker, in one folder. It is used on the event-loop thread only.

    ``log_may_be_lost`` is True if acknowledged batches may be missing: because of a power loss
    under ``log.flush=os``, a missing file, or an empty folder. The broker must then say so when it
    registers (rule 8). The flag survives restarts until ``loss_handled`` is called. So does the
    list of lost partitions in ``history``.
    """

    def __init__(
        self,
        directory: Path,
        options: LogOptions,
        callbacks: LogCallbacks,
        housekeeping: Housekeeping,
        recovered: RecoveredLogDirectory,
        create_segment: CreateSegment,
        reserve: DiskReserve,
        commit: CommitKind,
    ) -> None:
        self.directory = directory
        self.log_may_be_lost = recovered.log_may_be_lost
        self.history = recovered.history
        """The folder's history of itself. ``hosted_through`` may not be on disk yet."""
        self.housekeeping = housekeeping
        self._options = options
        self._reserve = reserve
        self._table = recovered.table
        self._next_number = recovered.next_number
        self._logs: dict[TopicIdPartition, PartitionLog] = {}
        self._superseded: set[TopicIdPartition] = set()
        """The logs that another folder of the broker has, too, and that count there."""
        table, active = recovered.table, recovered.active
        self._journal = Journal(
            options, table, housekeeping, create_segment, active, recovered.following
        )
        self.segments = LiveSegments(
            recovered.segments, active, table, housekeeping, reserve, self._wake_relocator
        )
        self.reads = LogReads(
            MemoryTail(options.tail_bytes), housekeeping.reading, callbacks.damaged
        )
        self.writer = LogWriter(
            directory,
            options,
            self._journal,
            commit,
            reserve,
            self.reads.tail,
            self.segments,
            DiskSpace(directory, reserve, callbacks.room),
            callbacks.flushed,
            callbacks.failed,
        )
        self._checkpoints = LogCheckpoints(
            table, housekeeping.ahead, self._checkpoint_failed, self._journal.commits
        )
        self.futures = FutureLogs(
            self._logs,
            FolderParts(table, self.writer, housekeeping, reserve, self._create_with, self._delete),
        )
        for found in recovered.logs:
            number = found.row.number
            high_watermark = self._checkpoints.high_watermarks.get(number)
            self._add(found.row, found.state(high_watermark, self._checkpoints.cleaned.get(number)))
        self._rewriter = Rewriter(self.writer)
        with_futures: ChainMap[TopicIdPartition, PartitionLog]
        with_futures = ChainMap(self._logs, self.futures.copies)
        self.relocator = Relocator(
            with_futures,
            self.writer,
            self._rewriter,
            self.reads,
            housekeeping.reading,
        )
        self.segments.keep_until_durable(
            active,
            [*recovered.superseded, *((each, 0, 0) for each in self.segments.by_id.values())],
        )

    @classmethod
    async def open(
        cls, directory: Path, options: LogOptions, callbacks: LogCallbacks
    ) -> "LogManager":
        """Recover the logs in ``directory``, which is created if it is missing.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if the folder is damaged or of another format; the
                message says which.
            OSError: The folder cannot be used.
        """
        housekeeping = Housekeeping()
        reserve = DiskReserve(directory, options.reserve_bytes)
        try:
            recovered = await asyncio.get_running_loop().run_in_executor(
                housekeeping.ahead, _recover_with, reserve, options
            )
        except BaseException:
            housekeeping.shutdown()
            raise
        store = cls(
            directory,
            options,
            callbacks,
            housekeeping,
            recovered,
            partial(create_segment, directory, options, recovered.table),
            reserve,
            SyncedCommit if options.flush == "sync" else InlineCommit,
        )
        log.info(
            "log directory %s: %d logs in %d segments%s",
            directory,
            len(store.logs),
            len(recovered.segments),
            "; batches may be lost" if store.log_may_be_lost else "",
        )
        if store.is_full:
            log.error("%s", store.writer.space.message())
        return store

    @property
    def is_full(self) -> bool:
        """Whether appends and creations are refused because the disk is full. Reads and deletions
        continue."""
        return self.writer.space.is_full

    @property
    def failure(self) -> Exception | None:
        """The error with which the disk has failed, or None."""
        return self.writer.failure

    @property
    def logs(self) -> Mapping[TopicIdPartition, PartitionLog]:
        """All logs by topic id and partition."""
        return self._logs

    @property
    def mark(self) -> int:
        """The mark of the folder, as it is on disk. A copy of the folder from before has a lower
        one."""
        return self._checkpoints.high_watermarks.mark

    @property
    def next_mark(self) -> int:
        """A mark that is higher than any that the folder has, or is about to have."""
        return max(self.mark, self._checkpoints.high_watermarks.least_mark) + 1

    def create(self, tip: TopicIdPartition, topic: str, *, assigned_at: int = 0) -> PartitionLog:
        """Return the log of ``tip``. It is created empty if there is none.

        ``assigned_at`` is the metadata offset at which this broker was assigned the partition. It
        is stored with a new log.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        existing = self._logs.get(tip)
        if existing is not None:
            return existing
        row = PartitionRow(0, tip.topic_id, tip.partition, topic, assigned_at=assigned_at)
        return self._create_with(row)

    def _create_with(self, row: PartitionRow) -> PartitionLog:
        """Create an empty log with this row and the next number."""
        self.writer.check_writable()
        row = replace(row, number=self._next_number)
        self._next_number += 1
        self.writer.submit_creation(row)
        return self._add(row, empty_log(row))

    def forget(self, tips: Iterable[TopicIdPartition]) -> None:
        """Leave the logs of ``tips`` out from now on, though they stay on a disk that has failed.
        When the folder comes back, the quorum proves whether they were deleted."""
        for tip in tips:
            self._logs.pop(tip).note_deleted()

    async def delete(self, *tips: TopicIdPartition) -> None:
        """Delete the logs of ``tips`` that exist, durably and in one step (C5, C8).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        found = [self._logs[tip] for tip in dict.fromkeys(tips) if tip in self._logs]
        if not found:
            return
        self.writer.check_works()
        for each in found:
            del self._logs[each.tip]
        await self._delete(found)

    async def _delete(self, found: Sequence[PartitionLog]) -> None:
        forgotten: list[tuple[Segment, int, int]] = []
        for each in found:
            self._checkpoints.forget(each.number)
            forgotten += each.note_deleted()
        await self.writer.delete([each.number for each in found], forgotten)

    def checkpoint_high_watermarks(
        self, offsets: Mapping[TopicIdPartition, int], least_mark: int = 0
    ) -> None:
        """Store high watermarks for the next start. They are written soon, in the background, and
        raise the mark of the folder to ``least_mark`` at least."""
        checkpoint = self._checkpoints.high_watermarks
        checkpoint.least_mark = max(checkpoint.least_mark, least_mark)
        known: dict[int, int] = {}
        for tip, offset in offsets.items():
            found = self._logs.get(tip)
            if found is not None:
                found.note_checkpointed(offset)
                known[found.number] = offset
        if self.failure is None:
            self._checkpoints.high_watermarks.update(known)

    def note_cleaned(self, partition_log: PartitionLog, offset: int) -> None:
        """Record, also for the next start, that the log was compacted up to ``offset``."""
        partition_log.note_cleaned(offset)
        is_known = self._logs.get(partition_log.tip) is partition_log
        if self.failure is None and is_known:
            self._checkpoints.cleaned.update({partition_log.number: partition_log.cleaned_offset})

    def segment_times(self) -> SegmentTimes:
        """Return the times of the last writes to segments, as ``PartitionLog.retained_from`` needs
        them."""
        return segment_times(self.segments.by_id)

    async def rewrite(self, rewrites: Sequence[Rewrite]) -> list[bool]:
        """Replace batches of logs by others that span the same offsets, see ``Rewrite``.

        Return False for each rewrite whose log no longer has the batches to replace; the caller
        must look them up again. Completed rewrites are durable on return.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
            ValueError: The new batches do not span the same offsets as the old ones.
        """
        self.writer.check_writable()
        return await self._rewriter.rewrite(rewrites)

    async def declare_loss(self) -> None:
        """Record that acknowledged batches of any log may be missing (rule 8). It is durable on
        return, or the disk is full."""
        self.log_may_be_lost = True
        await self._ahead(partial(self._table.record_loss, unhandled=True))

    async def declare_lost(self, tips: Iterable[TopicIdPartition]) -> None:
        """Record that these partitions are lost, and no others. It is durable on return, or the
        disk is full: the next start finds the same then."""
        self.history = self.history.with_lost(tips)
        lost = self.history.lost
        await self._ahead(partial(self._table.change_history, lambda known: known.with_lost(lost)))

    def loss_handled(self) -> None:
        """Record that a possible loss was handled: what may be lost was removed from its ISRs (rule
        8).

        Nothing is recorded once the disk has failed.
        """
        if self.failure is not None:
            return
        ahead = self.housekeeping.ahead
        if self.history.lost:
            self.history = self.history.with_lost(())
            ahead.submit(self._table.change_history, lambda known: known.with_lost(()))
        if self.log_may_be_lost:
            self.log_may_be_lost = False
            ahead.submit(self._table.record_loss, unhandled=False)

    def supersede(self, tip: TopicIdPartition) -> None:
        """Serve the log of ``tip`` no more, because another folder has a newer one. It is kept for
        the operator, as a stray (rule 7)."""
        del self._logs[tip]
        self._superseded.add(tip)

    def note_strays(self, tips: Iterable[TopicIdPartition]) -> None:
        """Record the partitions that the quorum does not know, for the tools (rule 7). They are
        written soon, in the background, and found again by the next start."""
        strays_here = [*tips, *self._superseded]
        before, self.history = self.history, self.history.with_strays(strays_here)
        if self.history.strays == before.strays or self.failure is not None:
            return
        strays = self.history.strays
        self.housekeeping.ahead.submit(
            self._table.change_history, lambda known: known.with_strays(strays)
        )

    def note_hosted_through(self, offset: int) -> None:
        """Record that every partition assigned up to this metadata offset has a log here. It is
        written soon, after the creations of these logs."""
        if offset > self.history.hosted_through and self.failure is None:
            self.history = self.history.with_hosted_through(offset)
            self.writer.submit_hosted_through(offset)

    async def _ahead(self, write: Callable[[], object]) -> None:
        """Write to the table in the background. A full disk refuses it, and that is all."""
        try:
            await self._in_background(write)
        except Exception as error:
            if not self._reserve.explains(error):
                raise
            log.warning("log directory %s: %s", self.directory, self.writer.space.message())

    async def _in_background(self, write: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self.housekeeping.ahead, write)

    async def expire_producers(self, now_ms: int) -> None:
        """Forget the producers that have been idle for long. ``now_ms`` is as for
        ``ProducerStateManager.expire``."""
        looked_at = 0
        for each in tuple(self._logs.values()):
            looked_at += 1 + len(each.producers)
            each.producers.expire(
                now_ms, self._options.producer_expiration_ms, each.transactions.ongoing
            )
            if looked_at >= _PRODUCERS_PER_BREATH:
                looked_at = 0
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Flush everything and close. After a failure, or on a full disk, only close."""
        await self.relocator.close()
        await self.writer.close()
        await self._checkpoints.drain()
        await self.housekeeping.idle()
        await asyncio.to_thread(self._close_files)
        self.housekeeping.shutdown()

    def _add(self, row: PartitionRow, state: LogState) -> PartitionLog:
        added = PartitionLog(row, state, self.reads, self.writer, self._options.max_batch_bytes)
        (self.futures.copies if row.is_future else self._logs)[added.tip] = added
        self.writer.attach(added)
        return added

    def _wake_relocator(self) -> None:
        self.relocator.wake()

    def _checkpoint_failed(self, error: Exception) -> None:
        """Handle a checkpoint that could not be written. On a full disk the older checkpoint
        serves, and the next one follows some seconds later."""
        if not self._reserve.explains(error):
            self.writer.fail(error)

    def _close_files(self) -> None:
        """Close the files that nobody uses any more."""
        if self.failure is None:
            try:
                self._record_end()
            except Exception as error:
                if not self._reserve.explains(error):
                    raise
                message = self.writer.space.message()
                log.warning("%s: closed as after a crash, nothing is lost", message)
        self._journal.close()
        for segment in {*self.segments.by_id.values(), self._journal.active}:
            segment.close()
        self._table.close()

    def _record_end(self) -> None:
        """Record that a power loss can no longer lose anything of this run."""
        if self._options.flush == "os":
            self._journal.active.sync()
        self._checkpoints.write_now()
        self._table.record_run(StoreRun(current_boot_id(), closed=True))


def _recover_with(reserve: DiskReserve, options: LogOptions) -> RecoveredLogDirectory:
    """Open the folder. If there is no room for the reserve either, the store starts in the full
    state."""
    reserve.make_way()
    now_ms = time.time_ns() // 1_000_000
    recovered = recover(reserve.directory, options, current_boot_id(), now_ms)
    reserve.hold()
    return recovered
