"""All partition logs of a broker: one folder of segments, one writer, one memory tail.

The event loop owns every log; the writer owns the disk. Between them go works, in order, and what
became of them. See ``segment`` for the layout, ``group_commit`` for durability.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from broker.errors import KafkaError
from broker.log.batch_index import BatchIndex
from broker.log.checkpoints import LogCheckpoints
from broker.log.damage import DamagedBatch
from broker.log.fullness import Fullness, resolve
from broker.log.group_commit import Callbacks, GroupCommit, InlineCommit, ThreadedCommit
from broker.log.housekeeping import Housekeeping
from broker.log.journal import CreateSegment, Journal, create_segment
from broker.log.leader_epochs import LeaderEpochHistory
from broker.log.memory_tail import MemoryTail
from broker.log.options import LogOptions
from broker.log.partition_log import PartitionLog
from broker.log.producers import PartitionProducers
from broker.log.recovery import Recovered, current_boot_id, recover
from broker.log.relocator import Relocator
from broker.log.retention import SegmentTimes, segment_times
from broker.log.rewriting import Rewrite, Rewriting
from broker.log.room import Reserve
from broker.log.segment import Segment
from broker.log.segment_file import NotCached
from broker.log.stored_log import Forgotten, OnDamaged, StoredLog
from broker.log.table import Run
from broker.log.transactions import PartitionTransactions
from broker.log.unlinking import Unlinking
from broker.log.work import (
    NO_SEGMENT,
    Creation,
    Deletion,
    PartitionRow,
    PendingBatch,
    Relocation,
    Roll,
    Truncation,
    Work,
)
from metadata_log.types import TopicIdPartition, TopicPartition
from quorate_proto.v1 import errors_pb2
from quorum.metrics.family import Timings

log = logging.getLogger(__name__)

OnFlushed = Callable[[Sequence[PartitionLog]], None]
"""These logs' ``flushed_offset`` has moved; never called from inside an append."""
OnFailed = Callable[[Exception], None]
"""The disk has failed: nothing can be appended any more. Called once."""
_PRODUCERS_PER_BREATH = 10_000
"""Some milliseconds of looking for silent ones."""

CommitKind = Callable[[Journal, int, Reserve, Callbacks], GroupCommit]
"""Who calls the journal, and when; the number is ``LogOptions.group_bytes``."""


