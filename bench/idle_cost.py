"""Measures what 1,000 partitions cost when nothing is produced: CPU time and memory of every
process."""

from collections.abc import Sequence
from typing import Final

from bench._cluster_probe import ClusterProbe
from bench._nodes import idle_cpu_percent, memory_mb
from bench._support import Bench
from quorate.client.admin import AdminClient
from quorate.client.results import NewTopic
from quorate.testing import running_cluster

TOPICS: Final = {f"idle-{number}": 100 for number in range(10)}
TIMEOUT_S: Final = 60.0


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Idle cost", "3 brokers, 3 voters, no traffic; the busiest and the largest", arguments
    )
    seconds = bench.pick(full=20.0, quick=5.0)
    with running_cluster(brokers=3, voters=3, forked=False) as cluster:
        bench.row({"partitions": 0}, {**idle_cpu_percent(cluster, seconds), **memory_mb(cluster)})
        with AdminClient(cluster.bootstrap) as admin:
            new = [
                NewTopic(name=name, num_partitions=count, replication_factor=3)
                for name, count in TOPICS.items()
            ]
            for result in admin.create_topics(new):
                result.raise_for_error()
        with ClusterProbe({b: cluster.broker_address(b) for b in cluster.broker_ids}) as probe:
            probe.until_accepting(TOPICS, TIMEOUT_S)
        figures = bench.repeat(lambda: idle_cpu_percent(cluster, seconds))
        bench.row({"partitions": sum(TOPICS.values())}, {**figures, **memory_mb(cluster)})
    bench.finish()


if __name__ == "__main__":
    main()
