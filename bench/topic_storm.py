"""KIP-599's experiment: 5,000 topics created at 10 requests of 50 per second, deleted in one.

9 brokers, 4 partitions per topic, replication factor 3, an unmodified Kafka admin client. "until
accepting": from the last request until every partition has taken a record with acks=all. "until
gone": from the request until no broker's log knows any of the partitions. The KIP's brokers took
about 120 s for each, and everything else waited meanwhile. So the whole is done a second time, and
a broker is killed in the middle of each: "election s" is from the expiry of its session until
every live broker tells clients of the new leaders of other topics that it led.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import lmdb

from bench._cluster_probe import ClusterProbe
from bench._kafka_load import in_own_process
from bench._metadata_watch import MetadataWatch
from bench._nodes import cpu_by_pid, cpu_since, idle_cpu_percent, memory_mb
from bench._support import Bench, median_row, percentile
from bench._topic_load import Storm, create, delete
from quorate.client.admin import AdminClient
from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster

FULL: Final = Storm(
    requests=100, topics_per_request=50, partitions=4, replication_factor=3, interval_s=0.1
)
QUICK: Final = Storm(
    requests=10, topics_per_request=20, partitions=4, replication_factor=3, interval_s=0.1
)
BYSTANDERS: Final = {"bystander": 90}
"""Partitions by topic that the storm leaves alone: their leaders wait for an election."""

TIMEOUT_S: Final = 300.0
SETTLE_S: Final = 5.0
POLL_S: Final = 0.05


class StormOnCluster:
    """One storm, from the first creation to the last deletion."""

    def __init__(self, cluster: RunningCluster, watch: MetadataWatch, storm: Storm) -> None:
        self._cluster = cluster
        self._watch = watch
        self._storm = storm
        self._dead = 0

    def prepare(self) -> None:
        """Make the bystanders."""
        with AdminClient(self._cluster.bootstrap) as admin:
            new = [
                NewTopic(name=name, num_partitions=count, replication_factor=3)
                for name, count in BYSTANDERS.items()
            ]
            for result in admin.create_topics(new):
                result.raise_for_error()
        with self._probe() as probe:
            probe.until_accepting(BYSTANDERS, TIMEOUT_S)

    def create(self) -> dict[str, float]:
        """Create the topics, and measure from the last request until every partition takes
        records."""
        before = cpu_by_pid(self._cluster)
        sent = in_own_process(create, self._cluster.bootstrap, self._storm)
        topics = dict.fromkeys(self._storm.topics, self._storm.partitions)
        with self._probe() as probe:
            accepting_s = probe.until_accepting(topics, TIMEOUT_S)
        return {
            "until accepting s": accepting_s - sent.last_sent_s,
            "answer p50 ms": percentile(sent.latencies_ms, 0.5),
            "answer max ms": max(sent.latencies_ms),
            **cpu_since(self._cluster, before),
        }

    def delete(self) -> dict[str, float]:
        """Delete the topics, and measure from the one request until the data is gone."""
        before = cpu_by_pid(self._cluster)
        sent = in_own_process(delete, self._cluster.bootstrap, self._storm.topics)
        deadline = time.time() + TIMEOUT_S
        while any(map(self._has_more_than_bystanders, self._live())):
            if time.time() > deadline:
                raise TimeoutError("the data of deleted topics is still there")
            time.sleep(POLL_S)
        return {
            "until gone s": time.time() - sent.last_sent_s,
            "answer max ms": max(sent.latencies_ms),
            **cpu_since(self._cluster, before),
        }

    def idle(self, seconds: float) -> dict[str, float]:
        """Measure what the replicas cost while nothing happens."""
        time.sleep(SETTLE_S)
        replicas = max(partitions_on_disk(self._folder(broker)) for broker in self._live())
        cpu = idle_cpu_percent(self._cluster, seconds)
        return {"replicas": replicas, **memory_mb(self._cluster), **cpu}

    def with_a_broker_killed(
        self, work: Callable[[], dict[str, float]], after_s: float
    ) -> dict[str, float]:
        """The figures of ``work``, and how long the bystanders of the killed waited for leaders."""
        controller = self._cluster.controller_id()
        victim = next(broker for broker in self._live() if broker != controller)
        election: list[dict[str, float]] = []

        def kill() -> None:
            election.append(self._kill(victim))

        timer = threading.Timer(after_s, kill)
        timer.start()
        try:
            figures = work()
        finally:
            timer.join()
        (elected,) = election
        self._cluster.restart_broker(victim)
        self._dead = 0
        self._cluster.wait_until(
            lambda: not self._cluster.status().under_replicated_partitions,
            "all replicas to be in sync",
            timeout_ms=int(TIMEOUT_S * 1000),
        )
        return {**figures, **elected}

    def _kill(self, victim: int) -> dict[str, float]:
        self._dead = victim
        killed_s = time.time()
        self._cluster.kill_broker(victim)
        expired = self._watch.wait_for("expired", victim, since_s=killed_s, timeout_s=TIMEOUT_S)
        with self._probe() as probe:
            told_s = probe.until_told(
                list(BYSTANDERS),
                lambda _, leaders: bool(leaders) and not {-1, victim}.intersection(leaders),
                TIMEOUT_S,
            )
        return {"expiry s": expired.at_s - killed_s, "election s": told_s - expired.at_s}

    def _has_more_than_bystanders(self, broker: int) -> bool:
        return partitions_on_disk(self._folder(broker)) > sum(BYSTANDERS.values())

    def _live(self) -> list[int]:
        return [broker for broker in self._cluster.broker_ids if broker != self._dead]

    def _probe(self) -> ClusterProbe:
        return ClusterProbe({one: self._cluster.broker_address(one) for one in self._live()})

    def _folder(self, broker: int) -> Path:
        return self._cluster.folder / f"broker-{broker}"


def partitions_on_disk(folder: Path) -> int:
    """Partitions that a broker's log folder knows, deleted ones no longer."""
    with lmdb.open(
        str(folder / "store.mdb"), subdir=False, readonly=True, max_dbs=4, create=False
    ) as environment:
        partitions = environment.open_db(b"partitions", create=False)
        with environment.begin(partitions) as transaction:
            return int(transaction.stat(partitions)["entries"])


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Topic storm", "many topics created at once, and deleted in one request", arguments
    )
    storm = bench.pick(full=FULL, quick=QUICK)
    brokers = bench.pick(full=9, quick=4)
    case = {"brokers": brokers, "topics": len(storm.topics)}
    in_the_middle_s = storm.requests * storm.interval_s / 2
    with running_cluster(brokers=brokers, voters=1, forked=False) as cluster:
        addresses = [cluster.voter_grpc_address(voter) for voter in cluster.voter_ids]
        with MetadataWatch(addresses, cluster.quorum_security()) as watch:
            one = StormOnCluster(cluster, watch, storm)
            one.prepare()
            created, deleted = [], []
            for repetition in range(bench.repetitions):
                created.append(one.create())
                if not repetition:
                    idle = one.idle(bench.pick(full=20.0, quick=5.0))
                    bench.row({**case, "step": "idle"}, idle)
                deleted.append(one.delete())
            bench.row({**case, "step": "create"}, median_row(created))
            bench.row({**case, "step": "delete"}, median_row(deleted))
            killed = one.with_a_broker_killed(one.create, in_the_middle_s)
            bench.row({**case, "step": "create, a broker killed"}, killed)
            killed = one.with_a_broker_killed(one.delete, 0.0)
            bench.row({**case, "step": "delete, a broker killed"}, killed)
    bench.finish()


if __name__ == "__main__":
    main()
