"""Measures what the processes of a Spark session cost: the JVM, and the executor's Python
workers."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.peers.processes import cpu_seconds, descendants, memory

JVM: Final = "JVM"
WORKERS: Final = "Python workers"
_MARKS: Final = {
    JVM: ("org.apache.spark.deploy.SparkSubmit",),
    # The JVM's own command line has the name of the daemon's module too, as a setting.
    WORKERS: ("-m\0pyspark.daemon", "-m\0quorate.spark.worker_daemon"),
}
_SAMPLE_S: Final = 0.02


def spark_pids() -> dict[str, list[int]]:
    """The descendants of this process that are Spark's, by kind."""
    commands = {pid: _read(Path(f"/proc/{pid}/cmdline")) for pid in descendants()}
    return {
        kind: [pid for pid, command in commands.items() if any(one in command for one in marks)]
        for kind, marks in _MARKS.items()
    }


class CpuClock:
    """CPU seconds of Spark's processes, and of ``others`` by name, since the start."""

    def __init__(self, others: Mapping[str, int]) -> None:
        self._others = others
        self._before = self._now()

    def elapsed(self) -> dict[str, float]:
        """Return the CPU seconds by kind of process; a worker that has started since counts
        whole."""
        return {
            f"{kind} CPU s": sum(
                seconds - self._before.get(kind, {}).get(pid, 0.0) for pid, seconds in now.items()
            )
            for kind, now in self._now().items()
        }

    def _now(self) -> dict[str, dict[int, float]]:
        pids = {**spark_pids(), **{name: [pid] for name, pid in self._others.items()}}
        return {kind: {pid: cpu_seconds([pid]) for pid in alive} for kind, alive in pids.items()}


@contextmanager
def largest_rss_mb() -> Iterator[dict[str, float]]:
    """Fills in, at its end, the most that one process of each kind held meanwhile."""
    largest = dict.fromkeys((JVM, WORKERS), 0.0)
    done = threading.Event()

    def sample() -> None:
        while not done.is_set():
            for kind, pids in spark_pids().items():
                largest[kind] = max([largest[kind], *map(_rss_mb, pids)])
            time.sleep(_SAMPLE_S)

    sampler = threading.Thread(target=sample, name="largest-rss")
    sampler.start()
    try:
        yield largest
    finally:
        done.set()
        sampler.join()


def _rss_mb(pid: int) -> float:
    try:
        return memory(pid).rss_mb
    except (OSError, ValueError):
        return 0.0


def _read(path: Path) -> str:
    """Return a file of ``/proc``, or nothing if its process has just ended."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
