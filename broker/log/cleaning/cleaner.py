"""Cleans one log at a time: sends its batches to the cleaner process and writes the changed batches
back into the log.

Only batches in sealed segments are cleaned. Changes are made in the order of the log, and the first
change that cannot be made ends the cleaning. A tombstone is therefore never removed before the
records that it deletes, whatever happens in between.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Final, Protocol, TypeVar, TypeVarTuple

import msgspec

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.record_batch import Batch, read_header
from quorate.broker.log.cleaning.cleaner_messages import (
    BatchesReplaced,
    BeginCleaning,
    CleanBatches,
    CleanerReply,
    CleanerRequest,
    FinishCleaning,
    KeysMapped,
    LogUndecodable,
    MapKeys,
)
from quorate.broker.log.compaction.log_cleaning import CleaningTask
from quorate.broker.log.compaction.replacements import Replacement
from quorate.broker.log.options import Records
from quorate.broker.log.partition_log import PartitionLog
from quorate.broker.log.rewriting.rewriter import Rewrite
from quorate.broker.log.segments.batch_index import PlacedBatch

A = TypeVarTuple("A")
R = TypeVar("R")

_READ_BYTES: Final = 1 << 20
"""The number of bytes of batches that are sent to the process at once."""
_ATTEMPTS: Final = 5
"""The number of attempts to read batches, which may be moved to another segment between the lookup
and the read."""


class UncleanableLog(Exception):
    """A log that cannot be cleaned. The message says why."""


class CleaningInterrupted(Exception):
    """Raised when the log has been truncated, deleted or changed since its cleaning began."""


class CleanerWorker(Protocol):
    """The broker's connection to a cleaner: ``cleaner_process.CleanerProcess``, or a replacement in
    tests."""

    def ask(self, request: CleanerRequest) -> CleanerReply: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class RewritingStore(Protocol):
    """The part of the log store that a cleaning uses."""

    async def rewrite(self, rewrites: Sequence[Rewrite]) -> list[bool]: ...


Pause = Callable[[int], Awaitable[None]]
"""Called with the number of bytes that were read or written. It returns when more may be read or
written."""


class CleaningProgress(msgspec.Struct):
    """The work that a cleaning has done so far. ``cleaned_to`` is the first offset that is not
    clean."""

    cleaned_to: int
    read_bytes: int = 0
    replaced_bytes: int = 0
    written_bytes: int = 0


class LogCleaner:
    """The log cleaner. It owns the cleaner process and the thread that talks to it."""

    def __init__(self, store: RewritingStore, start_worker: Callable[[], CleanerWorker]) -> None:
        self._store = store
        self._start_worker = start_worker
        self._worker: CleanerWorker | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-cleaner")

    async def clean(
        self, partition_log: PartitionLog, end: int, task: CleaningTask, pause: Pause
    ) -> CleaningProgress:
        """Clean the log up to ``end``, or as far as there is memory for its keys.

        Raises:
            UncleanableLog: The log holds records that cannot be decoded.
            CleaningInterrupted: The log was truncated, deleted or changed meanwhile. The changes
                made so far are valid.
            OSError: The process does not answer.
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        truncations = partition_log.truncations
        result = CleaningProgress(task.dirty_from)
        await self._ask(BeginCleaning(task))
        mapped_to = await self._map(partition_log, task.dirty_from, end, result, pause)
        at = partition_log.log_start_offset
        while at < mapped_to:
            batches, beyond = await self._read(partition_log, at, mapped_to, result, pause)
            changed = await self._ask(CleanBatches(batches))
            await self._replace(partition_log, truncations, changed, result, pause)
            at = beyond
        changed = await self._ask(FinishCleaning())
        await self._replace(partition_log, truncations, changed, result, pause)
        result.cleaned_to = mapped_to
        return result

    async def rest(self) -> None:
        """End the process to free its memory, because nothing is to be cleaned for a while."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            await self._in_thread(worker.close)

    async def close(self) -> None:
        """End the process, and fail the request that still waits for its answer."""
        await self.rest()
        self._thread.shutdown()

    async def _map(
        self, partition_log: PartitionLog, at: int, end: int, result: CleaningProgress, pause: Pause
    ) -> int:
        while at < end:
            batches, _ = await self._read(partition_log, at, end, result, pause)
            reply = await self._ask(MapKeys(batches))
            assert isinstance(reply, KeysMapped)
            at = reply.mapped_to
            if not reply.has_room:
                break
        return at

    async def _read(
        self, partition_log: PartitionLog, at: int, end: int, result: CleaningProgress, pause: Pause
    ) -> tuple[bytes, int]:
        """Return batches from offset ``at`` on, about ``_READ_BYTES``, and the offset where they
        end."""
        for attempt in range(_ATTEMPTS):
            placed, beyond = partition_log.placed_from(at, end, _READ_BYTES)
            if not placed:
                raise CleaningInterrupted(f"nothing begins at offset {at} any more")
            try:
                batches = await self._in_thread(_read_placed, partition_log.number, placed)
            except KafkaError:
                moved = any(one.segment.is_unlinked for one in placed)
                if not moved or attempt + 1 == _ATTEMPTS:
                    raise
                continue
            result.read_bytes += len(batches)
            await pause(len(batches))
            return batches, beyond
        raise AssertionError("every attempt returns or raises")

    async def _replace(
        self,
        partition_log: PartitionLog,
        truncations: int,
        changed: CleanerReply,
        result: CleaningProgress,
        pause: Pause,
    ) -> None:
        assert isinstance(changed, BatchesReplaced)
        waiting = changed.replacements
        for _ in range(_ATTEMPTS):
            if partition_log.truncations != truncations:
                raise CleaningInterrupted("it was cut")
            rewrites = [_rewrite(partition_log, each) for each in waiting]
            done = (await self._store.rewrite(rewrites)).count(True) if rewrites else 0
            written = sum(len(data) for each in waiting[:done] for data in each.new)
            result.written_bytes += written
            result.replaced_bytes += sum(size for each in waiting[:done] for _, size in each.old)
            waiting = waiting[done:]
            if written:
                await pause(written)
            if not waiting:
                return
        raise CleaningInterrupted(f"its batches from offset {waiting[0].old[0][0]} on keep moving")

    async def _ask(self, request: CleanerRequest) -> CleanerReply:
        reply = await self._in_thread(self._ask_worker, request)
        if isinstance(reply, LogUndecodable):
            raise UncleanableLog(reply.problem)
        return reply

    def _ask_worker(self, request: CleanerRequest) -> CleanerReply:
        worker = self._worker = self._worker or self._start_worker()
        try:
            return worker.ask(request)
        except OSError:
            self._worker = None
            worker.close()
            raise

    async def _in_thread(self, call: Callable[[*A], R], *arguments: *A) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)


def _rewrite(partition_log: PartitionLog, replacement: Replacement) -> Rewrite:
    """Return the rewrite to ask of the store, with the current places of the batches.

    Raises:
        CleaningInterrupted: The batches are no longer in the log, or were changed.
    """
    old = replacement.old
    placed = partition_log.placed(old[0][0], old[-1][0] + 1)
    if [(one.base_offset, one.size) for one in placed] != old:
        raise CleaningInterrupted(f"its batches from offset {old[0][0]} on are not what they were")
    new = [Batch(read_header(data), memoryview(data)) for data in replacement.new]
    return Rewrite(partition_log, placed, new)


def _read_placed(number: int, placed: Sequence[PlacedBatch]) -> bytes:
    """Read the batches in a thread. They may lie in several segments."""
    chunks: list[Records] = []
    for segment, together in groupby(placed, key=lambda one: one.segment):
        chunks += segment.read(number, [(one.base_offset, one.size) for one in together])
    return b"".join(chunks)
