"""A broker is killed, then the controller: how long 10,000 partitions have no leader.

Times are from the expiry of the session, as a watcher of the metadata log hears of it: what comes
before is ``broker.session.timeout.ms``, or about a second after a closed connection. "published":
every live broker tells its Kafka clients of the new leaders. "accepting": every partition took a
record with acks=all. "INIT": the new controller has had an answer to INIT and to all metadata from
every live broker. The original design: 4 ms per write to ZooKeeper, 40 s.
"""

import asyncio
import re
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import uvloop

from bench._cluster_probe import ClusterProbe
from bench._metadata_watch import MetadataWatch
from bench._support import Bench
from bench.peers.contender import LEAVES, Unavailable, leaf_key, leaf_value
from bench.peers.processes import cpu_seconds
from bench.peers.zookeeper import ZooKeeperCluster, find_zookeeper
from quorate.client.admin import AdminClient
from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster

BROKERS: Final = 3
PARTITIONS_PER_TOPIC: Final = 100
TIMEOUT_S: Final = 120.0
TOPICS_PER_REQUEST: Final = 10

_INIT_TOLD: Final = re.compile(r"^(\S+ \S+) .*INIT and all metadata told to (\d+) brokers")


class Failover:
    """One cluster, filled once; brokers are killed and come back."""

    def __init__(self, cluster: RunningCluster, watch: MetadataWatch, topics: int) -> None:
        self._cluster = cluster
        self._watch = watch
        self._topics = {f"topic-{number:03}": PARTITIONS_PER_TOPIC for number in range(topics)}

    def create(self) -> dict[str, float]:
        """Make the partitions and write to each."""
        names = list(self._topics)
        begun_s = time.time()
        with AdminClient(self._cluster.bootstrap, timeout_ms=int(TIMEOUT_S * 1000)) as admin:
            for first in range(0, len(names), TOPICS_PER_REQUEST):
                new = [
                    NewTopic(name=name, num_partitions=PARTITIONS_PER_TOPIC, replication_factor=3)
                    for name in names[first : first + TOPICS_PER_REQUEST]
                ]
                for result in admin.create_topics(new):
                    result.raise_for_error()
        created_s = time.time()
        with self._probe() as probe:
            accepting_s = probe.until_accepting(self._topics, TIMEOUT_S)
        return {"created s": created_s - begun_s, "accepting s": accepting_s - created_s}

    def kill_broker(self) -> dict[str, float]:
        """Kill the broker that leads most and is not the controller."""
        self._until_whole()
        controller = self._cluster.controller_id()
        with self._probe() as probe:
            led = [leader for of in probe.leaders(list(self._topics)).values() for leader in of]
        victim = max((b for b in self._cluster.broker_ids if b != controller), key=led.count)
        pid = self._cluster.broker_pid(controller)
        assert pid is not None, "the controller does not run"
        cpu_s = cpu_seconds([pid])
        killed_s = time.time()
        self._cluster.kill_broker(victim)
        expired_s = self._expired(victim, killed_s)
        with self._probe(without=victim) as probe:
            published_s = probe.until_told(
                list(self._topics), lambda _, leaders: has_leaders(leaders, victim), TIMEOUT_S
            )
            accepting_s = probe.until_accepting(self._topics, TIMEOUT_S)
        cpu_s = cpu_seconds([pid]) - cpu_s
        self._cluster.restart_broker(victim)
        return {
            "kill to expiry s": expired_s - killed_s,
            "published s": published_s - expired_s,
            "accepting s": accepting_s - expired_s,
            "leaders lost": led.count(victim),
            "controller CPU s": cpu_s,
        }

    def kill_controller(self) -> dict[str, float]:
        """Kill the controller, which leads as much as any other."""
        self._until_whole()
        victim = self._cluster.controller_id()
        killed_s = time.time()
        self._cluster.kill_broker(victim)
        expired_s = self._expired(victim, killed_s)
        elected = self._watch.wait_for_any("elected", since_s=expired_s, timeout_s=TIMEOUT_S)
        told_s = self._init_told(elected.broker_id, since_s=expired_s)
        with self._probe(without=victim) as probe:
            accepting_s = probe.until_accepting(self._topics, TIMEOUT_S)
        self._cluster.restart_broker(victim)
        return {
            "kill to expiry s": expired_s - killed_s,
            "elected s": elected.at_s - expired_s,
            "INIT s": told_s - expired_s,
            "accepting s": accepting_s - expired_s,
        }

    def _expired(self, victim: int, since_s: float) -> float:
        return self._watch.wait_for("expired", victim, since_s=since_s, timeout_s=TIMEOUT_S).at_s

    def _init_told(self, controller: int, since_s: float) -> float:
        """When the controller's log says that all brokers have answered."""
        deadline = time.time() + TIMEOUT_S
        while time.time() < deadline:
            for line in self._cluster.broker_log(controller, lines=2_000):
                found = _INIT_TOLD.match(line)
                if found is None:
                    continue
                at_s = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()
                if at_s >= since_s:
                    return at_s
            time.sleep(0.05)
        raise TimeoutError(f"broker {controller} did not say that it told everyone")

    def _until_whole(self) -> None:
        """All brokers live, nothing under-replicated."""

        def is_whole() -> bool:
            status = self._cluster.status()
            known = len(status.brokers) == BROKERS
            return known and not status.under_replicated_partitions

        timeout_ms = int(TIMEOUT_S * 1000)
        self._cluster.wait_until(is_whole, "all replicas to be in sync", timeout_ms=timeout_ms)
        time.sleep(1)

    def _probe(self, without: int = 0) -> ClusterProbe:
        ids = [broker_id for broker_id in self._cluster.broker_ids if broker_id != without]
        return ClusterProbe({one: self._cluster.broker_address(one) for one in ids})


