"""Runs the brokers of a cluster host by host, as in production, and measures their memory."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.peers.processes import memory
from quorate.testing import RunningCluster

_START_TIMEOUT_S: Final = 60.0
_MAPPING: Final = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)")


class ForkedHost:
    """The process that forks the brokers of one host: ``quorate node brokers``."""

    def __init__(self, cluster: RunningCluster, broker_ids: Sequence[int]) -> None:
        files = [cluster.folder / "config" / f"broker-{number}.toml" for number in broker_ids]
        words = [word for file in files for word in ("--config", str(file))]
        with (cluster.folder / "logs" / f"host-of-{broker_ids[0]}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "quorate.cli.main", "node", "brokers", *words],
                stdout=log,
                stderr=log,
            )

    @property
    def broker_pids(self) -> list[int]:
        """The process ids of the brokers that run."""
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@contextmanager
def forked_hosts(cluster: RunningCluster, brokers_per_host: int) -> Iterator[list[ForkedHost]]:
    """Stop all brokers of the cluster, and run them forked, host by host, until the end.

    Raises:
        RuntimeError: they are not all registered in time.
    """
    ids = cluster.broker_ids
    before = {broker.id: broker.epoch for broker in cluster.status().brokers}
    for broker_id in ids:
        cluster.stop_broker(broker_id)
    hosts: list[ForkedHost] = []
    try:
        for host in zip(*[iter(ids)] * brokers_per_host, strict=True):
            hosts.append(ForkedHost(cluster, host))  # noqa: PERF401 - each is to be stopped
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not _are_new(cluster, before):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the brokers {ids} are not all registered")
            time.sleep(0.1)
        yield hosts
    finally:
        for started in hosts:
            started.stop()


def _are_new(cluster: RunningCluster, before: Mapping[int, int]) -> bool:
    from quorate.client.errors import QuorateError

    try:
        status = cluster.status()
    except QuorateError:
        return False
    new = {broker.id for broker in status.brokers if broker.epoch > before[broker.id]}
    return new == set(before) and status.controller_id in new


def memory_of_host(broker_pids: Sequence[int], parents: Sequence[int]) -> dict[str, float]:
    """Figures: the largest broker's PSS as the kernel has it, and as if this host ran nothing else.

    The second one shares files with ``broker_pids`` and ``parents`` only: a bench, tests and voters
    that run beside them map the same libraries, and make the first one smaller. The third one is
    that of all these processes together, divided by the number of brokers.
    """
    processes = [*broker_pids, *parents]
    files = {pid: _file_mb(pid) for pid in processes}
    alone = {
        pid: _anonymous_mb(pid)
        + sum(
            resident / sum(name in others for others in files.values())
            for name, resident in files[pid].items()
        )
        for pid in processes
    }
    return {
        "RSS MB": max(memory(pid).rss_mb for pid in broker_pids),
        "PSS MB": max(memory(pid).pss_mb for pid in broker_pids),
        "PSS alone MB": max(alone[pid] for pid in broker_pids),
        "all / brokers MB": sum(alone.values()) / len(broker_pids),
    }


def _anonymous_mb(pid: int) -> float:
    """The process's share of memory that is no file's: its own, and what a fork left in common."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kb) for kb in re.findall(r"^Pss_Anon: +(\d+)", rollup, re.MULTILINE)) / 1000


def _file_mb(pid: int) -> Mapping[str, float]:
    """Return the resident megabytes of each mapped file, without pages that were written to."""
    found: dict[str, float] = {}
    name = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        mapping = _MAPPING.fullmatch(line)
        if mapping is not None:
            name = mapping[1]
        elif name.startswith("/"):
            key, _, value = line.partition(":")
            if key in ("Rss", "Anonymous"):
                sign = 1 if key == "Rss" else -1
                found[name] = found.get(name, 0.0) + sign * int(value.split()[0]) / 1000
    return found
