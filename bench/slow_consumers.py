"""Measures what idle, slow, deaf and very large clients cost a broker, and the clients beside them.

One broker and one well-behaved producer; the others come one kind at a time, then all together.
``p99 x quiet`` is the producer's p99 over that of the same seconds without them; memory is what
the broker holds beyond what it held before anyone came, at most; ``bound`` is what is configured
for requests and answers together.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Final

from bench._hostile_clients import (
    DEAF_CLIENTS,
    IDLE_CONNECTIONS,
    SLOW_CONSUMERS,
    Kind,
    hostile,
)
from bench._kafka_load import in_own_process
from bench._kafka_producers import Producers, Sent, Stream
from bench._support import Bench, median_row, percentile
from bench.peers.processes import cpu_seconds
from quorate.broker.config.listeners import QUEUED_MAX_REQUEST_BYTES, QUEUED_MAX_RESPONSE_BYTES
from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster

TOPIC: Final = "bench"
PARTITIONS: Final = 6
RECORDS_PER_BATCH: Final = 64
RECORD_BYTES: Final = 1_000
BATCHES_PER_S: Final = 160.0
"""10 MB/s: what a broker has much room above."""
FILLED_S: Final = 2.0
BOUND_MB: Final = (
    (QUEUED_MAX_REQUEST_BYTES.default or 0) + (QUEUED_MAX_RESPONSE_BYTES.default or 0)
) / 1e6
MEMORY_EVERY_S: Final = 0.05

QUIET: Final = "none"
SCENARIOS: Final[dict[str, tuple[Kind, ...]]] = {
    QUIET: (),
    f"{IDLE_CONNECTIONS:,} idle": ("idle",),
    f"{SLOW_CONSUMERS} slow consumers": ("slow",),
    f"{DEAF_CLIENTS} that never read": ("deaf",),
    "requests of 100 MB": ("large",),
    "all of these": ("idle", "slow", "deaf", "large"),
}


class PeakMemory:
    """The most memory a process held that is not of its files: heaps, and mappings of no file."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._status = Path(f"/proc/{pid}/status")
        self.peak_mb = self.now_mb()

    def now_mb(self) -> float:
        """Return the memory that the process holds; nothing once it has ended."""
        if not self._status.exists():
            return 0.0
        fields = dict(line.split(":", 1) for line in self._status.read_text().splitlines())
        counted = [fields[name] for name in ("RssAnon", "RssShmem") if name in fields]
        kilobytes = sum(int(value.split()[0]) for value in counted)
        return kilobytes * 1024 / 1e6

    @contextmanager
    def watched(self, at_most_mb: float = inf) -> Iterator[None]:
        """Look often while this is open; kill the process if it holds more than ``at_most_mb``."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(MEMORY_EVERY_S):
                now_mb = self.now_mb()
                self.peak_mb = max(self.peak_mb, now_mb)
                if now_mb > at_most_mb:
                    os.kill(self._pid, signal.SIGKILL)
                    return

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def produce_gently(stream: Stream, seconds: float) -> Sent:
    """A producer's usual work; it had connected before."""
    producers = Producers(stream, 1)
    producers.touch()
    return producers.send(seconds=seconds, in_flight=1_000, batches_per_s=BATCHES_PER_S)


def fill(stream: Stream) -> Sent:
    """Something to consume."""
    return Producers(stream, 1).send(seconds=FILLED_S, in_flight=32)


class Case:
    """Measures the scenarios in turn; the ratio is to the one without hostile clients."""

    def __init__(self, cluster: RunningCluster, scenarios: Sequence[str], seconds: float) -> None:
        self._scenarios = scenarios
        pid = cluster.broker_pid(1)
        assert pid is not None
        self._pid = pid
        self._address = cluster.broker_address(1)
        self._seconds = seconds
        self._stream = Stream(
            cluster.bootstrap, TOPIC, PARTITIONS, "all", RECORDS_PER_BATCH, RECORD_BYTES
        )
        with cluster.admin() as admin:
            new = NewTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
            admin.create_topics([new])[0].raise_for_error()
        in_own_process(fill, self._stream)
        in_own_process(produce_gently, self._stream, 1.0)
        self._base_mb = PeakMemory(pid).now_mb()

    def measure(self) -> dict[str, dict[str, float]]:
        """Figures by scenario."""
        found = {name: self._one(SCENARIOS[name]) for name in self._scenarios}
        quiet = found[QUIET]
        for figures in found.values():
            figures["p99 x quiet"] = figures["p99 ms"] / quiet["p99 ms"]
        return found

    def _one(self, kinds: Sequence[Kind]) -> dict[str, float]:
        memory = PeakMemory(self._pid)
        with memory.watched(), hostile(kinds, self._address, TOPIC, PARTITIONS):
            begin, cpu_s = time.perf_counter(), cpu_seconds([self._pid])
            sent = in_own_process(produce_gently, self._stream, self._seconds)
            cores = (cpu_seconds([self._pid]) - cpu_s) / (time.perf_counter() - begin)
        return {
            "p50 ms": percentile(sent.latencies_ms, 0.5),
            "p99 ms": percentile(sent.latencies_ms, 0.99),
            "p99.9 ms": percentile(sent.latencies_ms, 0.999),
            "broker CPU %": 100 * cores,
            "more memory MB": memory.peak_mb - self._base_mb,
            "bound MB": BOUND_MB,
        }


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Slow consumers",
        f"1 broker, a producer of {BATCHES_PER_S * RECORDS_PER_BATCH / 1000:.0f} MB/s, acks=all",
        arguments,
        selectable=True,
    )
    wanted = f"*{bench.pattern or ''}*"
    scenarios = [name for name in SCENARIOS if name == QUIET or fnmatchcase(name, wanted)]
    with running_cluster(forked=False) as cluster:
        case = Case(cluster, scenarios, bench.pick(full=6.0, quick=2.0))
        samples = [case.measure() for _ in range(bench.repetitions)]
    for name in scenarios:
        bench.row({"other clients": name}, median_row([sample[name] for sample in samples]))
    bench.finish()


if __name__ == "__main__":
    main()
