"""Measures every contestant in turn, so that the machine's noise hits all alike."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from bench._support import Bench, median_row, percentile
from bench.peers.comparison import Comparison
from bench.peers.contender import LEAVES, NODES, BatchClient, Client, Cluster
from bench.peers.processes import Memory, cpu_seconds, memory, own_cpu_seconds

_SETTLE_S: Final = 1.0
_POLL_S: Final = 0.02
_GIVE_UP_S: Final = 60.0
_WARM_UP_IN_FLIGHT: Final = 1_000

_WRITE_GOALS: Final = {
    ("ops/s", 10): "≥ 2 x the better peer",
    ("ops/s", 100): "≥ 4 x (TLS: 3 x)",
    ("ops/s", 1000): "≥ 6 x",
    ("p50 ms", 1): "≤ 1.5, ≤ etcd",
}


class Contestant(NamedTuple):
    """One column: a cluster by one of its clients."""

    name: str
    cluster: Cluster
    client: Client


Figures = Mapping[str, float]


class Restart(NamedTuple):
    """The cost of a restart, from the start of a process until it serves and has applied
    everything."""

    elapsed_ms: float
    cpu_ms: float
    """The CPU time of that process."""


async def in_turn(
    repetitions: int,
    contestants: Sequence[Contestant],
    measure: Callable[[Contestant], Awaitable[Figures]],
) -> dict[str, Figures]:
    """Medians by contestant; everyone is measured once before anyone is again."""
    samples: dict[str, list[Figures]] = {each.name: [] for each in contestants}
    for _ in range(repetitions):
        for contestant in contestants:
            samples[contestant.name].append(await measure(contestant))
    return {name: median_row(measured) for name, measured in samples.items()}


async def writes(bench: Bench, table: Comparison, contestants: Sequence[Contestant]) -> None:
    """Throughput, latency and CPU time of single writes."""
    seconds = bench.pick(full=2.0, quick=1.0)
    for contestant in contestants:
        await contestant.client.write_for(bench.pick(full=4.0, quick=1.0), _WARM_UP_IN_FLIGHT)
    for in_flight in bench.pick(full=(1, 10, 100, 1000), quick=(1, 100, 1000)):

        async def measure(contestant: Contestant, in_flight: int = in_flight) -> Figures:
            return await _write(contestant, seconds, in_flight)

        medians = await in_turn(bench.repetitions, contestants, measure)
        for figure in next(iter(medians.values())):
            measured = {name: figures[figure] for name, figures in medians.items()}
            goal = _WRITE_GOALS.get((figure, in_flight), "")
            table.row(f"{figure}, {in_flight} in flight", measured, goal)


async def _write(contestant: Contestant, seconds: float, in_flight: int) -> Figures:
    pids = contestant.cluster.pids
    leader = contestant.cluster.leader()
    followers = [pid for node, pid in pids.items() if node != leader]
    before = cpu_seconds([pids[leader]]), cpu_seconds(followers), own_cpu_seconds()
    started = time.perf_counter()
    latencies_ms = await contestant.client.write_for(seconds, in_flight)
    elapsed = time.perf_counter() - started
    after = cpu_seconds([pids[leader]]), cpu_seconds(followers), own_cpu_seconds()
    writes = len(latencies_ms)
    of_leader, of_followers, of_client = (
        (then - now) / writes * 1e6 for now, then in zip(before, after, strict=True)
    )
    return {
        "ops/s": writes / elapsed,
        "p50 ms": percentile(latencies_ms, 0.5),
        "p99 ms": percentile(latencies_ms, 0.99),
        "CPU µs/op": of_leader + of_followers + of_client,
        "CPU µs/op leader": of_leader,
        "CPU µs/op followers": of_followers,
        "CPU µs/op client": of_client,
    }


async def updates(bench: Bench, table: Comparison, contestants: Sequence[Contestant]) -> None:
    """Many records changed by one call."""
    versions = {each.cluster: 0 for each in contestants}
    for cluster in versions:
        await cluster.create_leaves(LEAVES)

    async def measure(contestant: Contestant) -> Figures:
        assert isinstance(contestant.client, BatchClient)
        versions[contestant.cluster] += 1
        return {"ms": await contestant.client.update_leaves(versions[contestant.cluster])}

    able = [each for each in contestants if isinstance(each.client, BatchClient)]
    await in_turn(1, able, measure)
    medians = await in_turn(bench.pick(full=7, quick=3), able, measure)
    measured = {name: figures["ms"] for name, figures in medians.items()}
    table.row(f"{LEAVES:,} leaderAndISR in one call, ms", measured, "≤ 0.5 x ZooKeeper")


def memory_per_node(cluster: Cluster) -> Memory:
    """Mean of the nodes."""
    nodes = [memory(pid) for pid in cluster.pids.values()]
    return Memory(*map(statistics.mean, zip(*nodes, strict=True)))


def memory_rows(
    table: Comparison, when: str, measured: Mapping[str, Memory], goal: str = ""
) -> None:
    rss_mb = {name: memory.rss_mb for name, memory in measured.items()}
    pss_mb = {name: memory.pss_mb for name, memory in measured.items()}
    table.row(f"RSS MB per node, {when}", rss_mb, goal)
    table.row(f"PSS MB per node, {when}", pss_mb, goal)


async def idle_cpu(table: Comparison, clusters: Sequence[Cluster], seconds: float) -> None:
    """CPU time of a whole cluster that has nothing to do, in percent of one core."""
    before = [cpu_seconds(cluster.pids.values()) for cluster in clusters]
    await asyncio.sleep(seconds)
    table.row(
        "idle CPU % of a core, all nodes",
        {
            cluster.name: (cpu_seconds(cluster.pids.values()) - used) / seconds * 100
            for cluster, used in zip(clusters, before, strict=True)
        },
    )


async def failover(table: Comparison, kills: Mapping[Cluster, int]) -> None:
    """Measure the time from kill -9 of the leader to the first write that is acknowledged after
    it."""
    times_ms = await _in_rounds(kills, _kill_leader)
    for label, fraction in (("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("max", 1.0)):
        goal = "≤ 500" if label == "p50" else ""
        measured = {name: percentile(times, fraction) for name, times in times_ms.items()}
        table.row(f"leader kill to first write, {label} ms", measured, goal)
    kills_of = {name: len(times) for name, times in times_ms.items()}
    table.row("leader kills", kills_of, compared=())


async def silence(table: Comparison, pauses: Mapping[Cluster, int]) -> None:
    """The same for a leader that falls silent: no closed connection tells of it."""
    times_ms = await _in_rounds(pauses, _pause_leader)
    measured = {name: statistics.median(times) for name, times in times_ms.items()}
    table.row("leader pause to first write, p50 ms", measured)


async def _in_rounds(
    counts: Mapping[Cluster, int], measure: Callable[[Cluster], Awaitable[float]]
) -> dict[str, list[float]]:
    """Each cluster as often as its count, in turn."""
    measured: dict[str, list[float]] = {cluster.name: [] for cluster in counts}
    for round_number in range(max(counts.values())):
        for cluster, count in counts.items():
            if round_number < count:
                measured[cluster.name].append(await measure(cluster))
    return measured


async def _kill_leader(cluster: Cluster) -> float:
    leader = cluster.leader()
    await cluster.write_through()
    started = time.perf_counter()
    cluster.kill(leader)
    await cluster.write_through()
    elapsed = time.perf_counter() - started
    cluster.start_node(leader)
    await _settle(cluster)
    return elapsed * 1000


async def _pause_leader(cluster: Cluster) -> float:
    leader = cluster.leader()
    await cluster.write_through()
    started = time.perf_counter()
    cluster.pause(leader)
    try:
        await cluster.write_through()
        elapsed = time.perf_counter() - started
    finally:
        cluster.resume(leader)
    await _settle(cluster)
    return elapsed * 1000


async def _settle(cluster: Cluster) -> None:
    await until_whole(cluster)
    await asyncio.sleep(_SETTLE_S)


async def restart(cluster: Cluster) -> Restart:
    """A follower is killed, and started again."""
    leader = cluster.leader()
    follower = next(node for node in NODES if node != leader)
    cluster.kill(follower)
    started = time.perf_counter()
    cluster.start_node(follower)
    await _until_caught_up(cluster, follower)
    elapsed = time.perf_counter() - started
    return Restart(elapsed * 1000, cpu_seconds([cluster.pids[follower]]) * 1000)


def restart_rows(table: Comparison, when: str, measured: Mapping[str, Sequence[Restart]]) -> None:
    """Medians."""
    for figure, field, goal in (("ms", "elapsed_ms", "≤ 2,000"), ("CPU ms", "cpu_ms", "")):
        medians = {
            name: statistics.median(getattr(each, field) for each in restarts)
            for name, restarts in measured.items()
        }
        table.row(f"restart {when}, {figure}", medians, goal)


async def until_whole(cluster: Cluster) -> None:
    """Wait until every running node is caught up."""
    for node in cluster.pids:
        await _until_caught_up(cluster, node)


async def _until_caught_up(cluster: Cluster, node: int) -> None:
    async with asyncio.timeout(_GIVE_UP_S):
        while not await asyncio.to_thread(cluster.is_caught_up, node):
            await asyncio.sleep(_POLL_S)
