"""A table service whose large batches are read and written by executors of Spark."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer

from quorate.client.results import NewTopic
from quorate.spark.java_home import use_java
from quorate.testing import RunningCluster, running_cluster
from tests.support.spark_cluster import spark_cluster
from tests.support.waiting import wait_until
from tests.tables.campaign import Service
from tests.tables.readers import iceberg_rows

RECORDS, PARTITIONS = 600_000, 4
PATIENCE_S = 400.0
"""Two sessions of Spark are started, which takes minutes on a busy machine."""

pytestmark = [
    pytest.mark.slow, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(1_200)
]  # fmt: skip


@contextmanager
def master_of(kind: str, folder: Path) -> Iterator[str]:
    if kind != "standalone":
        yield kind
        return
    use_java()
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    home = Path(pyspark.__file__).parent
    with spark_cluster(home, environment, folder / "spark", workers=1) as url:
        yield url


def produce(cluster: RunningCluster, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50})
    for number in range(count):
        while True:
            try:
                producer.produce("rows", b"%d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


@pytest.mark.parametrize("kind", ["standalone", "local[2]"])
def test_executors_write_large_batches_and_the_service_small_ones(
    kind: str, tmp_path: Path
) -> None:
    with running_cluster() as cluster, master_of(kind, tmp_path) as master:
        configs = {"table.format": "iceberg", "table.commit.interval.ms": "200"}
        with cluster.admin() as admin:
            topic = NewTopic(
                name="rows", num_partitions=PARTITIONS, replication_factor=1, configs=configs
            )
            admin.create_topics([topic])[0].raise_for_error()
        produce(cluster, RECORDS)
        log, warehouse = tmp_path / "a.log", tmp_path / "warehouse"
        service = Service(cluster, warehouse, "a", log, "--master", master)
        try:
            service.start("after table commit", 1)
            wait_until(lambda: not service.is_alive, "its death", timeout_s=PATIENCE_S)
            service.start()
            _until_done(cluster, RECORDS)
            produce(cluster, 10)
            _until_done(cluster, RECORDS + 10)
        finally:
            service.stop()
        found = iceberg_rows(warehouse, "rows")
    assert found.total() == len(found) == RECORDS + 10
    values = Counter(value for _, _, value in found)
    assert all(values[b"%d" % number] == 1 + (number < 10) for number in range(RECORDS))
    assert f"Spark reads and writes {RECORDS} offsets" in log.read_text()
    assert "Spark reads and writes 10 offsets" not in log.read_text()
    if kind == "standalone":
        assert list((tmp_path / "spark").glob("worker-0/app-*/0/stderr")), "an executor has run"


def _until_done(cluster: RunningCluster, records: int) -> None:
    def done() -> int:
        with cluster.admin() as admin:
            [state] = admin.describe_pipelines(["table.rows"])
        return sum(offset for topic in state.topics for offset in topic.offsets)

    wait_until(lambda: done() == records, f"{records} records in the table", timeout_s=PATIENCE_S)
