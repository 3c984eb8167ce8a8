"""An open log store inside a test: what it reported, and waiting for it without sleeping."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from quorate.broker.log import LogCallbacks, LogManager, LogOptions, PartitionLog
from quorate.broker.log.options import Flush
from quorate.broker.log.stored.stored_log import OnDamaged, StoredLog
from quorate.broker.log.writing.disk_space import OnRoom
from quorate.common.types import LeaderEpoch, TopicId, TopicIdPartition
from tests.support.record_batches import assemble, filled_records

EPOCH = LeaderEpoch(0)


class OpenStore:
    """A store, and what it called back."""

    def __init__(self) -> None:
        self.store: LogManager
        self.flushes: list[list[tuple[str, int]]] = []
        self.failures: list[Exception] = []
        self.on_room: OnRoom = lambda has_room: None
        self.on_damaged: OnDamaged = lambda damaged_log, damaged: None
        self._changed = asyncio.Event()

    def callbacks(self) -> LogCallbacks:
        """Whom the store is to tell what; a test may replace ``on_room`` and ``on_damaged``."""
        return LogCallbacks(
            self.on_flushed,
            self.on_failed,
            lambda has_room: self.on_room(has_room),
            lambda damaged_log, damaged: self.on_damaged(damaged_log, damaged),
        )

    def on_flushed(self, logs: Sequence[StoredLog]) -> None:
        self.flushes.append([(log.topic, log.flushed_offset) for log in logs])
        self._changed.set()

    def on_failed(self, error: Exception) -> None:
        self.failures.append(error)
        self._changed.set()

    def create(self, topic: str = "t", partition: int = 0) -> PartitionLog:
        """A log of that name under a topic id that is new each time."""
        return self.store.create(TopicIdPartition(TopicId(os.urandom(16)), partition), topic)

    def log(self, topic: str = "t", partition: int = 0) -> PartitionLog:
        """The one log of that name."""
        (found,) = [
            log
            for log in self.store.logs.values()
            if (log.topic, log.tip.partition) == (topic, partition)
        ]
        return found

    async def until_flushed(self, *logs: PartitionLog) -> None:
        """Return when all that was appended to ``logs`` is on disk."""
        while any(log.flushed_offset < log.log_end_offset for log in logs):
            await self._next_change()

    async def until_failed(self) -> Exception:
        while not self.failures:
            await self._next_change()
        return self.failures[0]

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


@asynccontextmanager
async def opened(
    directory: Path,
    flush: Flush = "sync",
    *,
    segment_bytes: int = 16 << 20,
    tail_bytes: int = 64 << 20,
    max_batch_bytes: int = 8 << 20,
    max_pending_bytes: int = 32 << 20,
    producer_expiration_ms: int = 86_400_000,
    reserve_bytes: int = 64 << 10,
    new_folder_is_loss: bool = False,
    incarnation_id: bytes = b"",
) -> AsyncIterator[OpenStore]:
    """A store in ``directory``; closed properly at the end."""
    is_new = not (directory / "store.mdb").exists()
    opened_store = OpenStore()
    options = LogOptions(
        flush=flush,
        segment_bytes=segment_bytes,
        tail_bytes=tail_bytes,
        max_batch_bytes=max_batch_bytes,
        max_pending_bytes=max_pending_bytes,
        reserve_bytes=reserve_bytes,
        producer_expiration_ms=producer_expiration_ms,
        incarnation_id=incarnation_id,
    )
    opened_store.store = await LogManager.open(directory, options, opened_store.callbacks())
    if is_new and not new_folder_is_loss:
        opened_store.store.loss_handled()
    try:
        yield opened_store
    finally:
        await opened_store.store.close()


def batch(
    count: int = 1,
    size: int = 100,
    *,
    base_offset: int = 0,
    timestamp_ms: int = 1000,
    seed: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytes:
    """A batch of ``count`` records, which have ``size`` bytes together if they can.

    ``producer`` and ``attributes``: as ``record_batches.assemble`` has them.
    """
    return assemble(
        filled_records(count, size, seed),
        base_offset=base_offset,
        last_delta=count - 1,
        count=count,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer=producer,
        attributes=attributes,
    )


def everything(log: PartitionLog) -> bytes:
    """All bytes of a log, read in one go."""
    return b"".join(log.read(log.log_start_offset, 1 << 40, log.log_end_offset).chunks)
