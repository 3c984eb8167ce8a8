"""Tables over topics, and topics named by a path."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from quorate.common.topic_partition import TopicPartition
from quorate.spark.offset_ranges import DescribedTopic, OffsetRange
from quorate.tables.lake_table import TableCommit
from quorate.tables.local_rows import LocalRows
from quorate.tables.open_table import open_table
from quorate.tables.partitioning import parse_partitioning
from quorate.tables.table_and_log import joined
from quorate.tables.table_config import table_config
from quorate.tables.table_errors import TableError
from quorate.tables.table_position import Mark, TablePosition
from quorate.tables.write_mode import RAW_KEY, WriteMode
from tests.support.fake_range_cluster import FakeRangeCluster
from tests.support.record_batches import Record

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def cluster() -> Iterator[FakeRangeCluster]:
    with FakeRangeCluster() as running:
        records = [Record(n, 1_700_000_000_000 + n, value=b"%d" % n) for n in range(10)]
        running.add("orders", 0, [records])
        yield running


def test_a_table_reads_what_its_options_say(spark: SparkSession, cluster: FakeRangeCluster) -> None:
    """Spark hands none of a table's options to a Python source that reads it."""
    spark.sql("DROP TABLE IF EXISTS orders")
    spark.sql(
        "CREATE TABLE orders USING quorate OPTIONS ("
        f"'kafka.bootstrap.servers' '{cluster.bootstrap}', subscribe 'orders', "
        "startingOffsets 'latest-4') COMMENT 'of the day'"
    )
    try:
        assert spark.sql("SELECT min(offset), count(*) FROM orders").collect() == [(6, 4)]
        assert spark.read.option("startingOffsets", "latest-1").table("orders").count() == 1
    finally:
        spark.sql("DROP TABLE orders")


def test_a_path_is_a_topic(spark: SparkSession, cluster: FakeRangeCluster) -> None:
    reader = spark.read.format("quorate").option("kafka.bootstrap.servers", cluster.bootstrap)
    assert reader.load("orders").count() == 10
    with pytest.raises(AnalysisException, match="by the path 'orders' and by option subscribe"):
        reader.option("subscribe", "orders").load("orders").count()


@pytest.mark.parametrize(
    ("format_", "partition_by"),
    [
        ("iceberg", "day(timestamp)"),
        ("delta", "identity(n)"),
        pytest.param("delta", "hour(timestamp)", marks=pytest.mark.slow),
    ],
)
def test_a_table_and_its_log_have_each_offset_once(
    spark: SparkSession, cluster: FakeRangeCluster, tmp_path: Path, format_: str, partition_by: str
) -> None:
    values = [b'{"n": %d, "s": "x"}' % (n % 3) for n in range(10)]
    values[8] = b"junk"
    cluster.add("typed", 0, [[Record(n, value=value) for n, value in enumerate(values)]])
    cluster.add("typed", 1, [[Record(n, value=value) for n, value in enumerate(values[:4])]])
    topic_id = cluster.topic_ids["typed"]
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "typed",
        "valueFormat": "json",
        "valueSchema": "n int",
        "valueColumns": "flatten",
    }
    config = table_config(
        format=format_,
        location=str(tmp_path / "t"),
        name="t",
        partitioning=parse_partitioning(partition_by),
    )
    rows = LocalRows(options, 1)
    table = open_table(config, "p", rows.schema)
    described = {"typed": DescribedTopic(topic_id, 2)}
    later = {**options, "valueSchema": "n int, s string"}
    assert joined(spark, table, options, described, skips_bad=True).count() == 13
    first = OffsetRange(TopicPartition("typed", 0), 0, 6, topic_id)
    files = rows.write([first], table.layout("x")).files
    marks = {TopicPartition("typed", 0): Mark(topic_id, 6)}
    position = TablePosition().moved(1, marks, WriteMode.APPEND)
    table.commit(TableCommit(position=position, files=files, moved=marks))
    frame = joined(spark, table, later, described, skips_bad=True)
    found = sorted(frame.select("partition", "offset", "n", "s").collect())
    expected = [(0, n, n % 3, None if n < 6 else "x") for n in range(10) if n != 8]
    assert found == expected + [(1, n, n % 3, "x") for n in range(4)]
    anew = {"typed": DescribedTopic(b"another".ljust(16), 2)}
    if format_ == "iceberg":
        with pytest.raises(TableError, match="created anew"):
            joined(spark, table, options, anew, skips_bad=True)
    rows.close()


@pytest.mark.parametrize("key_format", ["", pytest.param("json", marks=pytest.mark.slow)])
def test_an_upsert_table_and_its_log_have_each_key_once(
    spark: SparkSession, cluster: FakeRangeCluster, tmp_path: Path, key_format: str
) -> None:
    keys = [b'{"k": %d}' % (n % 4) for n in range(10)]
    values = [None if n in (5, 7) else b'{"n": %d}' % n for n in range(10)]
    values[9] = b"junk"
    records = [Record(n, key=keys[n], value=values[n]) for n in range(10)]
    cluster.add("keyed", 0, [records])
    topic_id = cluster.topic_ids["keyed"]
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "keyed",
        "valueFormat": "json",
        "valueSchema": "n int",
        "valueColumns": "flatten",
    }
    if key_format:
        options |= {"keyFormat": key_format, "keySchema": "k int"}
    config = table_config(format="iceberg", location=str(tmp_path / "t"), name="t")
    rows = LocalRows(options, 1, mode=WriteMode.UPSERT)
    table = open_table(config, "p", rows.schema)
    partition = TopicPartition("keyed", 0)
    written = rows.write([OffsetRange(partition, 0, 6, topic_id)], table.layout("x"))
    marks = {partition: Mark(topic_id, 6)}
    position = TablePosition().moved(1, marks, WriteMode.UPSERT)
    change = TableCommit(position=position, files=written.files, replaced=written.keys, moved=marks)
    table.commit(change)
    described = {"keyed": DescribedTopic(topic_id, 1)}
    frame = joined(spark, table, options, described, skips_bad=True)
    # Key 0: 0, 4, 8. Key 1: 1, a tombstone, junk. Key 2: 2, 6. Key 3: 3, a tombstone.
    assert sorted(frame.select("offset", "n").collect()) == [(6, 6), (8, 8)]
    assert (RAW_KEY in frame.columns) == bool(key_format)
    rows.close()