def has_leaders(leaders: Sequence[int], dead: int) -> bool:
    """Whether every partition has a leader, and another one than the dead."""
    return bool(leaders) and -1 not in leaders and dead not in leaders


async def zookeeper_writes() -> dict[str, float]:
    """The same 10,000 states: one after another, all in flight at once, and as one multi.

    Raises:
        Unavailable: not installed.
    """
    installation = find_zookeeper()
    states = [(leaf_key(number), leaf_value(number, 1)) for number in range(LEAVES)]
    with tempfile.TemporaryDirectory(prefix="zookeeper-") as folder:
        ensemble = ZooKeeperCluster(Path(folder), installation)
        try:
            await ensemble.start()
            await ensemble.create_leaves(LEAVES)
            client = await ensemble.connect_raw()
            begun_s = time.perf_counter()
            for state in states:
                await client.set_data(*state)
            singly_s = time.perf_counter()
            await asyncio.gather(*(client.set_data(*state) for state in states))
            at_once_s = time.perf_counter()
            await client.set_all(states)
            multi_s = time.perf_counter()
            await client.close()
        finally:
            await ensemble.stop()
    return {
        "singly s": singly_s - begun_s,
        "all in flight s": at_once_s - singly_s,
        "one multi s": multi_s - at_once_s,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Controller failover", "kill -9 with 10,000 partitions on 3 brokers, RF 3", arguments
    )
    topics = bench.pick(full=10_000, quick=1_000) // PARTITIONS_PER_TOPIC
    for voters in bench.pick(full=(3, 1), quick=(1,)):
        with running_cluster(brokers=BROKERS, voters=voters) as cluster:
            addresses = [cluster.voter_grpc_address(voter) for voter in cluster.voter_ids]
            with MetadataWatch(addresses, cluster.quorum_security()) as watch:
                failover = Failover(cluster, watch, topics)
                case = {"voters": voters, "partitions": topics * PARTITIONS_PER_TOPIC}
                bench.row({**case, "step": "created"}, failover.create())
                bench.row({**case, "step": "broker killed"}, bench.repeat(failover.kill_broker))
                bench.row(
                    {**case, "step": "controller killed"}, bench.repeat(failover.kill_controller)
                )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            figures = bench.repeat(lambda: runner.run(zookeeper_writes()))
    except Unavailable as missing:
        print(f"ZooKeeper is left out: {missing}", flush=True)
    else:
        bench.row({"partitions": LEAVES, "step": "ZooKeeper writes the states"}, figures)
    bench.finish()


if __name__ == "__main__":
    main()
