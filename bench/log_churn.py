"""Churn: appends at full speed while logs let go of their oldest, each topic after another time.

A round is as many bytes as a segment has. The speed must not fall from round to round, no commit
may take long because a segment is begun, sealed, emptied or unlinked, and the disk must not hold
much more than what is kept.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from bench._support import Bench, percentile
from bench.log_append import Appender, make_batch
from quorate.broker.log import LogCallbacks, LogManager, LogOptions, PartitionLog, Retention
from quorate.broker.log.options import Flush
from quorate.common.metrics.family import Timings
from quorate.common.types import TopicId, TopicIdPartition

ROUNDS: Final = 20
KEPT_SEGMENTS: Final = (0.125, 0.5, 1.0, 2.0)
"""The bytes that each of the topics keeps, in sizes of a segment. All topics get the same
records."""
PARTITIONS: Final = 250
"""The number of partitions of each topic."""
BATCH_BYTES: Final = 64 << 10
CHECKS_PER_ROUND: Final = 4
IN_FLIGHT: Final = 32


class NotedTimings(Timings):
    """Keeps what a store keeps only as a histogram."""

    def __init__(self) -> None:
        super().__init__()
        self.all_s: list[float] = []

    def observe(self, seconds: float) -> None:
        self.all_s.append(seconds)
        super().observe(seconds)


@dataclass
class Churn:
    """The figures of one run: the seconds of each round and of each commit, and the use of the
    disk."""

    rounds_s: list[float] = field(default_factory=list)
    commits_s: list[float] = field(default_factory=list)
    most_of_bound: float = 0.0
    """The largest ratio of the bytes on disk to the bound on them."""


async def churn(directory: Path, flush: Flush, segment_bytes: int) -> Churn:
    seen = Churn()
    appender = Appender(IN_FLIGHT)
    options = LogOptions(flush=flush, segment_bytes=segment_bytes)
    store = await LogManager.open(
        directory, options, LogCallbacks(appender.on_flushed, appender.on_failed)
    )
    store.writer._commit.times = commits = NotedTimings()
    kept = {
        topic: Retention(bytes=int(share * segment_bytes / PARTITIONS))
        for topic, share in enumerate(KEPT_SEGMENTS)
    }
    ids = {topic: TopicId(os.urandom(16)) for topic in kept}
    logs = [
        store.create(TopicIdPartition(ids[topic], partition), str(topic))
        for partition in range(PARTITIONS)
        for topic in kept
    ]
    await asyncio.sleep(0.1)  # the table is written, outside of what is measured
    batch = make_batch(BATCH_BYTES)
    for _ in range(ROUNDS):
        round_s = 0.0
        for _ in range(CHECKS_PER_ROUND):
            batches = segment_bytes // BATCH_BYTES // CHECKS_PER_ROUND
            deleting = asyncio.create_task(_delete_oldest(store, logs, kept))
            round_s += await appender.run(logs, batch, batches)
            await deleting
            bound = 1.5 * sum(log.size_bytes for log in logs) + 2 * segment_bytes
            seen.most_of_bound = max(seen.most_of_bound, _disk_bytes(directory) / bound)
        seen.rounds_s.append(round_s)
    seen.commits_s = list(commits.all_s)
    await store.close()
    return seen


async def _delete_oldest(
    store: LogManager, logs: Sequence[PartitionLog], kept: dict[int, Retention]
) -> None:
    """Delete the oldest segments as a broker does at each check, as if all that is flushed is
    committed."""
    times = store.segment_times()
    for first in range(0, len(logs), 500):
        due = []
        for log in logs[first : first + 500]:
            offset = log.retained_from(log.flushed_offset, kept[int(log.topic)], 0, times)
            if offset > log.log_start_offset:
                due.append(log.start_at(offset))
        await asyncio.gather(*due)


def _disk_bytes(directory: Path) -> int:
    total = 0
    for path in directory.glob("segment-*.mdb"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def measure(flush: Flush, segment_bytes: int) -> dict[str, float]:
    directory = Path(tempfile.mkdtemp(prefix="quorate-bench-"))
    try:
        seen = uvloop.run(churn(directory, flush, segment_bytes))
    finally:
        shutil.rmtree(directory)
    speeds = [segment_bytes / seconds / 1e6 for seconds in seen.rounds_s]
    return {
        "MB/s": ROUNDS * segment_bytes / sum(seen.rounds_s) / 1e6,
        "round 2 MB/s": speeds[1],
        "round 20 MB/s": speeds[-1],
        "last 5 / first 5": sum(seen.rounds_s[:5]) / sum(seen.rounds_s[-5:]),
        "commit p50 ms": percentile(seen.commits_s, 0.5) * 1e3,
        "p99 ms": percentile(seen.commits_s, 0.99) * 1e3,
        "worst ms": max(seen.commits_s) * 1e3,
        "disk / bound": seen.most_of_bound,
    }


def main() -> None:
    bench = Bench.from_command_line(
        "Log churn",
        f"{ROUNDS} rounds of a segment's size, {len(KEPT_SEGMENTS) * PARTITIONS} partitions, "
        f"{BATCH_BYTES >> 10} KiB batches, retention that differs by topic; disk against 1.5 times "
        "what is kept and two segments",
    )
    modes: tuple[Flush, ...] = ("sync", "os")
    segment_mib = bench.pick(full=256, quick=64)
    for flush in modes:
        figures = bench.repeat(partial(measure, flush, segment_mib << 20))
        bench.row({"flush": flush, "segment MiB": segment_mib}, figures)
    bench.finish()


if __name__ == "__main__":
    main()
