"""Throughput and latency of a three-broker cluster under an unmodified Kafka client.

Brokers, quorum and client share this machine: the figures say what the whole costs, not what one
broker could do alone.
"""

from collections.abc import Sequence
from itertools import product

from bench._kafka_load import Produced, ProduceLoad, consume, in_own_process, produce
from bench._support import Bench
from quorate.client.admin import AdminClient
from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster

PARTITIONS = 6
PACED_MB_S = 5.0
"""Load at which latency is the system's own and not that of a full queue."""

BATCHES = {"64 KiB": (64 << 10, 32), "1 MiB": (1 << 20, 8)}
"""Name → size in bytes, and how many of them may be on their way."""


class Case:
    """One row: a topic of its own per repetition, so that every one starts empty."""

    def __init__(self, bench: Bench, cluster: RunningCluster, replicas: int, batch: str) -> None:
        self._bench = bench
        self._cluster = cluster
        self._replicas = replicas
        self._batch_bytes, self._in_flight = BATCHES[batch]
        self._repetition = 0
        self._name = f"rf{replicas}-{batch.replace(' ', '').lower()}"

    def measure(self) -> dict[str, float]:
        """Produce at full speed, consume it, and produce again at a gentle pace."""
        self._repetition += 1
        topic = f"{self._name}-{self._repetition}"
        with AdminClient(self._cluster.bootstrap) as admin:
            new = NewTopic(name=topic, num_partitions=PARTITIONS, replication_factor=self._replicas)
            admin.create_topics([new])[0].raise_for_error()
            full = self._produce(topic, self._bench.pick(full=512 << 20, quick=64 << 20), 0.0)
            consumed = in_own_process(
                consume, self._cluster.bootstrap, topic, PARTITIONS, full.records
            )
            seconds = self._bench.pick(full=4, quick=2)
            paced = self._produce(topic, int(PACED_MB_S * 1e6) * seconds, PACED_MB_S)
            admin.delete_topics([topic])[0].raise_for_error()
        return {
            "produce MB/s": full.megabytes_per_second,
            "ack p50 ms": full.p50_ms,
            "ack p99 ms": full.p99_ms,
            f"p50 ms at {PACED_MB_S:g} MB/s": paced.p50_ms,
            f"p99 ms at {PACED_MB_S:g} MB/s": paced.p99_ms,
            "consume MB/s": consumed,
        }

    def _produce(self, topic: str, total_bytes: int, rate_mb_s: float) -> Produced:
        load = ProduceLoad(
            bootstrap=self._cluster.bootstrap,
            topic=topic,
            partitions=PARTITIONS,
            total_bytes=total_bytes,
            batch_bytes=self._batch_bytes,
            batches_in_flight=self._in_flight,
            rate_mb_s=rate_mb_s,
        )
        return in_own_process(produce, load)


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Produce and consume",
        "1 KB records, acks=all, 6 partitions, 3 brokers, 1 client",
        arguments,
    )
    for flush in ("sync", "os"):
        with running_cluster(brokers=3, voters=3, config={"log.flush": flush}) as cluster:
            for replicas, batch in product((1, 3), BATCHES):
                case = Case(bench, cluster, replicas, batch)
                bench.row(
                    {"flush": flush, "RF": replicas, "batch": batch}, bench.repeat(case.measure)
                )
    bench.finish()


if __name__ == "__main__":
    main()