class LogStore:
    """The partition logs of one broker, in one folder. Use it from the event-loop thread only.

    ``log_may_be_lost``: acknowledged batches may be missing, because of a power loss under
    ``log.flush=os``, a missing file, or a folder that was empty (rule 8: say so when registering).
    It is still so after a restart, until ``loss_handled`` was called.

    While the disk is full (``fullness``), what was appended before stays in order and counts once
    there is room, unless its log goes.
    """

    def __init__(
        self,
        directory: Path,
        options: LogOptions,
        on_flushed: OnFlushed,
        on_failed: OnFailed,
        housekeeping: Housekeeping,
        recovered: Recovered,
        create_segment: CreateSegment,
        reserve: Reserve,
        commit: CommitKind,
    ) -> None:
        self.directory = directory
        self.log_may_be_lost = recovered.log_may_be_lost
        self.pending_bytes = 0
        self.deleted_bytes = 0
        """Of batches that logs have let go of at their start, since the store was opened."""
        self.tail = MemoryTail(options.tail_bytes)
        self.newest_segment = recovered.active
        self.failure: Exception | None = None
        self._options = options
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self.on_damaged: OnDamaged = _log_damaged
        """Told of every batch that is found damaged when it is read, each time."""
        self.housekeeping = housekeeping
        self._reserve = reserve
        self._table = recovered.table
        self.segments = recovered.segments
        self._next_number = recovered.next_number
        table = recovered.table
        self.fullness = Fullness(directory, reserve)
        self._unlinking = Unlinking(
            self.segments, lambda: self.newest_segment, table, housekeeping, reserve
        )
        self._checkpoints = LogCheckpoints(table, housekeeping.ahead, self._checkpoint_failed)
        self._waiting: dict[int, tuple[asyncio.Future[None], Forgotten]] = {}
        """Who waits for a work to be durable, by its identity."""
        self._by_number: dict[int, PartitionLog] = {}
        self._logs: dict[TopicIdPartition, PartitionLog] = {}
        for found in recovered.logs:
            high_watermark = self._checkpoints.high_watermarks.get(found.row.number)
            recovered_log = self._add(
                found.row,
                found.index,
                found.leader_epochs(),
                found.producers,
                found.transactions,
                found.end_offset,
                high_watermark,
            )
            recovered_log.has_versions = found.has_versions
            cleaned_offset = self._checkpoints.cleaned.get(found.row.number)
            recovered_log.cleaned_offset = min(cleaned_offset, found.end_offset)
        self._journal = Journal(
            options,
            recovered.table,
            housekeeping,
            create_segment,
            recovered.active,
            recovered.following,
        )
        self._commit = commit(
            self._journal,
            options.group_bytes,
            reserve,
            Callbacks(self._done, self._failed, self.fullness.begin, self._has_room),
        )
        self._rewriting = Rewriting(self._submit, self._release)
        self.relocator = Relocator(self, self._rewriting, housekeeping.reading)
        self._rewriting.keep_until_durable(
            recovered.active,
            [*recovered.superseded, *((segment, 0, 0) for segment in self.segments.values())],
        )

    @classmethod
    async def open(
        cls, directory: Path, options: LogOptions, on_flushed: OnFlushed, on_failed: OnFailed
    ) -> "LogStore":
        """Recover the logs in ``directory``, which is created if missing.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; damaged or of another format, the message says which.
            OSError: the folder cannot be used.
        """
        housekeeping = Housekeeping()
        reserve = Reserve(directory, options.reserve_bytes)
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
            on_flushed,
            on_failed,
            housekeeping,
            recovered,
            partial(create_segment, directory, options, recovered.table),
            reserve,
            ThreadedCommit if options.flush == "sync" else InlineCommit,
        )
        log.info(
            "log directory %s: %d logs in %d segments%s",
            directory,
            len(store.logs),
            len(recovered.segments),
            "; batches may be lost" if store.log_may_be_lost else "",
        )
        if store.is_full:
            log.error("%s", store.fullness.message())
        return store

    @property
    def commit_times(self) -> Timings:
        """How long each group of work took on disk."""
        return self._commit.times

    @property
    def is_full(self) -> bool:
        """Nothing is appended or created for want of room; reads and deletions go on."""
        return self.fullness.is_full

    @property
    def segment_count(self) -> int:
        """Segment files, the one being written included."""
        return len(self.segments)

    @property
    def logs(self) -> Mapping[TopicIdPartition, PartitionLog]:
        """Every log there is."""
        return self._logs

    def create(self, tip: TopicIdPartition, topic: str, *, assigned_at: int = 0) -> PartitionLog:
        """The log of ``tip``, created empty if there is none.

        ``assigned_at``: metadata offset of what told this broker to hold it; kept with a new one.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        existing = self._logs.get(tip)
        if existing is not None:
            return existing
        self.check_writable()
        row = PartitionRow(
            self._next_number, tip.topic_id, tip.partition, topic, assigned_at=assigned_at
        )
        self._next_number += 1
        self._commit.submit(Creation(row))
        where = str(TopicPartition(topic, tip.partition))
        return self._add(
            row,
            BatchIndex(),
            LeaderEpochHistory(),
            PartitionProducers(where),
            PartitionTransactions(where),
            0,
            0,
        )

    async def delete(self, *tips: TopicIdPartition) -> None:
        """Remove the logs of ``tips``, durably and together, as far as there are any (C5, C8).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        found = [self._logs[tip] for tip in dict.fromkeys(tips) if tip in self._logs]
        if not found:
            return
        self.check_works()
        forgotten: list[tuple[Segment, int, int]] = []
        for each in found:
            del self._logs[each.tip], self._by_number[each.number]
            self._checkpoints.forget(each.number)
            forgotten += each.note_deleted()
        await self._submit(Deletion(tuple(each.number for each in found)), forgotten)

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicIdPartition, int]) -> None:
        """Remember high watermarks for the next start; written soon, in the background."""
        known: dict[int, int] = {}
        for tip, offset in offsets.items():
            found = self._logs.get(tip)
            if found is not None:
                found.checkpointed_high_watermark = offset
                known[found.number] = offset
        if self.failure is None:
            self._checkpoints.high_watermarks.update(known)

    def note_cleaned(self, partition_log: PartitionLog, offset: int) -> None:
        """What lies below ``offset`` was compacted; remembered for the next start."""
        partition_log.cleaned_offset = min(offset, partition_log.log_end_offset)
        partition_log.transactions.forget_aborted_before(partition_log.cleaned_offset)
        if self.failure is None and partition_log.number in self._by_number:
            cleaned = {partition_log.number: partition_log.cleaned_offset}
            self._checkpoints.cleaned.update(cleaned)

    def segment_times(self) -> SegmentTimes:
        """When segments were last written, for ``PartitionLog.retained_from``."""
        return segment_times(self.segments)

    async def rewrite(self, rewrites: Sequence[Rewrite]) -> list[bool]:
        """Replace batches of logs by others that span the same offsets; as ``Rewrite`` says.

        False for each whose log no longer has what it replaces: look again. Durable on return.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
            ValueError: the new batches do not span what the old ones do.
        """
        self.check_writable()
        return await self._rewriting.rewrite(rewrites)

    async def roll(self) -> None:
        """Seal the segment that is written, if there is anything in it.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.check_writable()
        await self._submit(Roll())

    def loss_handled(self) -> None:
        """The controller has taken this broker out of every ISR: what it holds counts (rule 8)."""
        if not self.log_may_be_lost or self.failure is not None:
            return
        self.log_may_be_lost = False
        self.housekeeping.ahead.submit(self._table.record_loss, unhandled=False)

    async def wait_for_room(self) -> None:
        """Return once less than ``max_pending_bytes`` wait to be flushed, or the disk is full:
        then whatever is appended is refused.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        while self.pending_bytes >= self._options.max_pending_bytes and not self.is_full:
            self.check_works()
            await self.fullness.wait()
        self.check_works()

    async def expire_producers(self, now_ms: int) -> None:
        """Forget who was silent for long; ``now_ms`` as ``PartitionProducers.expire`` has it."""
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
        """Flush everything and close. After a failure, or without room, it only closes."""
        await self.relocator.close()
        await self._commit.close()
        self._refuse_waiting(self.fullness.message() if self.is_full else "the log store closes")
        await self._checkpoints.drain()
        await self.housekeeping.idle()
        await asyncio.to_thread(self._close_files)
        self.housekeeping.shutdown()

    def check_writable(self) -> None:
        """Refuse what needs room, once the disk is full or has failed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.check_works()
        self.fullness.check()

    def check_works(self) -> None:
        """Refuse what needs the disk at all, once it has failed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.failure is not None:
            raise KafkaError(
                errors_pb2.KAFKA_STORAGE_ERROR,
                f"log directory {self.directory} failed ({self.failure}) and takes no more "
                "batches; repair the disk, then restart this broker",
            )

    def submit_batch(self, batch: PendingBatch) -> None:
        """For ``PartitionLog``: have a batch written; readable at once."""
        self.tail.add(batch)
        self.pending_bytes += batch.size
        self._commit.submit(batch)

    async def load(self, cold: NotCached) -> None:
        """For ``PartitionLog``: return when the page cache holds what was not there."""
        await asyncio.get_running_loop().run_in_executor(self.housekeeping.reading, cold.load)

    async def submit_truncation(self, truncation: Truncation, forgotten: Forgotten) -> None:
        """For ``PartitionLog``: return when the truncation is durable."""
        if truncation.lowest_segment_id == NO_SEGMENT:
            self.deleted_bytes += sum(size for _, _, size in forgotten)
        await self._submit(truncation, forgotten)

    def _submit(self, work: Work, forgotten: Forgotten = ()) -> "asyncio.Future[None]":
        """Done when ``work`` is durable; a segment that it empties is unlinked only then."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[id(work)] = done, forgotten
        self._commit.submit(work)
        return done

    def _release(self, forgotten: Forgotten) -> None:
        for segment, count, size in forgotten:
            segment.live_batches -= count
            segment.live_bytes -= size
        self._unlinking.look_at(segment for segment, _, _ in forgotten)
        self.relocator.wake()

    def _add(
        self,
        row: PartitionRow,
        index: BatchIndex,
        leader_epochs: LeaderEpochHistory,
        producers: PartitionProducers,
        transactions: PartitionTransactions,
        log_end_offset: int,
        high_watermark: int,
    ) -> PartitionLog:
        added = PartitionLog(
            row,
            self,
            self._options.max_batch_bytes,
            index,
            leader_epochs,
            producers,
            transactions,
            log_end_offset,
            max(row.log_start_offset, min(high_watermark, log_end_offset)),
        )
        self._logs[added.tip] = self._by_number[row.number] = added
        return added

    def _done(self, group: Sequence[Work], segment: Segment) -> None:
        """A group is on disk."""
        if segment is not self.newest_segment:
            sealed, self.newest_segment = self.newest_segment, segment
            self.segments[segment.id] = segment
            self._unlinking.look_at([sealed])
            self.relocator.wake()
        flushed: dict[int, PartitionLog] = {}
        for work in group:
            if isinstance(work, PendingBatch):
                self.pending_bytes -= work.size
                work.flushed = True
                owner = self._by_number.get(work.number)
                if owner is not None and not work.dropped:
                    owner.note_flushed(work, segment)
                    flushed[work.number] = owner
            elif isinstance(work, Truncation | Deletion | Relocation | Roll):
                if isinstance(work, Relocation):
                    self._rewriting.done(work, segment, self._by_number.get(work.number))
                done, forgotten = self._waiting.pop(id(work))
                self._release(forgotten)
                resolve(done)
        self.tail.evict()
        self._rewriting.let_go()
        if self.pending_bytes < self._options.max_pending_bytes:
            self.fullness.let_go_on()
        if flushed:
            self._on_flushed(list(flushed.values()))

    def _failed(self, error: Exception) -> None:
        """The disk has failed: tell what waits for it; the unflushed is never acknowledged."""
        if self.failure is not None:
            return
        self.failure = error
        log.error("log directory %s failed, no more batches are taken: %s", self.directory, error)
        self._refuse_waiting(f"log directory {self.directory} failed: {error}")
        self._on_failed(error)

    def _refuse_waiting(self, message: str) -> None:
        refusal = KafkaError(errors_pb2.KAFKA_STORAGE_ERROR, message)
        for done, _ in self._waiting.values():
            if not done.done():
                done.set_exception(refusal)
        self._waiting.clear()
        self.fullness.refuse(refusal)

    def _checkpoint_failed(self, error: Exception) -> None:
        """Without room an older checkpoint does; the next one is written some seconds later."""
        if not self._reserve.explains(error):
            self._failed(error)

    def _has_room(self) -> None:
        self._unlinking.try_again()
        self.relocator.wake()
        self.fullness.end()

    def _close_files(self) -> None:
        """Nothing else uses them any more."""
        if self.failure is None:
            try:
                self._record_end()
            except Exception as error:
                if not self._reserve.explains(error):
                    raise
                message = self.fullness.message()
                log.warning("%s: closed as after a crash, nothing is lost", message)
        self._journal.close()
        for segment in {*self.segments.values(), self._journal.active}:
            segment.close()
        self._table.close()

    def _record_end(self) -> None:
        """This run leaves nothing that a power loss could take."""
        if self._options.flush == "os":
            self._journal.active.sync()
        self._checkpoints.write_now()
        self._table.record_run(Run(current_boot_id(), closed=True))


def _recover_with(reserve: Reserve, options: LogOptions) -> Recovered:
    """Open the folder; without room for the reserve too, the store begins full."""
    reserve.make_way()
    now_ms = time.time_ns() // 1_000_000
    recovered = recover(reserve.directory, options, current_boot_id(), now_ms)
    reserve.hold()
    return recovered


def _log_damaged(damaged_log: StoredLog, damaged: DamagedBatch) -> None:
    log.error("%r: %s", damaged_log, damaged.message)
