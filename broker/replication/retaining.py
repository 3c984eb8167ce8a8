"""Retention: leaders let go of old records, followers do as their leaders (as with DeleteRecords).

Only leaders decide, so that the replicas of a partition begin at one offset, whatever their clocks
say. Nobody waits for the followers: a record that a later leader still has is deleted by it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from broker.errors import KafkaError
from broker.replication.hosted import HostedPartition
from broker.replication.limits import Limits
from broker.replication.pace import Pace
from broker.replication.partition_table import PartitionTable

log = logging.getLogger(__name__)

MOVED_TOGETHER: Final = 500
"""Logs whose start one commit moves: some milliseconds of the writer's."""


class Retaining:
    """Moves the log starts of what this broker leads."""

    def __init__(
        self, table: PartitionTable, limits: Limits, wall_clock_ms: Callable[[], int]
    ) -> None:
        self._table = table
        self._limits = limits
        self._wall_clock_ms = wall_clock_ms
        self._pace = Pace()

    async def run(self) -> None:
        """Look at every partition once, with breaths in between."""
        now_ms = self._wall_clock_ms()
        times = self._table.store.segment_times()
        due: list[tuple[HostedPartition, int]] = []
        for hosted in tuple(self._table):
            await self._pace.step()
            if not hosted.leads:
                continue
            offset = hosted.log.retained_from(
                hosted.replica.high_watermark,
                self._limits.retention(hosted.tp.topic),
                now_ms,
                times,
            )
            if offset > hosted.log.log_start_offset:
                due.append((hosted, offset))
            if len(due) == MOVED_TOGETHER:
                await self._move(due)
                due = []
        await self._move(due)

    async def _move(self, due: Sequence[tuple[HostedPartition, int]]) -> None:
        """All asked for before the first is done: so they share a commit."""
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
