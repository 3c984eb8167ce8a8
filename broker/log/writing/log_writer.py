"""Passes write operations from the logs to the disk, and their results back to the logs.

The event loop owns every log, and ``group_commit`` the disk. Write operations pass between them, in
order. The submitter of an operation may wait for it: it is durable then, or it has failed.
While the disk is full (``disk_space``), batches that were appended before wait in order and are
written once there is space, unless their log is deleted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.checkpoints.partition_row import NO_SEGMENT, PartitionRow, Truncation
from quorate.broker.log.options import LogOptions
from quorate.broker.log.segments.batch_index import Forgotten, MemoryTail
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.stored.relocation import Relocation
from quorate.broker.log.stored.stored_log import StoredLog
from quorate.broker.log.writing.disk_space import DiskReserve, DiskSpace
from quorate.broker.log.writing.group_commit import CommitCallbacks, GroupCommit
from quorate.broker.log.writing.journal import Journal
from quorate.broker.log.writing.live_segments import LiveSegments
from quorate.broker.log.writing.write_operations import (
    HostedThrough,
    PartitionCreation,
    PartitionDeletion,
    SegmentRoll,
    WriteOperation,
)
from quorate.broker.quota.room_turns import RoomTurns
from quorate.common.invariants import BrokenInvariant
from quorate.common.metrics.family import Timings
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

FEW_BATCHES: Final = 256
"""The number of batches that may wait to be flushed while large requests append more. So a small
batch is never behind the thousands of batches that one request may have. A commit of so many takes
a few milliseconds, most of which its fsync would take alone.
"""

OnFlushed = Callable[[Sequence[StoredLog]], None]
"""Called with logs whose ``flushed_offset`` has moved. It is never called from inside an append."""
OnFailed = Callable[[Exception], None]
"""Called once, when the disk has failed. Nothing can be appended any more."""


class LogManagerListener:
    """Hears what a log store reports. A subclass overrides what it cares for."""

    def on_flushed(self, logs: Sequence[StoredLog]) -> None:
        """Note that a group of appends is durable in these logs."""

    def on_log_failed(self, error: Exception) -> None:
        """Note that every disk has failed: nothing can be written any more."""

    def on_directory_failed(self, error: Exception) -> None:
        """Note that the disk of one log folder has failed, and others go on. The logs in it say so
        (``PartitionLog.is_offline``)."""

    def on_room(self, has_room: bool) -> None:
        """Note that the disk is full from now on, or no longer."""

    def on_damaged(self, damaged_log: StoredLog, damaged: DamagedBatch | BrokenInvariant) -> None:
        """Note that a batch was read and is not what was written, or that the log broke one of its
        invariants: nobody may rely on it.
        """


class LogManagerEvents(LogManagerListener):
    """Passes on what a log store reports to listeners that are made after the store.

    Nothing is lost in between: nobody appends before the listeners are there.
    """

    def __init__(self) -> None:
        self.has_failed = asyncio.Event()
        """Set once nothing can be written any more."""
        self._listeners: list[LogManagerListener] = []

    def subscribe(self, listener: LogManagerListener) -> None:
        """Tell ``listener`` too, after those that came before it."""
        self._listeners.append(listener)

    def on_flushed(self, logs: Sequence[StoredLog]) -> None:
        for listener in self._listeners:
            listener.on_flushed(logs)

    def on_log_failed(self, error: Exception) -> None:
        for listener in self._listeners:
            listener.on_log_failed(error)
        self.has_failed.set()

    def on_directory_failed(self, error: Exception) -> None:
        for listener in self._listeners:
            listener.on_directory_failed(error)

    def on_room(self, has_room: bool) -> None:
        for listener in self._listeners:
            listener.on_room(has_room)

    def on_damaged(self, damaged_log: StoredLog, damaged: DamagedBatch | BrokenInvariant) -> None:
        for listener in self._listeners:
            listener.on_damaged(damaged_log, damaged)


CommitKind = Callable[[Journal, int, DiskReserve, CommitCallbacks], GroupCommit]
"""Makes the commit that calls the journal. The number is ``LogOptions.group_bytes``."""


class LogWriter:
    """Takes the write operations of all logs of a store, and passes the results to the logs and the
    waiters.

    Every method runs on the event-loop thread.
    """

    def __init__(
        self,
        directory: Path,
        options: LogOptions,
        journal: Journal,
        commit: CommitKind,
        reserve: DiskReserve,
        tail: MemoryTail,
        segments: LiveSegments,
        space: DiskSpace,
        on_flushed: OnFlushed,
        on_failed: OnFailed,
    ) -> None:
        self.tail = tail
        self.segments = segments
        self.space = space
        self.pending_bytes = 0
        """The bytes of batches that wait to be flushed."""
        self.pending_batches = 0
        """The number of batches that wait to be flushed."""
        self.turns = RoomTurns(self._lets_large_requests_append)
        """The turns of requests with very many batches, which wait before they append some."""
        self.deleted_bytes = 0
        """The bytes of batches that logs have deleted at their start since the store was opened."""
        self.failure: Exception | None = None
        """The error with which the disk has failed, or None."""
        self.directory = directory
        self._max_pending_bytes = options.max_pending_bytes
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._logs: dict[int, StoredLog] = {}
        """The logs by local partition number."""
        self._waiting: dict[int, tuple[asyncio.Future[None], Forgotten]] = {}
        """The waiters for a work to be durable, by its identity, and what the work empties."""
        self._wait_for_room: deque[asyncio.Future[None]] = deque()
        """The waiters until fewer bytes are pending."""
        self._wait_for_commit: deque[asyncio.Future[None]] = deque()
        """The waiters for the next commit, whatever is in it."""
        self._commit = commit(
            journal,
            options.group_bytes,
            reserve,
            CommitCallbacks(self._done, self.fail, self._note_full, self._note_room),
        )

    @property
    def commit_times(self) -> Timings:
        """The time that each group of operations took on disk."""
        return self._commit.times

    def attach(self, stored_log: StoredLog) -> None:
        """Inform ``stored_log`` from now on which of its batches were flushed or rewritten."""
        self._logs[stored_log.number] = stored_log

    def check_writable(self) -> None:
        """Refuse operations that need space, once the disk is full or has failed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.failure is not None:
            self.check_works()
        if self.space.is_full:
            raise self.space.refusal()

    def check_works(self) -> None:
        """Refuse every operation, once the disk has failed.

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
        """Queue a batch for writing. It is readable at once."""
        self.tail.add(batch)
        self.pending_bytes += batch.size
        self.pending_batches += 1
        self._commit.submit(batch)

    def submit_creation(self, row: PartitionRow) -> None:
        """Queue a new partition for the table. It is added before any of its batches is written."""
        self._commit.submit(PartitionCreation(row))

    def submit_hosted_through(self, offset: int) -> None:
        """Queue the record that all partitions assigned up to ``offset`` have logs. It is written
        after the creations that were queued before."""
        self._commit.submit(HostedThrough(offset))

    async def delete(self, numbers: Iterable[int], forgotten: Forgotten) -> None:
        """Delete the logs with these numbers, durably and in one step."""
        gone = tuple(numbers)
        for number in gone:
            del self._logs[number]
        await self.submit(PartitionDeletion(gone), forgotten)

    async def truncate(self, truncation: Truncation, forgotten: Forgotten) -> None:
        """Wait until the truncation is durable. The segments that it empties are released only
        then."""
        if truncation.lowest_segment_id == NO_SEGMENT:
            self.deleted_bytes += sum(size for _, _, size in forgotten)
        await self.submit(truncation, forgotten)

    async def roll(self) -> None:
        """Seal the active segment, if it holds anything.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.check_writable()
        await self.submit(SegmentRoll())

    def submit(self, work: WriteOperation, forgotten: Forgotten = ()) -> "asyncio.Future[None]":
        """Queue ``work``. The returned future is done when the operation is durable.

        ``forgotten`` are the batches that the operation removes from logs. A segment that has no
        other live batches is deleted only when the operation is durable.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[id(work)] = done, forgotten
        self._commit.submit(work)
        return done

    async def wait_for_turn(self) -> None:
        """Wait until few batches wait to be flushed (``turns``)."""
        await self.turns.wait()

    async def settle(self) -> None:
        """Wait until everything that was submitted before is durable.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.check_writable()
        await self.submit(PartitionDeletion(()))

    @property
    def has_room(self) -> bool:
        """Whether ``wait_for_room`` would return at once."""
        return self.pending_bytes < self._max_pending_bytes and self.failure is None

    async def wait_for_room(self) -> None:
        """Wait until less than ``max_pending_bytes`` wait to be flushed, or the disk is full. On a
        full disk any append is refused.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        while self.pending_bytes >= self._max_pending_bytes and not self.space.is_full:
            self.check_works()
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._wait_for_room.append(room)
            await room
        self.check_works()

    async def wait_for_flush(self, stored_log: StoredLog, offset: int) -> None:
        """Wait until the log is durable up to ``offset``, or up to its end if it was truncated or
        deleted meanwhile, or the disk is full.

        Whoever appends much without anybody waiting for it waits by this for what it appended
        before. Otherwise everybody who appends behind it would wait for all of that.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        while (
            stored_log.flushed_offset < min(offset, stored_log.log_end_offset)
            and not self.space.is_full
        ):
            self.check_works()
            commit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._wait_for_commit.append(commit)
            await commit
        self.check_works()

    def fail(self, error: Exception) -> None:
        """Refuse everything from now on, because the disk has failed. Unflushed batches are never
        acknowledged."""
        if self.failure is not None:
            return
        self.failure = error
        log.error("log directory %s failed, no more batches are taken: %s", self.directory, error)
        self._refuse_waiting(f"log directory {self.directory} failed: {error}")
        self.turns.go_on()
        self._on_failed(error)

    async def close(self) -> None:
        """Write what was submitted, as far as there is space, and then fail the operations that
        still wait."""
        await self._commit.close()
        full = self.space.is_full
        self._refuse_waiting(self.space.message() if full else "the log store closes")

    def _done(self, group: Sequence[WriteOperation], segment: Segment) -> None:
        """Process a group that is on disk."""
        segments = self.segments
        if segment is not segments.newest:
            segments.roll(segment)
        flushed: dict[int, StoredLog] = {}
        for work in group:
            if isinstance(work, PendingBatch):
                self.pending_bytes -= work.size
                self.pending_batches -= 1
                work.flushed = True
                owner = self._logs.get(work.number)
                if owner is not None and not work.dropped and _flushed(owner, work, segment):
                    flushed[work.number] = owner
            elif not isinstance(work, PartitionCreation | HostedThrough):
                if isinstance(work, Relocation):
                    self._note_rewritten(work, segment)
                done, forgotten = self._waiting.pop(id(work))
                segments.release(forgotten)
                _resolve(done)
        self.tail.evict()
        if segments.kept:
            segments.release_durable()
        if self._wait_for_room or self.turns.waiting:
            self._let_more_in()
        _resolve_all(self._wait_for_commit)
        if flushed:
            self._on_flushed(list(flushed.values()))

    def _let_more_in(self) -> None:
        if self.pending_bytes < self._max_pending_bytes:
            _resolve_all(self._wait_for_room)
        self.turns.go_on()

    def _lets_large_requests_append(self) -> bool:
        """Return whether few batches wait, or appends are refused anyway."""
        few = self.pending_batches <= FEW_BATCHES
        return few or self.space.is_full or self.failure is not None

    def _note_rewritten(self, work: Relocation, segment: Segment) -> None:
        owner = self._logs.get(work.number)
        if owner is not None:
            self.segments.keep_until_durable(segment, owner.note_rewritten(work, segment))

    def _note_full(self, error: Exception) -> None:
        """Refuse operations that need space from now on, and resume the callers that waited to
        append."""
        _resolve_all(self._wait_for_room)
        _resolve_all(self._wait_for_commit)
        self.space.note_full(error)
        self.turns.go_on()

    def _note_room(self) -> None:
        self.segments.unlink_what_found_no_room()
        self.space.note_room()

    def _refuse_waiting(self, message: str) -> None:
        refusal = KafkaError(errors_pb2.KAFKA_STORAGE_ERROR, message)
        waiting = [done for done, _ in self._waiting.values()]
        for each in [*waiting, *self._wait_for_room, *self._wait_for_commit]:
            if not each.done():
                each.set_exception(refusal)
        self._waiting.clear()
        self._wait_for_room.clear()
        self._wait_for_commit.clear()


def _flushed(owner: StoredLog, batch: PendingBatch, segment: Segment) -> bool:
    """Tell a log that its batch is durable. Return False if that breaks an invariant: the other
    logs of the group go on.
    """
    try:
        owner.note_flushed(batch, segment)
    except BrokenInvariant as broken:
        owner.report_damage(broken)
        return False
    return True


def _resolve_all(waiters: "deque[asyncio.Future[None]]") -> None:
    while waiters:
        _resolve(waiters.popleft())


def _resolve(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
