"""Cleaning one log at a time: its batches to the cleaner's process, what changes back into the log.

Only what lies in sealed segments is cleaned. Changes are made in the order of the log, and the
first one that cannot be made ends the cleaning: so a tombstone never goes before the records that
it deletes, whatever happens in between.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Final, Protocol, TypeVar, TypeVarTuple

import msgspec

from broker.errors import KafkaError
from broker.log.batch_index import Placed
from broker.log.cleaner_messages import (
    Begin,
    Changed,
    Clean,
    Finish,
    Map,
    Mapped,
    Reply,
    Request,
    Undecodable,
)
from broker.log.compaction.log_cleaning import CleaningTask
from broker.log.compaction.replacements import Replacement
from broker.log.options import Records
from broker.log.partition_log import PartitionLog
from broker.log.record_batch import Batch, read_header
from broker.log.rewriting import Rewrite

A = TypeVarTuple("A")
R = TypeVar("R")

_READ_BYTES: Final = 1 << 20
"""What goes to the process at once."""
_ATTEMPTS: Final = 5
"""Batches may be moved to another segment between a look and what follows from it."""


class Uncleanable(Exception):
    """A log that no cleaning gets through; the message says why."""


class Interrupted(Exception):
    """The log is not any more what it was when its cleaning began."""


class Worker(Protocol):
    """``cleaner_process.CleanerProcess``, or what stands in for it."""

    def ask(self, request: Request) -> Reply: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class RewritingStore(Protocol):
    """What is asked of the log store."""

    async def rewrite(self, rewrites: Sequence[Rewrite]) -> list[bool]: ...


Pause = Callable[[int], Awaitable[None]]
"""Called with bytes that were read or written; returns when more may be."""


class Cleaned(msgspec.Struct):
    """What a cleaning did so far. ``cleaned_to``: the first offset that is not clean."""

    cleaned_to: int
    read_bytes: int = 0
    replaced_bytes: int = 0
    written_bytes: int = 0


class LogCleaner:
    """Owns the process and the thread that talks to it."""

    def __init__(self, store: RewritingStore, start_worker: Callable[[], Worker]) -> None:
        self._store = store
        self._start_worker = start_worker
        self._worker: Worker | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log-cleaner")

    async def clean(
        self, partition_log: PartitionLog, end: int, task: CleaningTask, pause: Pause
    ) -> Cleaned:
        """Clean the log up to ``end``, or as far as there is memory for its keys.

        Raises:
            Uncleanable: it holds what cannot be decoded.
            Interrupted: it was cut, deleted or changed meanwhile; what was done is right.
            OSError: the process does not answer.
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        truncations = partition_log.truncations
        result = Cleaned(task.dirty_from)
        await self._ask(Begin(task))
        mapped_to = await self._map(partition_log, task.dirty_from, end, result, pause)
        at = partition_log.log_start_offset
        while at < mapped_to:
            batches, beyond = await self._read(partition_log, at, mapped_to, result, pause)
            changed = await self._ask(Clean(batches))
            await self._replace(partition_log, truncations, changed, result, pause)
            at = beyond
        changed = await self._ask(Finish())
        await self._replace(partition_log, truncations, changed, result, pause)
        result.cleaned_to = mapped_to
        return result

    async def rest(self) -> None:
        """Nothing is to be cleaned for a while: end the process, which gives its memory back."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            await self._in_thread(worker.close)

    async def close(self) -> None:
        """End the process, and whatever still waits for its answer."""
        await self.rest()
        self._thread.shutdown()

    async def _map(
        self, partition_log: PartitionLog, at: int, end: int, result: Cleaned, pause: Pause
    ) -> int:
        while at < end:
            batches, _ = await self._read(partition_log, at, end, result, pause)
            reply = await self._ask(Map(batches))
            assert isinstance(reply, Mapped)
            at = reply.mapped_to
            if not reply.has_room:
                break
        return at

    async def _read(
        self, partition_log: PartitionLog, at: int, end: int, result: Cleaned, pause: Pause
    ) -> tuple[bytes, int]:
        """Some batches from offset ``at`` on, and where those end."""
        for attempt in range(_ATTEMPTS):
            placed, beyond = partition_log.placed_from(at, end, _READ_BYTES)
            if not placed:
                raise Interrupted(f"nothing begins at offset {at} any more")
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
        changed: Reply,
        result: Cleaned,
        pause: Pause,
    ) -> None:
        assert isinstance(changed, Changed)
        waiting = changed.replacements
        for _ in range(_ATTEMPTS):
            if partition_log.truncations != truncations:
                raise Interrupted("it was cut")
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
        raise Interrupted(f"its batches from offset {waiting[0].old[0][0]} on keep moving")

    async def _ask(self, request: Request) -> Reply:
        reply = await self._in_thread(self._ask_worker, request)
        if isinstance(reply, Undecodable):
            raise Uncleanable(reply.problem)
        return reply

    def _ask_worker(self, request: Request) -> Reply:
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
    """What to ask of the store, with where the batches lie now.

    Raises:
        Interrupted: they are not there any more, or others are.
    """
    old = replacement.old
    placed = partition_log.placed(old[0][0], old[-1][0] + 1)
    if [(one.base_offset, one.size) for one in placed] != old:
        raise Interrupted(f"its batches from offset {old[0][0]} on are not what they were")
    new = [Batch(read_header(data), memoryview(data)) for data in replacement.new]
    return Rewrite(partition_log, placed, new)


def _read_placed(number: int, placed: Sequence[Placed]) -> bytes:
    """In a thread: they may lie in several segments."""
    chunks: list[Records] = []
    for segment, together in groupby(placed, key=lambda one: one.segment):
        chunks += segment.read(number, [(one.base_offset, one.size) for one in together])
    return b"".join(chunks)
