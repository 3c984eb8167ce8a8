"""The produce benchmark measures a running cluster as it says, by a client in its own process."""

from dataclasses import replace

import pytest

from bench._kafka_load import in_own_process
from bench.produce_matrix.measure import Durations, measure
from bench.produce_matrix.systems import QUORATE, System
from bench.produce_matrix.workload import ROWS
from quorate.testing.pytest_plugin import ClusterFactory

BRIEF = Durations(warm_up=0.05, full_speed=0.2, half_load=0.2, one_in_flight=0.1)


@pytest.mark.slow
def test_one_measurement_of_each_batch_size_and_codec(quorate_cluster: ClusterFactory) -> None:
    cluster = quorate_cluster(brokers=1)
    broker = cluster.broker_pid(1)
    assert broker is not None
    system = System(QUORATE, cluster.bootstrap, [broker])
    for number, row in enumerate((ROWS[0], ROWS[1], replace(ROWS[1], codec="lz4"))):
        workload = replace(row, replicas=1, partitions=3)
        system.create_topic(f"t{number}", workload)
        figures = in_own_process(
            measure, cluster.bootstrap, f"t{number}", workload, system.pids, BRIEF
        )
        system.delete_topic(f"t{number}")
        bytes_per_s = figures["records/s"] * workload.record_bytes
        assert figures["MB/s"] == pytest.approx(bytes_per_s / 1e6)
        p50, p99, worst = (figures[f"p{name} ms, half load"] for name in ("50", "99", "99.9"))
        assert 0 < p50 <= p99 <= worst
        assert figures["consume MB/s"] > 0
        assert figures["PSS MB"] > 10
