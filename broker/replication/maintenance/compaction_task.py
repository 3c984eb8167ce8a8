"""CompactionOptions: every replica is cleaned on its own, the dirtiest first, one at a time.

Replicas need not be cleaned at the same time or equally far: a consumer finds the same for each
key, and a follower takes from its leader what compaction has left there. Only the choice of a log
runs on the event loop.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.cleaning.cleaner import (
    CleanerWorker,
    CleaningInterrupted,
    CleaningProgress,
    LogCleaner,
    UncleanableLog,
)
from quorate.broker.log.compaction.log_cleaning import CleaningTask
from quorate.broker.log.compaction.log_selection import (
    CompactionOptions,
    LogToClean,
    newest_cleanable_ms,
    next_to_clean,
    should_be_cleaned,
    should_be_sealed,
)
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.stored.cleanable import Cleanable
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_limits import PartitionLimits
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.pace import Pace
from quorate.common.types import TopicIdPartition

log = logging.getLogger(__name__)

_LEAST_PAUSE_S: Final = 0.001


class CompactionFigures(msgspec.Struct):
    """The figures of compaction for metrics. Times are ms of the monotonic clock."""

    max_dirty_ratio: float = 0.0
    uncleanable: dict[TopicIdPartition, str] = {}
    """The partitions that cannot be cleaned, each with the reason."""
    finished_at_ms: int = 0
    read_bytes: int = 0
    replaced_bytes: int = 0
    written_bytes: int = 0

    def note_finished(self, now_ms: int) -> None:
        """Remember when the last round ended."""
        self.finished_at_ms = now_ms

    def note_dirty_ratio(self, max_dirty_ratio: float) -> None:
        """Remember the dirtiest log of a round."""
        self.max_dirty_ratio = max_dirty_ratio

    def count(self, cleaned: CleaningProgress) -> None:
        """Add the bytes of one cleaning."""
        self.read_bytes += cleaned.read_bytes
        self.replaced_bytes += cleaned.replaced_bytes
        self.written_bytes += cleaned.written_bytes


class _Candidate(NamedTuple):
    hosted: HostedPartition
    compaction: CompactionOptions
    cleanable: Cleanable
    figures: LogToClean


class CompactionTask:
    """Cleans the compacted logs that this broker holds."""

    def __init__(
        self,
        table: PartitionTable,
        limits: PartitionLimits,
        start_worker: Callable[[], CleanerWorker],
    ) -> None:
        """``start_worker`` starts the process that cleans, when there is something to clean."""
        self.figures = CompactionFigures(finished_at_ms=table.clock.now_ms())
        self._table = table
        self._limits = limits
        self._clock = table.clock
        self._start_worker = start_worker
        self._cleaner: LogCleaner | None = None
        self._pace = Pace()
        self._passed_over: set[TopicIdPartition] = set()

    async def run(self) -> None:
        """Clean until nothing is left that should be."""
        if not self._limits.cleaner().is_enabled:
            return
        self._passed_over.clear()
        uncleanable = self.figures.uncleanable
        for gone in [tip for tip in uncleanable if self._table.get(tip) is None]:
            del uncleanable[gone]
        cleaned_any = False
        while (chosen := await self._next()) is not None:
            cleaned_any = True
            await self._clean(chosen)
        if cleaned_any and self._cleaner is not None:
            await self._cleaner.rest()
        self.figures.note_finished(self._clock.now_ms())

    async def close(self) -> None:
        """Stop the cleaner."""
        if self._cleaner is not None:
            await self._cleaner.close()

    async def _next(self) -> _Candidate | None:
        """Return the log to clean now.

        If what is to be cleaned lies in the active segment, that segment is sealed, because it has
        waited for long enough or because the last cleaning wrote it. The next round finds it.
        """
        now_ms = self._clock.wall_clock_ms()
        candidates: dict[TopicIdPartition, _Candidate] = {}
        must_seal = False
        max_dirty_ratio = 0.0
        for hosted in tuple(self._table):
            await self._pace.step()
            compaction = self._limits.compaction(hosted.tp.topic)
            if compaction is None or hosted.log.is_offline:
                continue
            found = self._look_at(hosted, compaction, now_ms)
            max_dirty_ratio = max(max_dirty_ratio, found.figures.dirty_ratio)
            if hosted.tip in self.figures.uncleanable or hosted.tip in self._passed_over:
                continue
            must_seal |= should_be_sealed(
                found.figures,
                found.cleanable.oldest_unsealed_ms,
                found.cleanable.unsealed_bytes,
                now_ms,
            )
            if found.cleanable.is_clean_sealed:
                candidates[hosted.tip] = found
            else:
                must_seal |= should_be_cleaned(found.figures, now_ms)
        self.figures.note_dirty_ratio(max_dirty_ratio)
        chosen = next_to_clean(((tip, one.figures) for tip, one in candidates.items()), now_ms)
        if chosen is None and must_seal:
            await self._seal()
        return None if chosen is None else candidates[chosen]

    def _look_at(
        self, hosted: HostedPartition, compaction: CompactionOptions, now_ms: int
    ) -> _Candidate:
        found = hosted.log.cleanable(
            hosted.last_stable_offset, newest_cleanable_ms(now_ms, compaction)
        )
        figures = LogToClean(
            found.clean_bytes, found.dirty_bytes, found.oldest_dirty_ms, compaction
        )
        return _Candidate(hosted, compaction, found, figures)

    async def _seal(self) -> None:
        try:
            await self._table.store.seal()
        except KafkaError as error:
            log.warning("what is to be compacted cannot be sealed: %s", error)

    async def _clean(self, chosen: _Candidate) -> None:
        hosted = chosen.hosted
        partition_log = hosted.log
        task = CleaningTask(
            dirty_from=chosen.cleanable.dirty_from,
            pinned=partition_log.producers.remembered_offsets(),
            now_ms=self._clock.wall_clock_ms(),
            delete_retention_ms=chosen.compaction.delete_retention_ms,
            key_bytes=self._limits.cleaner().dedupe_buffer_bytes,
            aborted=partition_log.transactions.aborted(
                partition_log.log_start_offset, chosen.cleanable.end
            ),
        )
        started_ms = self._clock.now_ms()
        try:
            cleaned = await self._own_cleaner().clean(
                partition_log, chosen.cleanable.end, task, self._pause
            )
        except UncleanableLog as error:
            log.error("%s cannot be compacted: %s", hosted.tp, error)
            self.figures.uncleanable[hosted.tip] = str(error)
        except (CleaningInterrupted, KafkaError, OSError) as error:
            log.warning("%s was not compacted to the end: %s", hosted.tp, error)
            self._passed_over.add(hosted.tip)
            if isinstance(error, DamagedBatch):
                partition_log.report_damage(error)
        else:
            self._table.store.note_cleaned(partition_log, cleaned.cleaned_to)
            self._count(hosted, cleaned, self._clock.now_ms() - started_ms)

    def _count(self, hosted: HostedPartition, cleaned: CleaningProgress, took_ms: int) -> None:
        self.figures.count(cleaned)
        log.info(
            "%s compacted up to offset %d in %d ms: %d bytes in the place of %d",
            hosted.tp,
            cleaned.cleaned_to,
            took_ms,
            cleaned.written_bytes,
            cleaned.replaced_bytes,
        )

    async def _pause(self, size: int) -> None:
        """Wait as ``log.cleaner.io.max.bytes.per.second`` asks for."""
        pause_s = size / self._limits.cleaner().io_max_bytes_per_second
        if pause_s > _LEAST_PAUSE_S:
            await asyncio.sleep(pause_s)

    def _own_cleaner(self) -> LogCleaner:
        if self._cleaner is None:
            self._cleaner = LogCleaner(self._table.store, self._start_worker)
        return self._cleaner
