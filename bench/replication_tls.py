"""Measures what mutual TLS between brokers costs replication: the same load with it and in plain
text.

CPU seconds per gigabyte are steadier than throughput while others use the machine.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from bench._kafka_load import in_own_process
from bench._kafka_producers import Stream, produce
from bench._nodes import cpu_by_pid, cpu_since
from bench._support import Bench, percentile
from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster

PARTITIONS = 6
RECORD_BYTES = 1_000
RECORDS_PER_BATCH = 64
BATCHES_IN_FLIGHT = 32
GB = 1e9

PLAIN: Mapping[str, object] = {"security.protocol": "PLAINTEXT"}


class Case:
    """Produces with acks=all to a topic of its own per repetition."""

    def __init__(self, bench: Bench, cluster: RunningCluster) -> None:
        self._bench = bench
        self._cluster = cluster
        self._repetition = 0

    def measure(self) -> dict[str, float]:
        self._repetition += 1
        topic = f"t{self._repetition}"
        with self._cluster.admin() as admin:
            new = NewTopic(name=topic, num_partitions=PARTITIONS, replication_factor=3)
            admin.create_topics([new])[0].raise_for_error()
        stream = Stream(
            bootstrap=self._cluster.bootstrap,
            topic=topic,
            partitions=PARTITIONS,
            acks="all",
            records_per_batch=RECORDS_PER_BATCH,
            record_bytes=RECORD_BYTES,
        )
        before = cpu_by_pid(self._cluster)
        found = in_own_process(
            produce,
            stream,
            seconds=self._bench.pick(full=3.0, quick=0.5),
            in_flight=BATCHES_IN_FLIGHT,
        )
        used = cpu_since(self._cluster, before)
        with self._cluster.admin() as admin:
            admin.delete_topics([topic])[0].raise_for_error()
        gigabytes = found.batches * stream.payload_bytes / GB
        return {
            "produce MB/s": gigabytes * 1000 / found.elapsed_s,
            "ack p50 ms": percentile(found.latencies_ms, 0.5),
            "ack p99 ms": percentile(found.latencies_ms, 0.99),
            "brokers CPU s/GB": used["brokers CPU s"] / gigabytes,
        }


@contextmanager
def both(flush: str) -> Iterator[dict[str, RunningCluster]]:
    """Two clusters side by side, one of them idle at a time: they see the same machine."""
    with ExitStack() as clusters:
        yield {
            name: clusters.enter_context(
                running_cluster(brokers=3, voters=1, config={"log.flush": flush, **config})
            )
            for name, config in (("plain text", PLAIN), ("mutual TLS", {}))
        }


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Replication under TLS",
        "1 KB records, 64 KiB batches, acks=all, RF 3, 6 partitions, 3 brokers, 1 client",
        arguments,
    )
    for flush in ("os", "sync"):
        with both(flush) as clusters:
            for name, cluster in clusters.items():
                row = {"flush": flush, "between brokers": name}
                bench.row(row, bench.repeat(Case(bench, cluster).measure))
    bench.finish()


if __name__ == "__main__":
    main()
