"""Measures what 200,000 and a million partitions cost voters.

The rows are about memory, snapshots, a voter that lags behind, and restarts.

``--rows 1000000`` measures the million alone, which takes two minutes.
"""

import asyncio
import contextlib
import fnmatch
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import uvloop

from bench._support import Bench, Cell, percentile
from tests.support.many_partitions import Load, ManyPartitions
from tests.support.quorum_cluster import QuorumCluster, connected

IN_FLIGHT: Final = 20
LONG_LOG_PARTITIONS: Final = 200_000
"""Beyond these, a long log costs a restart what it costs with these."""

SETTINGS: Final = {
    "metadata.log.max.records.between.snapshots": 10_000,
    "metadata.log.retained.records": 2_000,
}
_WRITTEN = re.compile(r"snapshot \d+ written in (\d+) ms, (\d+) bytes")


def memory_mb(quorum: QuorumCluster, *voter_ids: int) -> dict[str, float]:
    """Return the memory of the largest of these voters, or of all voters: what is resident, and
    what ending it would free.
    """
    resident, unique = [], []
    for process in (quorum.processes[one] for one in voter_ids or quorum.processes):
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        sizes = {
            name: int(kib) / 1024 for name, kib in re.findall(r"^(\w+): +(\d+) kB$", rollup, re.M)
        }
        resident.append(sizes["Rss"])
        unique.append(sizes["Private_Clean"] + sizes["Private_Dirty"])
    return {"RSS MB": max(resident), "USS MB": max(unique)}


async def until(holds: Callable[[], bool], timeout_s: float = 60.0) -> float:
    """Seconds until it holds."""
    started = time.perf_counter()
    async with asyncio.timeout(timeout_s):
        while not await asyncio.to_thread(holds):
            await asyncio.sleep(0.005)
    return time.perf_counter() - started


def has_applied(quorum: QuorumCluster, voter_id: int, offset: int) -> bool:
    status = quorum.status(voter_id)
    return status is not None and status.applied_offset >= offset


def snapshots_written(quorum: QuorumCluster, voter_id: int) -> list[tuple[int, int]]:
    """(milliseconds, bytes) of each."""
    found = _WRITTEN.findall(quorum.log_text(voter_id))
    return [(int(ms), int(size)) for ms, size in found]


