"""Takes the figures of this broker every ten seconds, as long as the console is on.

The parts of the broker keep plain numbers anyway. A round reads those that the console shows, which
are few: none is about a single partition.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quorate.broker.console.figures.figure_history import (
    FigureHistory,
    group_series,
    topic_series,
)
from quorate.broker.console.figures.quantiles import quantile_ms
from quorate.broker.console.figures.rates import Rates
from quorate.broker.coordinator.groups.group_coordinator import GroupCoordinator
from quorate.broker.metrics.client_metrics import ClientFigures
from quorate.broker.quota.work_turns import WorkTurns
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.types import TopicPartition

log = logging.getLogger(__name__)

INTERVAL_MS: Final = 10_000
_PRODUCE: Final = "produce"

EndsOf = Callable[[Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
"""Asks other brokers for the ends of partitions. Those that nobody tells are left out."""

PARTITIONS_ASKED_MAX: Final = 5_000
"""The most partitions of which a round asks others for the end."""

GROUPS_MAX: Final = 1_000
"""The most groups of which a round computes the lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledParts:
    """The parts of the broker whose figures are taken."""

    table: PartitionTable
    groups: GroupCoordinator
    clients: ClientFigures
    turns: WorkTurns
    log_dir: Path
    ends_of: EndsOf
    troubles: Callable[[], Awaitable[tuple[int, int]]]
    """Returns how many partitions are offline and under-replicated in the whole cluster."""
    now_ms: Callable[[], float]
    wall_clock_ms: Callable[[], int]


class Sampler:
    """Fills the history of this broker."""

    def __init__(self, parts: SampledParts) -> None:
        self._parts = parts
        self.history = FigureHistory()
        self.topics_of_groups: dict[str, frozenset[str]] = {}
        """The topics of which each group has offsets, as of the last round."""
        self._rates = Rates()
        self._produce_counts: tuple[int, ...] = ()
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Take figures from now on."""
        self._tasks.start(self._take_for_ever(), "console-sampler")

    async def stop(self) -> None:
        await self._tasks.close()

    async def _take_for_ever(self) -> None:
        while True:
            try:
                await self.take()
            except OSError as error:
                log.warning("figures of the console: %s", error)
            await asyncio.sleep(INTERVAL_MS / 1_000)

    async def take(self) -> None:
        """Take one round."""
        parts = self._parts
        usage = await asyncio.to_thread(shutil.disk_usage, parts.log_dir)
        offline, under_replicated = await parts.troubles()
        lags = await self._lags()
        self.history.begin(parts.wall_clock_ms())
        put = self.history.put
        put("disk_used", usage.used)
        put("disk_total", usage.total)
        put("connections", parts.clients.connections)
        put("offline", offline)
        put("under_replicated", under_replicated)
        self._put_produce_time()
        rates = self._rates.since_last(self._counters(), parts.now_ms())
        async for name, rate in parts.turns.through(rates.items()):
            put(name, rate)
        for group, lag in lags.items():
            put(group_series("lag", group), lag)

    def _counters(self) -> dict[str, float]:
        """Return the counters of which the history has rates."""
        traffic = self._parts.table.traffic
        counters: dict[str, float] = {
            "cpu": 100 * time.process_time(),
            "bytes_in": 0,
            "bytes_out": 0,
            "records_in": 0,
            "replicated_in": traffic.replicated_in_bytes,
            "requests": sum(
                sum(timings.distribution.counts)
                for timings in self._parts.clients.request_times.values()
            ),
        }
        for topic, counted in traffic.by_topic.items():
            counters["bytes_in"] += counted.bytes_in
            counters["bytes_out"] += counted.bytes_out
            counters["records_in"] += counted.records_in
            if counted.bytes_in or counted.bytes_out:
                counters[topic_series("bytes_in", topic)] = counted.bytes_in
                counters[topic_series("bytes_out", topic)] = counted.bytes_out
                counters[topic_series("records_in", topic)] = counted.records_in
        return counters

    def _put_produce_time(self) -> None:
        counts = self._parts.clients.request_times[_PRODUCE].distribution.counts
        before, self._produce_counts = self._produce_counts or counts, counts
        slow_ms = quantile_ms(before, counts, 0.99)
        if slow_ms is not None:
            self.history.put("produce_p99_ms", slow_ms)

    async def _lags(self) -> dict[str, float]:
        """Return the lag of each group that this broker coordinates.

        The ends of partitions without a replica here are asked of their leaders.
        """
        committed: dict[str, dict[TopicPartition, int]] = {}
        absent: dict[TopicPartition, None] = {}
        ends: dict[TopicPartition, int] = {}
        known = [(group, offsets) for group, offsets in self._parts.groups.committed() if offsets]
        async for group, offsets in self._parts.turns.through(known[:GROUPS_MAX]):
            found = {tp: one.offset for tp in tuple(offsets) if (one := offsets.get(tp))}
            committed[group] = found
            for tp in found.keys() - ends.keys():
                end = self._parts.table.high_watermark(tp)
                if end is None:
                    absent[tp] = None
                else:
                    ends[tp] = end
        self.topics_of_groups = {
            group: frozenset(tp.topic for tp in found) for group, found in committed.items()
        }
        if absent:
            ends.update(await self._parts.ends_of(tuple(absent)[:PARTITIONS_ASKED_MAX]))
        return {group: lag_of(found, ends) for group, found in committed.items()}


def lag_of(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> float:
    """Return the records after the committed offsets, in partitions whose end is known."""
    return sum(max(0, ends[tp] - offset) for tp, offset in committed.items() if tp in ends)


def topics_of(groups: Mapping[str, frozenset[str]], group: str) -> Iterable[str]:
    """Return the topics of a group; none if it has no offsets here."""
    return groups.get(group, ())
