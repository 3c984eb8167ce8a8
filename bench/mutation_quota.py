"""Measures what a storm of topics costs bystanders, with and without a mutation quota (KIP-599).

A client creates 5,000 topics of 4 partitions, or deletes them in one request, as fast as it is
let: 50 topics a request, 5 requests in flight. It is a new client, which honours the time that it
is told to wait and backs off, an eager one, which does not back off, or an old one, which does not
know the error and is muted. Meanwhile another client produces (acks=all, 50 batches a second) to 12
partitions, and asks for an election twice a second.
In the middle a broker that leads 10 partitions of others is killed: "killed: elected s" is from the
expiry of its session until every live broker tells clients of the new leaders. "queued" are the
events in the controller's queue. "by formula s" is what the quota alone makes of the storm:
(mutations - burst) / quota. ``--docs`` writes the table into docs/QUOTAS.md.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from bench._bystanders import BystandingProducer, ElectionsOnRequest
from bench._cluster_probe import ClusterProbe
from bench._controller_figures import QueueSampler, metrics_address, waits
from bench._kafka_load import in_own_process
from bench._kafka_producers import Stream
from bench._metadata_watch import MetadataWatch
from bench._mutation_quota_table import rewritten
from bench._storm_clients import CLIENT_ID, Change, Client, Storm, storm
from bench._support import Bench, Cell, median_row, percentile
from bench.peers.processes import cpu_seconds
from quorate.client.admin import AdminClient
from quorate.client.results import (
    ElectionType,
    NewTopic,
    PartitionName,
    QuotaAlteration,
    QuotaEntity,
)
from quorate.testing import RunningCluster, running_cluster

REPLICATION_FACTOR: Final = 3
LED: Final = ("led", 90)
PRODUCED: Final = ("produced", 12)
ELECTED: Final = "elected"
QUIET_S: Final = 10.0
TIMEOUT_S: Final = 300.0
PAGE: Final = Path(__file__).parents[1] / "docs/QUOTAS.md"


class Case(NamedTuple):
    """One row: which storm by which client, and its quota in partitions per second."""

    change: Change | None = None
    client: Client = "new"
    quota: int | None = None
    window_num: int = 11

    @property
    def columns(self) -> dict[str, Cell]:
        if self.change is None:
            return {"storm": "none"}
        quota: dict[str, Cell] = {"quota": "none"}
        if self.quota is not None:
            quota = {"quota": self.quota, "burst": self.burst}
        return {"storm": self.change, "client": self.client, **quota}

    @property
    def burst(self) -> int:
        return (self.quota or 0) * self.window_num


def cases(fast: int, slow: int) -> list[Case]:
    """All rows, for two quotas."""
    clients: tuple[Client, ...] = ("new", "old")
    return [
        Case(),
        *(Case("create", one) for one in clients),
        *(Case("create", one, quota) for quota in (fast, slow) for one in clients),
        Case("create", "eager", slow),
        Case("delete", "old"),
        *(Case("delete", one, slow) for one in clients),
        *(Case("create", one, fast, window_num=2) for one in clients),
    ]


class StormBesideOthers:
    """One cluster, with the topics of the bystanders; each storm leaves it as it was."""

    def __init__(self, cluster: RunningCluster, watch: MetadataWatch, plan: Storm) -> None:
        self._cluster = cluster
        self._watch = watch
        self._plan = plan
        self._controller = cluster.controller_id()
        others = [broker for broker in cluster.broker_ids if broker != self._controller]
        self._victim = others[-1]
        self._unharmed = [one for one in cluster.broker_ids if one != self._victim]

    def prepare(self) -> None:
        """Create the bystanders' topics; only one of them is to suffer from the kill."""
        replicas = [
            [self._unharmed[(first + one) % len(self._unharmed)] for one in range(3)]
            for first in range(PRODUCED[1])
        ]
        new = [
            NewTopic(name=LED[0], num_partitions=LED[1], replication_factor=REPLICATION_FACTOR),
            NewTopic(name=PRODUCED[0], assignments=replicas),
            NewTopic(name=ELECTED, assignments=[self._unharmed[:3]]),
        ]
        with self._admin() as admin:
            for result in admin.create_topics(new):
                result.raise_for_error()
        with self._probe(self._cluster.broker_ids) as probe:
            probe.until_accepting(dict((LED, PRODUCED, (ELECTED, 1))), TIMEOUT_S)

    def measure(self, case: Case) -> dict[str, float]:
        """One storm, and what it cost."""
        if case.change == "delete":
            self._storm(Case("create"))
        self._limit(case.quota)
        controller = self._cluster.broker_pid(self._controller)
        assert controller is not None, "the controller does not run"
        sampler = QueueSampler(metrics_address(self._cluster, self._controller))
        killed: list[dict[str, float]] = []
        killer = threading.Thread(target=lambda: killed.append(self._kill(case, sampler)))
        with (
            self._probe(self._unharmed) as probe,
            BystandingProducer(self._stream()) as producer,
            self._elections(probe) as elections,
        ):
            cpu_s, begun_s = cpu_seconds([controller]), time.monotonic()
            with sampler:
                killer.start()
                figures = self._storm(case)
                latencies_ms = producer.stop()
            killer.join()
            elapsed_s = time.monotonic() - begun_s
            cpu_s = cpu_seconds([controller]) - cpu_s
        figures |= {
            "killed: elected s": killed[0]["elected s"],
            "on request: elected p50 ms": percentile(elections.times_ms, 0.5),
            "on request: elected max ms": max(elections.times_ms),
            "produce p50 ms": percentile(latencies_ms, 0.5),
            "produce p99 ms": percentile(latencies_ms, 0.99),
            "queued max": max(one.queued for one in sampler.readings),
            **waits(sampler.readings[0], sampler.readings[-1], elapsed_s),
            "controller CPU %": 100 * cpu_s / elapsed_s,
        }
        self._clean_up()
        return figures

    def _storm(self, case: Case) -> dict[str, float]:
        if case.change is None:
            time.sleep(QUIET_S)
            return {}
        plan = replace(self._plan, change=case.change)
        if case.change == "delete":
            plan = replace(plan, topics_per_request=len(plan.topics))
        seen = in_own_process(storm, self._cluster.bootstrap, case.client, plan)
        figures = seen.figures()
        figures["partitions/s"] = plan.mutations / seen.elapsed_s
        if case.quota is not None:
            figures["by formula s"] = max(0, plan.mutations - case.burst) / case.quota
        return figures

    def _kill(self, case: Case, sampler: QueueSampler) -> dict[str, float]:
        if case.change == "create":
            sampler.wait_for_change(self._plan.mutations // 2, TIMEOUT_S)
        elif case.change == "delete":
            time.sleep(1.0)
        else:
            time.sleep(QUIET_S / 2)
        killed_s = time.time()
        self._cluster.kill_broker(self._victim)
        expired = self._watch.wait_for(
            "expired", self._victim, since_s=killed_s, timeout_s=TIMEOUT_S
        )
        with self._probe(self._unharmed) as probe:
            told_s = probe.until_told(
                [LED[0]],
                lambda _, leaders: bool(leaders) and not {-1, self._victim} & set(leaders),
                TIMEOUT_S,
            )
        return {"elected s": told_s - expired.at_s}

    def _clean_up(self) -> None:
        self._limit(None)
        with self._admin() as admin:
            there = set(self._plan.topics).intersection(admin.list_topics())
            for result in admin.delete_topics(sorted(there)):
                result.raise_for_error()
            self._cluster.restart_broker(self._victim)
            self._cluster.wait_until(
                lambda: not self._cluster.status().under_replicated_partitions,
                "all replicas to be in sync",
                timeout_ms=int(TIMEOUT_S * 1000),
            )
            admin.elect_leaders(ElectionType.PREFERRED)
        assert self._cluster.controller_id() == self._controller, "the controller has changed"

    def _limit(self, quota: int | None) -> None:
        alteration = QuotaAlteration(
            QuotaEntity(client_id=CLIENT_ID), {"controller_mutation_rate": quota}
        )
        with self._admin() as admin:
            admin.alter_client_quotas([alteration])[0].raise_for_error()

    def _admin(self) -> AdminClient:
        return AdminClient(self._cluster.bootstrap, timeout_ms=int(TIMEOUT_S * 1000))

    def _probe(self, brokers: Sequence[int]) -> ClusterProbe:
        return ClusterProbe({one: self._cluster.broker_address(one) for one in brokers})

    def _stream(self) -> Stream:
        topic, partitions = PRODUCED
        return Stream(
            self._cluster.bootstrap,
            topic,
            partitions,
            "all",
            records_per_batch=10,
            record_bytes=100,
        )

    def _elections(self, probe: ClusterProbe) -> ElectionsOnRequest:
        replicas = self._unharmed[:REPLICATION_FACTOR]
        return ElectionsOnRequest(
            self._cluster.bootstrap, PartitionName(topic=ELECTED, partition=0), replicas, probe
        )


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Mutation quota",
        "what a storm of topics costs others, with and without a quota",
        arguments,
        writes_page=True,
    )
    plan = Storm(
        change="create",
        topics=[f"storm-{number:05}" for number in range(bench.pick(full=5_000, quick=300))],
        topics_per_request=bench.pick(full=50, quick=10),
        in_flight=5,
        partitions=4,
        replication_factor=REPLICATION_FACTOR,
    )
    brokers, voters = bench.pick(full=(9, 3), quick=(4, 1))
    wanted = cases(*bench.pick(full=(1_000, 250), quick=(100, 50)))
    for window_num, of_window in groupby(wanted, lambda case: case.window_num):
        with running_cluster(
            brokers=brokers, voters=voters, controller_quota_window_num=window_num
        ) as cluster:
            addresses = [cluster.voter_grpc_address(voter) for voter in cluster.voter_ids]
            with MetadataWatch(addresses, cluster.quorum_security()) as watch:
                one = StormBesideOthers(cluster, watch, plan)
                one.prepare()
                for case in of_window:
                    samples = [one.measure(case) for _ in range(bench.repetitions)]
                    bench.row(case.columns, median_row(samples))
    if bench.writes_page:
        PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), bench.rows), encoding="utf-8")
    bench.finish()


if __name__ == "__main__":
    main()
