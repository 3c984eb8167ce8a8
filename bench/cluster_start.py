"""Measures how long a cluster takes to start: of a test, forked and with its processes started; and
by ``quorate up``, from the command to its end, with the memory of its processes at rest.

CPU seconds are of all voters and brokers, and of the fork servers, until the cluster is up. Memory
is the proportional share (PSS): what processes share is divided among them.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench._support import Bench, median_row
from bench.peers.processes import cpu_seconds, descendants
from quorate.cluster.fork_server.fork_servers import close_fork_servers
from quorate.testing import running_cluster

WAYS: Final = {"forked": True, "started": False}
REST_S: Final = 2.0
"""The time for which a cluster is left alone before its memory is looked at."""


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Start of a cluster", "until running_cluster gives it out", arguments
    )
    for nodes in bench.pick(full=(1, 3), quick=(1,)):
        close_fork_servers()
        case = {"voters": nodes, "brokers": nodes}
        bench.row({**case, "way": "forked, first"}, measure(nodes, forked=True))
        samples: dict[str, list[Mapping[str, float]]] = {way: [] for way in WAYS}
        for _ in range(bench.repetitions):
            for way, forked in WAYS.items():
                samples[way].append(measure(nodes, forked=forked))
        for way, figures in samples.items():
            bench.row({**case, "way": way}, median_row(figures))
        ups = [measure_up(nodes) for _ in range(bench.repetitions)]
        bench.row({**case, "way": "quorate up"}, median_row(ups))
    close_fork_servers()
    bench.finish()


def measure(nodes: int, *, forked: bool) -> dict[str, float]:
    """Start a cluster of as many voters as brokers once."""
    spent_before = cpu_seconds(descendants())
    began = time.monotonic()
    with running_cluster(brokers=nodes, voters=nodes, forked=forked):
        seconds = time.monotonic() - began
        spent = cpu_seconds(descendants()) - spent_before
    return {"s": seconds, "CPU s": spent}


def measure_up(nodes: int) -> dict[str, float]:
    """Start a cluster of as many voters as brokers once by ``quorate up --detach``."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = ["--quorum", str(nodes), "--brokers", str(nodes), "--port", "0"]
        began = time.monotonic()
        state = json.loads(_quorate("up", "--data", folder, *sizes, "--detach", "--json"))
        seconds = time.monotonic() - began
        time.sleep(REST_S)
        memory = {
            "broker PSS MB": _mean_pss_mb(state["brokers"]),
            "voter PSS MB": _mean_pss_mb(state["quorum"]),
        }
        _quorate("down", "--data", folder)
    return {"s": seconds, **memory}


def _quorate(*words: str) -> bytes:
    command = [sys.executable, "-P", "-m", "quorate.cli.main", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def _mean_pss_mb(nodes: Sequence[Mapping[str, Any]]) -> float:
    found = [_pss_kb(node["pid"]) for node in nodes]
    return sum(found) / len(found) / 1000


def _pss_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
