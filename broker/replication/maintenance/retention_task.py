"""Retention: leaders delete old records, and followers do as their leaders (as with DeleteRecords).

Only leaders decide, so that the replicas of a partition begin at one offset, whatever their clocks
say. Nobody waits for the followers: a later leader deletes the records that it still has.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_limits import PartitionLimits
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.pace import Pace

log = logging.getLogger(__name__)

MOVED_TOGETHER: Final = 500
"""The number of logs whose start one commit moves: some milliseconds of the writer's time."""


class RetentionTask:
    """Moves the log starts of what this broker leads."""

    def __init__(self, table: PartitionTable, limits: PartitionLimits) -> None:
        self._table = table
        self._limits = limits
        self._pace = Pace()

    async def run(self) -> None:
        """Look at every partition once, with pauses in between."""
        now_ms = self._table.clock.wall_clock_ms()
        times_of = self._table.store.segment_times()
        due: list[tuple[HostedPartition, int]] = []
        for hosted in tuple(self._table):
            await self._pace.step()
            if not hosted.leads:
                continue
            offset = hosted.log.retained_from(
                hosted.replica.high_watermark,
                self._limits.retention(hosted.tp.topic),
                now_ms,
                times_of(hosted.log),
            )
            if offset > hosted.log.log_start_offset:
                due.append((hosted, offset))
            if len(due) == MOVED_TOGETHER:
                await self._move(due)
                due = []
        await self._move(due)

    async def _move(self, due: Sequence[tuple[HostedPartition, int]]) -> None:
        """Ask for all moves before the first is done: so they share a commit."""
        await asyncio.gather(*(self._start_at(hosted, offset) for hosted, offset in due))

    async def _start_at(self, hosted: HostedPartition, offset: int) -> None:
        if not hosted.leads:
            return
        before = hosted.log.log_start_offset
        try:
            await hosted.log.start_at(offset)
        except KafkaError as error:
            log.warning("%s keeps what is older than offset %d: %s", hosted.tp, offset, error)
            return
        log.debug("%s begins at offset %d now, not %d: retention", hosted.tp, offset, before)
        hosted.log_start_moved()