class Scale:
    """One cluster of three voters, filled once and then measured from several sides."""

    def __init__(self, bench: Bench, quorum: QuorumCluster, topics: int, partitions: int) -> None:
        """``partitions`` in each of ``topics``."""
        self._bench = bench
        self._topics = topics
        self._partitions = topics * partitions
        self._in_topic = partitions
        self._quorum = quorum
        self._case: dict[str, Cell] = {"topics": topics, "partitions": self._partitions}

    async def run(self) -> None:
        async with connected(self._quorum, session_timeout_ms=30_000) as client:
            many = ManyPartitions(client, topics=self._topics, partitions=self._in_topic)
            empty = memory_mb(self._quorum)
            started = time.perf_counter()
            await many.create()
            self._row("created", {"s": time.perf_counter() - started, **memory_mb(self._quorum)})
            term = (await client.status()).term
            leader = self._quorum.wait_for_leader()
            load = Load(many, IN_FLIGHT)
            await self._writing_snapshots(load, leader)
            late = next(each for each in self._quorum.voter_ids if each != leader)
            self._quorum.kill(late)
            await self._past_compaction(leader)
            await self._install(load, late, leader)
            await load.stop()
            await self._restart(late, leader, empty)
            self._row("altogether", {"elections": (await client.status()).term - term})

    async def run_long_log(self) -> None:
        """Measure with as many changes behind the last snapshot as there ever are by default."""
        async with connected(self._quorum, session_timeout_ms=30_000) as client:
            many = ManyPartitions(client, topics=self._topics, partitions=self._in_topic)
            empty = memory_mb(self._quorum)
            await many.create()
            leader = self._quorum.wait_for_leader()
            late = next(each for each in self._quorum.voter_ids if each != leader)
            load = Load(many, 500)
            wanted = self._bench.pick(full=215_000, quick=90_000)
            await until(lambda: has_applied(self._quorum, leader, wanted), 300)
            await load.stop()
            self._row(f"{wanted:,} changes", memory_mb(self._quorum))
            await self._restart(late, leader, empty)

    async def _writing_snapshots(self, load: Load, leader: int) -> None:
        before = len(snapshots_written(self._quorum, leader))
        wanted = before + self._bench.pick(full=5, quick=2)
        load.reset()
        await until(lambda: len(snapshots_written(self._quorum, leader)) >= wanted, 120)
        took = snapshots_written(self._quorum, leader)[before:]
        figures = {
            "s": percentile([ms / 1000 for ms, _ in took], 0.5),
            "MB": took[-1][1] / 1e6,
            **self._gaps(load),
            **memory_mb(self._quorum),
        }
        self._row("writing snapshots", figures)

    async def _past_compaction(self, leader: int) -> None:
        begun = self._log_start(leader)
        await until(lambda: self._log_start(leader) > begun + 10_000, 120)

    async def _install(self, load: Load, late: int, leader: int) -> None:
        load.reset()
        started = time.perf_counter()
        self._quorum.start(late)
        await until(lambda: "installing snapshot" in self._quorum.log_text(late))
        status = self._quorum.status(leader)
        assert status is not None
        await until(lambda: has_applied(self._quorum, late, status.commit_offset))
        figures = {"s": time.perf_counter() - started, **self._gaps(load)}
        self._row("a lagging voter comes back", figures | memory_mb(self._quorum))

    async def _restart(self, late: int, leader: int, empty: dict[str, float]) -> None:
        """``empty`` is the memory of the voters before there were partitions."""
        status = self._quorum.status(leader)
        assert status is not None
        await until(lambda: has_applied(self._quorum, late, status.commit_offset))
        serves, in_step = [], []
        for _ in range(self._bench.pick(full=3, quick=1)):
            self._quorum.kill(late)
            started = time.perf_counter()
            self._quorum.start(late)
            await until(lambda: self._quorum.status(late) is not None)
            serves.append(time.perf_counter() - started)
            await until(lambda: has_applied(self._quorum, late, status.commit_offset))
            in_step.append(time.perf_counter() - started)
        memory = memory_mb(self._quorum, late)
        figures = {
            "s": percentile(in_step, 0.5),
            "serves after s": percentile(serves, 0.5),
            **memory,
            "bytes per partition": 1e6 * (memory["USS MB"] - empty["USS MB"]) / self._partitions,
        }
        self._row("restart", figures)

    def _log_start(self, voter_id: int) -> int:
        status = self._quorum.status(voter_id)
        return 0 if status is None else status.log_start_offset

    def _gaps(self, load: Load) -> dict[str, float]:
        return {
            "p50 ms": percentile(load.latencies_ms, 0.5),
            "p99 ms": percentile(load.latencies_ms, 0.99),
            "longest gap ms": load.longest_gap_ms,
        }

    def _row(self, step: str, figures: dict[str, float]) -> None:
        self._bench.row({**self._case, "step": step}, figures)


def main() -> None:
    bench = Bench.from_command_line(
        "Quorum at scale",
        f"three voters, replication factor 3, {IN_FLIGHT} writes in flight",
        selectable=True,
    )
    for topics, partitions in cases(bench):
        with cluster(SETTINGS) as (quorum, runner):
            runner.run(Scale(bench, quorum, topics, partitions).run())
        if topics * partitions <= LONG_LOG_PARTITIONS:
            with cluster({}) as (quorum, runner):
                runner.run(Scale(bench, quorum, topics, partitions).run_long_log())
    bench.finish()


def cases(bench: Bench) -> list[tuple[int, int]]:
    """Topics, and partitions in each: by the number of all partitions, or the usual ones."""
    every = [(20, 10_000), (2_000, 100), (100, 10_000)]
    if bench.pattern is None:
        return bench.pick(full=every, quick=every[:1])
    return [case for case in every if fnmatch.fnmatch(str(math.prod(case)), bench.pattern)]


@contextlib.contextmanager
def cluster(settings: dict[str, int]) -> Iterator[tuple[QuorumCluster, asyncio.Runner]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        QuorumCluster(Path(folder), settings=settings) as quorum,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        yield quorum, runner


if __name__ == "__main__":
    main()
