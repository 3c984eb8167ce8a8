"""Streaming queries as a Spark user runs them, against brokers inside this process."""

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from tests.support.fake_range_cluster import FakeRangeCluster
from tests.support.record_batches import Record

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Place = tuple[int, int]
"""Partition and offset."""


@pytest.fixture
def cluster() -> Iterator[FakeRangeCluster]:
    with FakeRangeCluster() as running:
        fill(running, 0, 100)
        fill(running, 1, 40)
        yield running


def fill(cluster: FakeRangeCluster, partition: int, count: int) -> None:
    """The partition has so many records, some of which it may have had before."""
    headers = (("h", b"1"),)
    batches = [
        [Record(n, value=b"%d-%d" % (partition, n), headers=headers) for n in range(at, at + 10)]
        for at in range(0, count, 10)
    ]
    cluster.add("orders", partition, batches, leader=partition % 2)


def reader_of(
    spark: SparkSession, cluster: FakeRangeCluster, **options: object
) -> DataStreamReader:
    given = {"subscribe": "orders", **options}
    return (
        spark.readStream.format("quorate")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .options(**{key: str(value) for key, value in given.items()})
    )


def run(writer: DataStreamWriter, folder: Path) -> StreamingQuery:
    """Run the query over what there is, with the checkpoint in ``folder``."""
    query = (
        writer.option("checkpointLocation", f"file://{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def to_files(frame: DataFrame, folder: Path) -> StreamingQuery:
    return run(frame.writeStream.format("parquet").option("path", f"file://{folder}/out"), folder)


def in_files(spark: SparkSession, folder: Path) -> Counter[Place]:
    """How often each offset is in what the file sink has committed."""
    rows = spark.read.parquet(f"file://{folder}/out").select("partition", "offset").collect()
    return Counter((row.partition, row.offset) for row in rows)


def each_once(*counts: int) -> Counter[Place]:
    return Counter({(p, n): 1 for p, count in enumerate(counts) for n in range(count)})


def rows_by_batch(query: StreamingQuery) -> list[int]:
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_d2_each_offset_once_over_restarts_and_new_partitions(
    spark: SparkSession, cluster: FakeRangeCluster, tmp_path: Path
) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 60, "includeHeaders": True}
    query = to_files(reader_of(spark, cluster, **options).load(), tmp_path)
    assert rows_by_batch(query) == [60, 60, 20]
    assert in_files(spark, tmp_path) == each_once(100, 40)
    (last,) = query.recentProgress[-1].sources
    offsets = json.loads(last.endOffset)
    assert offsets["orders"] == {"0": 100, "1": 40} == json.loads(last.latestOffset)["orders"]
    fill(cluster, 1, 50)
    fill(cluster, 2, 30)
    # startingOffsets is for new queries only: the checkpoint goes before it.
    options = {"startingOffsets": "latest", "minPartitions": 8, "includeHeaders": True}
    to_files(reader_of(spark, cluster, **options).load(), tmp_path)
    assert in_files(spark, tmp_path) == each_once(100, 50, 30)
    columns = ["partition", "offset", "value", "headers"]
    for row in pq.read_table(tmp_path / "out", columns=columns).to_pylist():
        assert row["value"] == b"%d-%d" % (row["partition"], row["offset"])
        assert row["headers"] == [{"key": "h", "value": b"1"}]


def test_d2_a_first_batch_that_failed_is_repeated_from_where_it_started(
    spark: SparkSession, cluster: FakeRangeCluster, tmp_path: Path
) -> None:
    seen: list[list[Place]] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        seen.append(sorted((row.partition, row.offset) for row in batch.collect()))
        if len(seen) == 1:
            raise RuntimeError("the driver fails")

    def attempt() -> None:
        reader = reader_of(spark, cluster, startingOffsets="latest-10")
        frame = reader.schema("offset bigint, partition int").load()
        run(frame.writeStream.foreachBatch(take), tmp_path)

    with pytest.raises(StreamingQueryException, match="the driver fails"):
        attempt()
    fill(cluster, 0, 120)
    attempt()
    first = [*((0, n) for n in range(90, 100)), *((1, n) for n in range(30, 40))]
    assert seen == [first, first, [(0, n) for n in range(100, 120)]]


@pytest.mark.slow
def test_another_checkpoint_is_refused(
    spark: SparkSession, cluster: FakeRangeCluster, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/metadata").write_text(f'{{"id":"{uuid.uuid4()}"}}')
    metadata = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'
    written = tmp_path / "checkpoint/offsets/0"
    written.parent.mkdir()
    written.write_text(f'v1\n{metadata}\n{{"orders":{{"0":23,"1":7}}}}')
    with pytest.raises(StreamingQueryException, match="look like those of Spark's Kafka source"):
        to_files(reader_of(spark, cluster).load(), tmp_path)
