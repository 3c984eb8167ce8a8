"""The work that a broker does for its partitions at intervals, whether or not anybody asks."""

import asyncio
import logging
from typing import Final

from quorate.broker.replication.hosting.partition_limits import PartitionLimits
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.hosting.peer_silence import CHECKS_PER_LIMIT
from quorate.broker.replication.maintenance.compaction_task import CompactionTask
from quorate.broker.replication.maintenance.retention_task import RetentionTask
from quorate.common.background_tasks import BackgroundTasks

log = logging.getLogger(__name__)

TICK_MAX_MS: Final = 1_000
_LEAST_BACKOFF_MS: Final = 100
"""The least time between two searches for logs to compact, whatever is configured."""


class MaintenanceScheduler:
    """Runs the work of one broker. Work that fails is logged, and tried again at its next time."""

    def __init__(
        self,
        table: PartitionTable,
        limits: PartitionLimits,
        retaining: RetentionTask,
        compacting: CompactionTask,
        *,
        checkpoint_interval_ms: int,
        producer_check_interval_ms: int,
        retention_check_interval_ms: int,
    ) -> None:
        self._table = table
        self._limits = limits
        self._retaining = retaining
        self._compacting = compacting
        self._checkpoint_interval_ms = checkpoint_interval_ms
        self._producer_check_interval_ms = producer_check_interval_ms
        self._retention_check_interval_ms = retention_check_interval_ms

    def start(self, tasks: BackgroundTasks) -> None:
        """Begin, and go on until ``tasks`` are closed."""
        tasks.start(self._tick_for_ever(), "isr-tick")
        tasks.start(self._notice_silence_for_ever(), "peer-silence")
        tasks.start(self._checkpoint_for_ever(), "high-watermark-checkpoint")
        tasks.start(self._expire_producers_for_ever(), "producer-expiration")
        tasks.start(self._retain_for_ever(), "retention")
        tasks.start(self._compact_for_ever(), "compaction")

    def checkpoint(self) -> None:
        """Write the high watermarks that have changed."""
        changed = self._table.changed_high_watermarks()
        if changed:
            self._table.store.checkpoint_high_watermarks(changed)

    async def _tick_for_ever(self) -> None:
        while True:
            interval_ms = max(1, min(TICK_MAX_MS, self._limits.lag_time_max_ms() // 2))
            await asyncio.sleep(interval_ms / 1000)
            try:
                self._table.tick()
            except Exception:
                log.exception("a tick failed; the next one tries again")

    async def _notice_silence_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._limits.silence_max_ms() / CHECKS_PER_LIMIT / 1000)
            try:
                self._table.notice_silence()
            except Exception:
                log.exception("a check of the streams failed; the next one tries again")

    async def _checkpoint_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._checkpoint_interval_ms / 1000)
            self.checkpoint()

    async def _expire_producers_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._producer_check_interval_ms / 1000)
            await self._table.store.expire_producers(self._table.clock.now_ms())

    async def _retain_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._retention_check_interval_ms / 1000)
            try:
                await self._retaining.run()
            except Exception:
                log.exception("deleting old records failed; the next round tries again")

    async def _compact_for_ever(self) -> None:
        while True:
            await asyncio.sleep(max(_LEAST_BACKOFF_MS, self._limits.cleaner().backoff_ms) / 1000)
            try:
                await self._compacting.run()
            except Exception:
                log.exception("compacting failed; the next round tries again")
