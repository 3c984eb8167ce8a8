"""`quorate pipeline` with a real cluster and a real Spark: what a reader of Parquet finds."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from quorate.client.results import NewTopic
from quorate.pipeline.execution import execute
from quorate.pipeline.pipeline_config import PipelineConfig, parse_config
from quorate.pipeline.pipeline_errors import PipelineError, SinkError, TransformError
from quorate.pipeline.run_setup import admin_of
from quorate.pipeline.sink import Sink
from quorate.pipeline.sink_files import HadoopFiles
from quorate.tables.iceberg_table import open_catalog
from quorate.testing import RunningCluster, running_cluster

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(300)]

PARTITIONS = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster() as running:
        yield running


def produce(cluster: RunningCluster, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(records):
        producer.produce(topic, b"v%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def config_of(cluster: RunningCluster, name: str, folder: Path, **keys: object) -> PipelineConfig:
    return parse_config(
        {
            "name": name,
            "source.kafka.bootstrap.servers": cluster.bootstrap,
            "source.subscribe": name,
            "source.maxOffsetsPerTrigger": 400,
            "sink.path": str(folder),
            **keys,
        }
    )


def seen(folder: Path) -> list[tuple[int, int, int]]:
    """Partition, offset and size of the value, sorted."""
    dataset: Any = ds.dataset(folder, format="parquet", partitioning="hive")
    table = dataset.to_table(columns=["partition", "offset", "size"])
    return sorted(zip(*(table[one].to_pylist() for one in table.column_names), strict=True))


def expected(records: int) -> list[tuple[int, int, int]]:
    return sorted((n % PARTITIONS, n // PARTITIONS, len(f"v{n}")) for n in range(records))


class Killed(BaseException):
    """As kill -9: nobody clears up."""


def test_a_pipeline_killed_in_mid_move_is_made_good_by_the_next_run(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name="lake", num_partitions=PARTITIONS)])
    produce(cluster, "lake", 600)
    sql = "SELECT *, length(value) AS size FROM records"
    config = config_of(cluster, "lake", tmp_path, **{"transform.sql": sql})
    moves = 0
    move = HadoopFiles.move

    def move_and_die(self: HadoopFiles, source: str, target: str) -> None:
        nonlocal moves
        move(self, source, target)
        moves += 1
        if moves == 3:
            raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(HadoopFiles, "move", move_and_die)
        dying.setattr(Sink, "abandon", lambda *_: None)
        with pytest.raises(Killed):
            execute(config, spark)
    assert len(seen(tmp_path)) > 400, "a batch, and a part of the next that is not committed"
    summary = execute(config, spark, take_over=True)
    assert (summary.rows, summary.batches) == (200, 1)
    assert seen(tmp_path) == expected(600)
    with admin_of(config) as admin:
        (pipeline,) = admin.describe_pipelines(["lake"])
        assert (pipeline.topics[0].offsets, pipeline.rows, pipeline.alive) == (
            (300, 300),
            600,
            False,
        )
        admin.begin_pipeline_run("lake", owner="else", lease_ms=60_000, sink=pipeline.sink)
    monkeypatch.setattr("quorate.pipeline.run_setup.BEGIN_INTERVAL_S", -100.0)
    with pytest.raises(PipelineError, match=r"a run of pipeline lake is alive \(else"):
        execute(config, spark)


def test_folders_are_named_by_the_columns_that_are_chosen(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name="folders", num_partitions=PARTITIONS)])
    produce(cluster, "folders", 100)
    keys = {
        "transform.sql": "SELECT *, length(value) AS size FROM records",
        "sink.partition.by": "hour(timestamp),day(timestamp),identity(size)",
    }
    execute(config_of(cluster, "folders", tmp_path, **keys), spark)
    assert seen(tmp_path) == expected(100)
    rows = spark.read.parquet(str(tmp_path))
    ((day, hour, timestamp),) = rows.select(
        "timestamp_day", "timestamp_hour", F.col("timestamp").cast("long")
    ).take(1)
    at = datetime.fromtimestamp(timestamp, UTC)
    assert (str(day), hour) == (f"{at:%Y-%m-%d}", f"{at:%Y-%m-%d-%H}")
    innermost = {one.parent.name for one in tmp_path.glob("topic=*/**/*.parquet")}
    assert innermost == {"size=2", "size=3"}
    with pytest.raises(SinkError, match="lie by topic, partition, timestamp_hour"):
        execute(config_of(cluster, "folders", tmp_path), spark)


def test_what_cannot_go_well_is_told_before_anything_is_read(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    config = config_of(cluster, "none", tmp_path)
    with pytest.raises(PipelineError, match="the cluster has no topic none"):
        execute(config, spark)
    for sql, told in (
        ("SELECT nonsense FROM records", "transform.sql: .*nonsense"),
        ("SELECT value FROM records", "transform.sql drops topic, partition, offset, timestamp"),
    ):
        with pytest.raises(TransformError, match=told):
            execute(config_of(cluster, "none", tmp_path, **{"transform.sql": sql}), spark)
    for path in ("/proc/nothing", "nosuch://lake/x"):
        with pytest.raises(SinkError, match=r"sink .*: "):
            execute(config_of(cluster, "none", Path(path)), spark)


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_executors_write_tables_and_the_driver_commits_them(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path, format_: str
) -> None:
    name = f"lake-{format_}"
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name=name, num_partitions=PARTITIONS)])
    produce(cluster, name, 500)
    keys = {
        "transform.sql": "SELECT *, length(value) AS size FROM records",
        "sink.format": format_,
        "sink.table": "t",
        "sink.partition.by": "identity(partition),day(timestamp)",
    }
    config = config_of(cluster, name, tmp_path / "t", **keys)
    summary = execute(config, spark)
    assert (summary.rows, summary.batches) == (500, 2)
    assert config.table is not None
    if format_ == "iceberg":
        table = open_catalog(config.table).load_table(config.table.identifier).scan().to_arrow()
    else:
        table = DeltaTable(str(tmp_path / "t")).to_pyarrow_table()
    columns = [table[one].to_pylist() for one in ("partition", "offset", "size")]
    assert sorted(zip(*columns, strict=True)) == expected(500)
    assert execute(config, spark).batches == 0
