"""Cleaning logs of a store inside a test, with or without the process that a broker has for it."""

from collections.abc import Callable

from broker.log import PartitionLog
from broker.log.cleaner import Cleaned, LogCleaner, Pause, Worker
from broker.log.cleaner_messages import Reply, Request
from broker.log.cleaner_process import Answering
from broker.log.compaction.log_cleaning import CleaningTask
from tests.support.log_stores import OpenStore

DELETE_RETENTION_MS = 1000


class WorkerInside:
    """What the process does, in this one; ``between`` is called with each request."""

    def __init__(self, between: Callable[[Request], None] | None = None) -> None:
        self._answering = Answering()
        self._between = between

    def ask(self, request: Request) -> Reply:
        if self._between is not None:
            self._between(request)
        return self._answering.answer(request)

    def kill(self) -> None:
        """There is no process."""

    def close(self) -> None:
        """There is nothing to wait for."""


async def no_pause(size: int) -> None:
    assert size > 0


async def clean(
    store: OpenStore,
    log: PartitionLog,
    *,
    now_ms: int = 10**13,
    key_bytes: int = 1 << 20,
    start_worker: Callable[[], Worker] = WorkerInside,
    pause: Pause = no_pause,
) -> Cleaned:
    """Clean what is flushed and sealed of ``log``, and remember how far.

    All of it is taken for committed, but for transactions that are not over.
    """
    cleaner = LogCleaner(store.store, start_worker)
    up_to = log.stable_offset(log.flushed_offset)
    found = log.cleanable(up_to, None)
    if not found.is_clean_sealed:
        await seal(store)
        found = log.cleanable(up_to, None)
    task = CleaningTask(
        dirty_from=found.dirty_from,
        pinned=log.producers.remembered_offsets(),
        now_ms=now_ms,
        delete_retention_ms=DELETE_RETENTION_MS,
        key_bytes=key_bytes,
        aborted=log.transactions.aborted(log.log_start_offset, found.end),
    )
    try:
        cleaned = await cleaner.clean(log, found.end, task, pause)
    finally:
        await cleaner.close()
    store.store.note_cleaned(log, cleaned.cleaned_to)
    return cleaned


async def seal(store: OpenStore) -> None:
    """Everything appended so far lies in sealed segments on return."""
    await store.until_flushed(*store.store.logs.values())
    await store.store.roll()
    await store.store.housekeeping.idle()
