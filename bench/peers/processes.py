"""Processes of a peer's cluster: started, killed and stopped by pid, and what they cost."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

START_TIMEOUT_S: Final = 60.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_LAST_LOG_BYTES: Final = 3_000


class Memory(NamedTuple):
    """The memory of one process in MB: resident, and its proportional share of what it maps with
    others."""

    rss_mb: float
    pss_mb: float


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of the processes so far, of all their threads together."""
    return sum(_cpu_ticks(pid) for pid in pids) / _TICKS_PER_S


def descendants() -> list[int]:
    """Return the processes that run below this one, parents before their children."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # The process has just ended.
            children.setdefault(int(_fields_of(stat)[1]), []).append(int(stat.parent.name))
    found = [os.getpid()]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def own_cpu_seconds() -> float:
    """The same of this process: the client."""
    return time.process_time()


def memory(pid: int) -> Memory:
    """RSS and PSS of a running process."""
    kilobytes = dict.fromkeys(("Rss", "Pss"), 0)
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in kilobytes:
            kilobytes[name] = int(value.split()[0])
    return Memory(kilobytes["Rss"] / 1000, kilobytes["Pss"] / 1000)


def fdatasync_ms(folder: Path, times: int = 100) -> float:
    """Median time to sync 4 KiB appended to a file in ``folder``: the least a write can take."""
    durations_s = []
    with (folder / "sync").open("ab", buffering=0) as file:
        for _ in range(times):
            file.write(bytes(4096))
            started = time.perf_counter()
            os.fdatasync(file)
            durations_s.append(time.perf_counter() - started)
    return statistics.median(durations_s) * 1000


class NodeProcesses:
    """The nodes of one cluster, by number from 1; each logs to ``node-N.log`` in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> dict[int, int]:
        return {node: process.pid for node, process in self.running.items()}

    def start(
        self, node: int, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        with self._log(node).open("ab") as output:
            self.running[node] = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env={**os.environ, **(environment or {})},
            )

    def kill(self, node: int) -> None:
        """kill -9."""
        process = self.running.pop(node)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """SIGTERM to all, SIGKILL to who stays."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running.clear()

    def wait_until(self, what: str, ready: Callable[[], bool]) -> None:
        """Poll ``ready``.

        Raises:
            RuntimeError: a node exited, or not within ``START_TIMEOUT_S``; with the logs' ends.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready():
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {START_TIMEOUT_S:g} s: {what}\n{self.logs()}")
            if any(process.poll() is not None for process in self.running.values()):
                raise RuntimeError(f"a node exited, before: {what}\n{self.logs()}")
            time.sleep(0.02)

    def logs(self) -> str:
        """The end of each node's log, for an error message."""
        return "\n".join(
            f"--- node {node}\n{self._log(node).read_text(errors='replace')[-_LAST_LOG_BYTES:]}"
            for node in self.running
        )

    def _log(self, node: int) -> Path:
        return self.folder / f"node-{node}.log"


def _cpu_ticks(pid: int) -> int:
    fields = _fields_of(Path(f"/proc/{pid}/stat"))
    return int(fields[11]) + int(fields[12])


def _fields_of(stat: Path) -> list[str]:
    """Return what ``/proc/PID/stat`` tells after the name of the process, which may hold spaces."""
    return stat.read_text(errors="replace").rpartition(")")[2].split()
