"""Measures what registered brokers cost the voters while nothing happens.

The cost is that of sessions, keep-alives and watches.
"""

import tempfile
import time
from pathlib import Path
from typing import Final

from bench._stub_sessions import stub_sessions
from bench._support import Bench
from bench.peers.processes import cpu_seconds, memory
from tests.support.quorum_cluster import QuorumCluster

SETTLE_S: Final = 5.0


def main() -> None:
    bench = Bench.from_command_line(
        "Idle brokers", "three voters; brokers that register, keep sessions alive and watch"
    )
    seconds = bench.pick(full=20.0, quick=10.0)
    for brokers in bench.pick(full=(0, 100, 1_000), quick=(0, 1_000)):
        with tempfile.TemporaryDirectory() as folder, QuorumCluster(Path(folder)) as quorum:
            if not brokers:
                bench.row({"brokers": brokers}, measured(quorum, seconds))
                continue
            with stub_sessions(quorum.address(quorum.wait_for_leader()), brokers):
                time.sleep(SETTLE_S)
                bench.row({"brokers": brokers}, bench.repeat(lambda: measured(quorum, seconds)))
    bench.finish()


def measured(quorum: QuorumCluster, seconds: float) -> dict[str, float]:
    """Figures of the leader and of the busiest follower: percent of a core for a while."""
    leader = quorum.wait_for_leader()
    before = cpu_by_voter(quorum)
    begun = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - begun
    used = {one: cpu - before[one] for one, cpu in cpu_by_voter(quorum).items()}
    status = quorum.status(leader)
    assert status is not None, "the leader no longer answers"
    assert status.leader_id == leader, "the leader changed meanwhile"
    return {
        "sessions": status.sessions,
        "leader, % of a core": 100 * used.pop(leader) / elapsed,
        "follower, % of a core": 100 * max(used.values()) / elapsed,
        "leader RSS MB": memory(quorum.processes[leader].pid).rss_mb,
    }


def cpu_by_voter(quorum: QuorumCluster) -> dict[int, float]:
    """CPU seconds so far."""
    return {one: cpu_seconds([process.pid]) for one, process in quorum.processes.items()}


if __name__ == "__main__":
    main()
