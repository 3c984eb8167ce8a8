"""Cleaning logs of a store inside a test, with or without the process that a broker has for it."""

from collections.abc import Callable

from quorate.broker.log import PartitionLog
from quorate.broker.log.cleaning.cleaner import CleanerWorker, CleaningProgress, LogCleaner, Pause
from quorate.broker.log.cleaning.cleaner_messages import CleanerReply, CleanerRequest
from quorate.broker.log.cleaning.cleaner_process import CleanerRequestHandler
from quorate.broker.log.compaction.log_cleaning import CleaningTask
from tests.support.log_stores import OpenStore

DELETE_RETENTION_MS = 1000


class WorkerInside:
    """Does the work of the cleaner's process in this one; ``between`` is called with each
    request."""

    def __init__(self, between: Callable[[CleanerRequest], None] | None = None) -> None:
        self._answering = CleanerRequestHandler()
        self._between = between

    def ask(self, request: CleanerRequest) -> CleanerReply:
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
    start_worker: Callable[[], CleanerWorker] = WorkerInside,
    pause: Pause = no_pause,
) -> CleaningProgress:
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
    await store.store.writer.roll()
    await store.store.housekeeping.idle()
