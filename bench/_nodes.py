"""Measures what the processes of a local cluster cost: CPU time and memory, brokers and voters
apart."""

import time
from collections.abc import Mapping

from bench.peers.processes import cpu_seconds, memory
from quorate.testing import RunningCluster


def pids(cluster: RunningCluster) -> dict[str, list[int]]:
    """Return the process ids of the nodes that run, by kind."""
    found = {
        "broker": [cluster.broker_pid(node) for node in cluster.broker_ids],
        "voter": [cluster.voter_pid(node) for node in cluster.voter_ids],
    }
    return {kind: [pid for pid in of_kind if pid is not None] for kind, of_kind in found.items()}


def cpu_by_pid(cluster: RunningCluster) -> dict[int, float]:
    """CPU seconds so far of every node that runs."""
    return {pid: cpu_seconds([pid]) for of_kind in pids(cluster).values() for pid in of_kind}


def cpu_since(cluster: RunningCluster, before: Mapping[int, float]) -> dict[str, float]:
    """Figures: CPU seconds since ``before`` of all brokers and of all voters that ran all along."""
    return {
        f"{kind}s CPU s": sum(cpu_seconds([pid]) - before[pid] for pid in of_kind if pid in before)
        for kind, of_kind in pids(cluster).items()
    }


def idle_cpu_percent(cluster: RunningCluster, seconds: float) -> dict[str, float]:
    """Figures: percent of a core of the busiest broker and of the busiest voter, for a while."""
    running, before = pids(cluster), cpu_by_pid(cluster)
    begun = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - begun
    return {
        f"{kind} CPU %": max(100 * (cpu_seconds([pid]) - before[pid]) / elapsed for pid in of_kind)
        for kind, of_kind in running.items()
    }


def memory_mb(cluster: RunningCluster) -> dict[str, float]:
    """Figures: RSS and PSS of the largest broker and of the largest voter."""
    figures: dict[str, float] = {}
    for kind, of_kind in pids(cluster).items():
        sizes = [memory(pid) for pid in of_kind]
        figures[f"{kind} RSS MB"] = max(size.rss_mb for size in sizes)
        figures[f"{kind} PSS MB"] = max(size.pss_mb for size in sizes)
    return figures
