"""Measures how long a cluster of a test takes to start: forked, and with its processes started.

CPU seconds are of all voters and brokers, and of the fork servers, until the cluster is up.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from bench._support import Bench, median_row
from bench.peers.processes import cpu_seconds, descendants
from quorate.testing import running_cluster
from quorate.testing.fork_server.fork_servers import close_fork_servers

WAYS: Final = {"forked": True, "started": False}


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


if __name__ == "__main__":
    main()
