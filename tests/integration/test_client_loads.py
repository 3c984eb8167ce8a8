"""Every load of the bench of clients measures a running cluster, and says what it should."""

import pytest

from bench.client_loads.bare_fetch import BareFetch
from bench.client_loads.few_records import EndToEnd, ManyProducers
from bench.client_loads.java_tools import JavaEndToEnd, JavaProducer
from bench.client_loads.librdkafka import Saturated, Transactional
from bench.client_loads.load import Load, Target
from bench.peers.contender import Unavailable
from bench.peers.kafka import fetched_kafka
from bench.produce_matrix.systems import QUORATE, System
from bench.produce_matrix.workload import KIB, Workload
from quorate.testing.pytest_plugin import ClusterFactory

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]


def measure_each(quorate_cluster: ClusterFactory, loads: list[Load]) -> None:
    cluster = quorate_cluster(brokers=1)
    broker = cluster.broker_pid(1)
    assert broker is not None
    system = System(QUORATE, cluster.bootstrap, [broker])
    for load in loads:
        system.create_topic(load.name, Workload(partitions=load.partitions, replicas=1))
        figures = load.measure(Target(cluster.bootstrap, load.name, [broker]))
        assert 0 < figures["p50 ms"] <= figures["p99 ms"]
        cost = "servers CPU s/GB" if "MB/s" in figures else "servers CPU us/record"
        assert figures[cost] > 0
        if "MB/s" in figures:
            value_bytes = figures["MB/s"] * 1e6 / figures["records/s"]
            assert value_bytes == pytest.approx(100 if "100b" in load.name else 1_000)


def test_loads_by_librdkafka_and_bare_requests(quorate_cluster: ClusterFactory) -> None:
    loads: list[Load] = [
        Saturated("librdkafka-100b", 0.3, record_bytes=100, batch_bytes=16 * KIB, partitions=3),
        Saturated("idempotent", 0.3, 1_000, 64 * KIB, {"enable.idempotence": True}, partitions=3),
        Transactional(0.3, records=10, partitions=3),
        ManyProducers(1.0, producers=3, partitions=3),
        EndToEnd(records=10, partitions=3),
        BareFetch(0.3, partitions=1, megabytes=4),
        BareFetch(0.3, partitions=3, megabytes=4),
    ]
    measure_each(quorate_cluster, loads)


def test_loads_by_the_tools_of_kafka(quorate_cluster: ClusterFactory) -> None:
    try:
        java = fetched_kafka()
    except Unavailable as missing:
        pytest.skip(str(missing))
    loads: list[Load] = [
        JavaProducer(java, record_bytes=100, batch_bytes=16 * KIB, records=20_000, partitions=3),
        JavaEndToEnd(java, record_bytes=100, records=100, partitions=3),
    ]
    measure_each(quorate_cluster, loads)
