"""Tables over topics, and topics named by a path."""

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

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
