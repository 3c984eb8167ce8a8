"""Measures what a second broker on a host brings, and what memory brokers of one host take.

Each broker may use a part of a core, so that this machine has room for the client; the part is the
same with one broker per host and with two. Where processes cannot be limited so, only the time per
gigabyte is compared.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final, NamedTuple

from bench._cpu_limits import can_limit, limited
from bench._hosts import forked_hosts, memory_of_host
from bench._support import Bench, Cell, median_row
from bench.client_loads.bare_fetch import BareFetch
from bench.client_loads.librdkafka import Saturated
from bench.client_loads.load import PARTITIONS, Figures, Load, Target
from bench.produce_matrix.systems import System
from bench.produce_matrix.workload import Workload
from quorate.testing import RunningCluster, running_cluster

KIB: Final = 1024
PRODUCE: Final = "produce 1000 B, 16 KiB"
FETCH: Final = "bare fetch"
IN_FLIGHT_BYTES: Final = 2 << 20
SETTLE_S: Final = 4.0
Case = dict[str, Cell]
ONE_HOST: Final = (1, 0.15)
THREE_HOSTS: Final = (3, 0.12)
"""The number of hosts, which is that of replicas, and the part of a core that a broker may use."""


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Brokers per host", "memory at rest, and throughput by brokers per host", arguments
    )
    for brokers in bench.pick(full=(1, 2, 3, 4), quick=(2,)):
        measure_memory(bench, brokers)
    limits = can_limit()
    if not limits:
        print("processes cannot be limited here: only their time is compared", flush=True)
    for hosts, share in (ONE_HOST, THREE_HOSTS):
        with (
            running_hosts(hosts, 1, share if limits else None) as one,
            running_hosts(hosts, 2, share if limits else None) as two,
        ):
            compare(bench, PRODUCE, (one, two))
            if hosts == 1:
                # Leaders alone serve reads: with more hosts the client is what is measured.
                compare(bench, FETCH, (one, two))
    bench.finish()


def measure_memory(bench: Bench, brokers: int) -> None:
    """Measure idle brokers of one host: each started by itself, and all forked from one process."""
    with running_cluster(brokers=brokers, brokers_per_host=brokers, forked=False) as cluster:
        case: Case = {"load": "none", "hosts": 1, "brokers": str(brokers)}
        time.sleep(SETTLE_S)
        pids = [pid for one in cluster.broker_ids if (pid := cluster.broker_pid(one)) is not None]
        bench.row({**case, "way": "started"}, memory_of_host(pids, []))
        with forked_hosts(cluster, brokers) as (host,):
            time.sleep(SETTLE_S)
            figures = memory_of_host(host.broker_pids, [host.process.pid])
            bench.row({**case, "way": "forked"}, figures)


class Hosts(NamedTuple):
    """A running cluster of so many hosts, with the processes of its brokers."""

    cluster: RunningCluster
    hosts: int
    brokers_per_host: int
    pids: Sequence[int]
    share: float | None
    """The part of a core that each broker may use; None is no limit."""


@contextmanager
def running_hosts(hosts: int, brokers_per_host: int, share: float | None) -> Iterator[Hosts]:
    """Run a cluster whose brokers are forked, and limited to ``share`` of a core each."""
    with (
        running_cluster(
            brokers=hosts * brokers_per_host,
            brokers_per_host=brokers_per_host,
            log_flush="os",
            forked=False,
        ) as cluster,
        forked_hosts(cluster, brokers_per_host) as forked,
    ):
        pids = [pid for host in forked for pid in host.broker_pids]
        with nullcontext() if share is None else limited(pids, share):
            yield Hosts(cluster, hosts, brokers_per_host, pids, share)


def compare(bench: Bench, name: str, both: Sequence[Hosts]) -> None:
    """Measure one load by turns with one and with two brokers per host, so that whatever else the
    machine does meets both."""
    samples: list[list[Figures]] = [[] for _ in both]
    for number in range(1 + bench.repetitions):
        for measured, hosts in zip(samples, both, strict=True):
            load = load_of(name, hosts.brokers_per_host, quick=bench.quick)
            measured.append(measure(hosts, load, f"{load.name}-{number}"))
    # The first samples warm the brokers up.
    one, two = (median_row(measured[1:]) for measured in samples)
    for hosts, figures in zip(both, (one, two), strict=True):
        case: Case = {"load": name, "hosts": hosts.hosts, "brokers": str(hosts.brokers_per_host)}
        bench.row(case, {**figures, **used_percent(figures, hosts)})
    case = {"load": name, "hosts": both[0].hosts, "brokers": "2 : 1"}
    bench.row(case, gain(one, two, limited=both[0].share is not None))


def load_of(name: str, brokers_per_host: int, *, quick: bool) -> Load:
    """A load in which brokers work more than the client does. For each broker there are as many
    partitions and bytes in flight, however many there are."""
    seconds = 2.0 if quick else 4.0
    partitions = PARTITIONS * brokers_per_host
    if name == FETCH:
        return BareFetch(seconds, partitions, megabytes=64)
    in_flight = IN_FLIGHT_BYTES * brokers_per_host
    return Saturated("produce", seconds, 1_000, 16 * KIB, {}, partitions, in_flight)


def measure(hosts: Hosts, load: Load, topic: str) -> Figures:
    """Run a load once, with a topic of its own, of as many replicas as there are hosts."""
    system = System("quorate", hosts.cluster.bootstrap, list(hosts.pids))
    system.create_topic(topic, Workload(partitions=load.partitions, replicas=hosts.hosts))
    time.sleep(1.0)
    figures = load.measure(Target(hosts.cluster.bootstrap, topic, tuple(hosts.pids)))
    system.delete_topic(topic)
    return {name: figures[name] for name in ("MB/s", "p99 ms", "servers CPU s/GB")}


def used_percent(figures: Figures, hosts: Hosts) -> Figures:
    """Return the part of their CPU limit that the brokers used, in percent.

    Near 100 the brokers are what is measured, and not the client.
    """
    if hosts.share is None:
        return {}
    used_cores = figures["MB/s"] * figures["servers CPU s/GB"] / 1000
    return {"of their CPU %": used_cores / (hosts.share * len(hosts.pids)) * 100}


def gain(one: Figures, two: Figures, *, limited: bool) -> Figures:
    """Return the throughput of two brokers per host divided by that of one.

    "x measured" compares MB/s, "x by CPU" the CPU time of the servers per gigabyte.
    """
    by_time = 2 * one["servers CPU s/GB"] / two["servers CPU s/GB"]
    measured = {"x measured": two["MB/s"] / one["MB/s"]} if limited else {}
    return {**measured, "x by CPU": by_time}


if __name__ == "__main__":
    main()
