"""The metadata log of a real cluster in Spark: the guide's queries, batches and streams."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession

from quorate.client.results import ConfigChange, NewTopic, PartitionName
from quorate.testing import RunningCluster, running_cluster
from tests.support.option_reference import GUIDE

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(300)]

MOVED: Final = PartitionName(topic="orders", partition=1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """A partition is moved from broker 2 to broker 1; a configuration is set, and set again."""
    with running_cluster(brokers=2) as running:
        with running.admin() as admin:
            new = NewTopic(name="orders", assignments=[(1,), (2,)])
            admin.create_topics([new])[0].raise_for_error()
            for value in ("100000", "200000"):
                limit = ConfigChange("topic", "orders", values={"max.message.bytes": value})
                admin.incremental_alter_configs([limit])[0].raise_for_error()
            admin.alter_partition_reassignments({MOVED: (1,)})[0].raise_for_error()
            running.wait_until(
                lambda: not admin.list_partition_reassignments([MOVED]), "orders-1 has moved"
            )
        yield running


def load(spark: SparkSession, cluster: RunningCluster, **options: str) -> DataFrame:
    reader = spark.read.format("quorate-metadata")
    return reader.option("kafka.bootstrap.servers", cluster.bootstrap).options(**options).load()


def guides_queries() -> list[str]:
    queries = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return [query for query in queries if "FROM changes" in query]


@pytest.fixture
def answers(spark: SparkSession, cluster: RunningCluster) -> list[list[Row]]:
    load(spark, cluster).createOrReplaceTempView("changes")
    return [spark.sql(query).collect() for query in guides_queries()]


def test_the_guides_queries_tell_what_happened(answers: list[list[Row]]) -> None:
    led, configs, moves = answers
    led = [row for row in led if row.topic == "orders"]
    assert [(row.partition, row.leader) for row in led] == [(0, 1), (1, 2), (1, 1)]
    assert led[1].until == led[2].since
    assert led[1].since <= led[2].since
    assert led[0].until is None
    changed = [(row.entity_name, row.config, row.old_value, row.new_value) for row in configs]
    assert changed == [
        ("orders", "max.message.bytes", None, "100000"),
        ("orders", "max.message.bytes", "100000", "200000"),
    ]
    assert configs[0].principal == "User:ANONYMOUS"
    assert {row.partition for row in moves} == {1}
    assert (moves[0].old_replicas, moves[-1].replicas) == ([2], [1])
    assert {row.controller_epoch for row in moves} == {1}
    assert all(row.writer.startswith("broker ") for row in moves)


def test_ranges_types_and_columns_are_what_was_asked_for(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    whole = load(spark, cluster).select("offset", "record", "key").collect()
    last = whole[-1].offset
    some = load(spark, cluster, startingOffset="5", endingOffset=str(last))
    assert some.select("offset", "record", "key").collect() == [
        row for row in whole if 5 <= row.offset < last
    ]
    slim = (
        spark.read.format("quorate-metadata")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .option("recordTypes", "config_set")
        .schema("new_value string, time timestamp")
        .load()
        .collect()
    )
    assert [row.new_value for row in slim] == ["100000", "200000"]
    assert all(row.time for row in slim)
    with pytest.raises(AnalysisException, match="did you mean 'config_set'"):
        load(spark, cluster, recordTypes="config_sett").count()
    with pytest.raises(AnalysisException, match="are not available: changes are kept for"):
        load(spark, cluster, endingOffset="999999").count()


def test_a_stream_goes_on_where_its_checkpoint_is(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    def copy(at_most: str) -> None:
        frame = (
            spark.readStream.format("quorate-metadata")
            .option("kafka.bootstrap.servers", cluster.bootstrap)
            .option("maxOffsetsPerTrigger", at_most)
            .load()
        )
        query = (
            frame.select("offset", "record", "key", "old", "new")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "changes"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    copy("15")
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name="later")])[0].raise_for_error()
    copy("1000")
    copied = spark.read.parquet(str(tmp_path / "changes"))
    there = load(spark, cluster).select(copied.columns)
    assert sorted(copied.collect()) == sorted(there.collect())
    assert copied.where("key = '/brokers/topics/later'").count() == 1
