"""Spark and transactions of real producers: rows are those of committed ones."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(300)]

RECORDS = 40
"""Of each transaction, in two partitions."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture
def topic(cluster: RunningCluster) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name=name, num_partitions=2)])[0].raise_for_error()
    return name


class Sender:
    """A transactional producer; each transaction's records say how it ends."""

    def __init__(self, cluster: RunningCluster, topic: str) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": uuid.uuid4().hex}
        self._producer = Producer(settings)
        self._topic = topic
        self._producer.init_transactions(60)

    def begin(self, says: str) -> None:
        self._producer.begin_transaction()
        for number in range(RECORDS):
            self._producer.produce(self._topic, says.encode(), partition=number % 2)
        assert self._producer.flush(30) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(60)

    def abort(self) -> None:
        self._producer.abort_transaction(60)


def read(spark: SparkSession, cluster: RunningCluster, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, **options}
    frame = spark.read.format("quorate").options(**given).schema("value binary").load()
    return frame.selectExpr("CAST(value AS STRING) AS says").groupBy("says").count()


def counted(frame: DataFrame) -> dict[str, int]:
    return {row.says: row["count"] for row in frame.collect()}


def test_d2_a_query_reads_committed_transactions(
    spark: SparkSession, cluster: RunningCluster, topic: str
) -> None:
    sender, other = Sender(cluster, topic), Sender(cluster, topic)
    for _ in range(3):
        sender.begin("committed")
        other.begin("aborted")
        sender.commit()
        other.abort()
    assert counted(read(spark, cluster, topic)) == {"committed": 3 * RECORDS}
    other.begin("open")
    sender.begin("behind it")
    sender.commit()
    assert counted(read(spark, cluster, topic)) == {"committed": 3 * RECORDS}
    everything = read(spark, cluster, topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert counted(everything) == {
        "committed": 3 * RECORDS,
        "aborted": 3 * RECORDS,
        "open": RECORDS,
        "behind it": RECORDS,
    }
    other.abort()
    assert counted(read(spark, cluster, topic)) == {
        "committed": 3 * RECORDS,
        "behind it": RECORDS,
    }


@pytest.mark.slow
def test_d2_a_stream_waits_for_what_is_open(
    spark: SparkSession, cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    sender, other = Sender(cluster, topic), Sender(cluster, topic)

    def run() -> dict[str, int]:
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        reader = spark.readStream.format("quorate").options(**options).schema("value binary")
        writing = (
            reader.load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        assert writing.trigger(availableNow=True).start().awaitTermination(120)
        found: dict[str, int] = {}
        for value in pq.read_table(tmp_path / "out").column("value").to_pylist():
            found[value.decode()] = found.get(value.decode(), 0) + 1
        return found

    sender.begin("committed")
    sender.commit()
    other.begin("late")
    sender.begin("behind it")
    sender.commit()
    assert run() == {"committed": RECORDS}
    other.commit()
    assert run() == {"committed": RECORDS, "late": RECORDS, "behind it": RECORDS}
    other.begin("aborted")
    other.abort()
    assert run() == {"committed": RECORDS, "late": RECORDS, "behind it": RECORDS}
