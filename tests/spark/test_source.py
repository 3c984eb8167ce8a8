"""What a Spark user sees, against brokers inside this process."""

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from quorate_proto.v1.errors_pb2 import NOT_LEADER_OR_FOLLOWER
from quorate_proto.v1.replication_pb2 import RangeHeader
from tests.support.fake_range_cluster import FakeRangeCluster, FrameAbout
from tests.support.record_batches import Record, encode_batch
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TIME_MS = 1_700_000_000_000


def records(partition: int, count: int) -> list[Record]:
    return [
        Record(
            n,
            TIME_MS + n,
            key=None if n % 3 == 0 else b"k%d" % n,
            value=None if n % 10 == 9 else b"%d-%d" % (partition, n),
            headers=(("h", b"%d" % n), ("null", None)) if n % 2 else (),
        )
        for n in range(count)
    ]


@pytest.fixture
def cluster() -> Iterator[FakeRangeCluster]:
    with FakeRangeCluster() as running:
        for partition, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            whole = records(partition, 100)
            batches = [whole[at : at + 7] for at in range(0, 100, 7)]
            running.add("orders", partition, batches, leader=partition % 2, codec=codec)
        running.add("empty", 0, [])
        yield running


def reader(spark: SparkSession, cluster: FakeRangeCluster, **options: object) -> DataFrameReader:
    given = {"subscribe": "orders", **options}
    return (
        spark.read.format("quorate")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .options(**{key: str(value) for key, value in given.items()})
    )


def load(spark: SparkSession, cluster: FakeRangeCluster, **options: object) -> DataFrame:
    return reader(spark, cluster, **options).load()


def offsets_json(**by_partition: int) -> str:
    return json.dumps({"orders": {key.removeprefix("p"): v for key, v in by_partition.items()}})


def test_d2_every_record_arrives_as_it_was_produced(
    spark: SparkSession, cluster: FakeRangeCluster
) -> None:
    frame = load(spark, cluster, includeHeaders=True)
    found = frame.orderBy("partition", "offset").collect()
    assert len(found) == 500
    for row, (partition, record) in zip(
        found, [(p, r) for p in range(5) for r in records(p, 100)], strict=True
    ):
        assert row.asDict(recursive=True) == {
            "key": record.key and bytearray(record.key),
            "value": record.value and bytearray(record.value),
            "topic": "orders",
            "partition": partition,
            "offset": record.offset,
            "timestamp": datetime.fromtimestamp(record.timestamp_ms / 1000),
            "timestampType": 0,
            "headers": [
                {"key": key, "value": value and bytearray(value)} for key, value in record.headers
            ]
            or None,
        }


def test_d2_ranges_by_partition(spark: SparkSession, cluster: FakeRangeCluster) -> None:
    frame = load(
        spark,
        cluster,
        startingOffsets=offsets_json(p0=0, p1=13, p2=99, p3=50, p4=-2),
        endingOffsets=offsets_json(p0=1, p1=15, p2=100, p3=50, p4=-1),
    )
    counted = frame.groupBy("partition").agg(F.min("offset"), F.max("offset"), F.count("*"))
    assert sorted(map(tuple, counted.collect())) == [
        (0, 0, 0, 1),
        (1, 13, 14, 2),
        (2, 99, 99, 1),
        (4, 0, 99, 100),
    ]


def test_d2_goes_on_at_the_new_leader(spark: SparkSession, cluster: FakeRangeCluster) -> None:
    def move(about: FrameAbout) -> RangeHeader | None:
        if about.broker_id == 0 and about.index == 5:
            for log in cluster.logs.values():
                log.leader = 1
        if about.broker_id == 0 and about.index >= 5:
            return RangeHeader(error_code=NOT_LEADER_OR_FOLLOWER)
        return None

    cluster.before_frame = move
    rows = load(spark, cluster).select("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [(p, n) for p in range(5) for n in range(100)]


def test_assign_and_pattern(spark: SparkSession, cluster: FakeRangeCluster) -> None:
    base = spark.read.format("quorate").option("kafka.bootstrap.servers", cluster.bootstrap)
    assert base.option("subscribePattern", "ord.*").load().count() == 500
    base = spark.read.format("quorate").option("bootstrap.servers", cluster.bootstrap)
    assigned = base.option("assign", '{"orders":[1,3]}').load()
    assert {row.partition for row in assigned.select("partition").distinct().collect()} == {1, 3}


def test_ranges_by_time(spark: SparkSession, cluster: FakeRangeCluster) -> None:
    frame = load(spark, cluster, startingTimestamp=TIME_MS + 90, endingTimestamp=TIME_MS + 95)
    assert frame.agg(F.count("*"), F.min("offset"), F.max("offset")).first() == (25, 90, 94)


def test_nothing_to_read(spark: SparkSession, cluster: FakeRangeCluster) -> None:
    frame = load(spark, cluster, subscribe="empty")
    assert frame.count() == 0
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip


def test_a_schema_projects(spark: SparkSession, cluster: FakeRangeCluster) -> None:
    frame = reader(spark, cluster).schema("offset bigint, topic string").load()
    assert frame.agg(F.sum("offset"), F.max("topic")).first() == (5 * 4950, "orders")


def test_splitting_reads_everything_once(spark: SparkSession, cluster: FakeRangeCluster) -> None:
    frame = load(spark, cluster, maxRecordsPerPartition=60).select(
        F.spark_partition_id(), "partition", "offset"
    )
    rows = [tuple(row) for row in frame.collect()]
    assert len({task for task, _, _ in rows}) == 10
    assert sorted(row[1:] for row in rows) == [(p, n) for p in range(5) for n in range(100)]


def test_limit_stops_in_the_middle_and_leaves_no_stream_open(
    spark: SparkSession, cluster: FakeRangeCluster
) -> None:
    large = [[Record(n, TIME_MS, value=bytes(500_000))] for n in range(100)]
    cluster.add("large", 0, large)
    sent: list[FrameAbout] = []
    cluster.before_frame = sent.append
    assert len(load(spark, cluster, subscribe="large").select("offset").limit(3).collect()) == 3
    assert len(sent) < 50
    wait_until(lambda: cluster.open_reads == 0, "the end of every stream", timeout_s=20)


def test_workers_of_a_local_session_are_forked_with_the_source_imported(
    spark: SparkSession,
) -> None:
    def imported(_: int) -> bool:
        return "quorate.spark.reading.range_reader" in sys.modules

    assert spark.sparkContext.parallelize([0], 1).map(imported).collect() == [True]


def test_filters_give_the_right_rows_again_and_again(
    spark: SparkSession, cluster: FakeRangeCluster
) -> None:
    frame = load(spark, cluster)
    at_the_end = frame.filter("partition = 1 AND offset >= 90").select("offset")
    without_key = frame.filter(F.col("key").isNull() & (F.col("offset") < 6)).select("partition")
    for _ in range(2):
        assert sorted(row.offset for row in at_the_end.collect()) == list(range(90, 100))
        assert sorted(row.partition for row in without_key.collect()) == sorted([*range(5)] * 2)
    assert frame.filter("topic = 'other'").count() == 0
    assert frame.count() == 500


def test_latest_is_the_moment_of_the_first_action(
    spark: SparkSession, cluster: FakeRangeCluster
) -> None:
    log = cluster.add("growing", 0, [[Record(n, TIME_MS) for n in range(10)]])
    frame = load(spark, cluster, subscribe="growing")
    assert frame.count() == 10
    log.batches.append((10, 11, encode_batch([Record(10, TIME_MS)])))
    log.high_watermark = 11
    cluster.add("growing", 1, [[Record(0, TIME_MS)]])
    assert frame.count() == frame.select("offset").count() == 10
    assert load(spark, cluster, subscribe="growing").count() == 12


def test_in_sql_and_without_secrets_in_the_plan(
    spark: SparkSession, cluster: FakeRangeCluster
) -> None:
    secrets = "'kafka.sasl.password' 'hidden', 'kafka.sasl.jaas.config' 'password=hidden'"
    name = f"'kafka.bootstrap.servers' '{cluster.bootstrap}', subscribe 'orders'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING quorate OPTIONS ({name})")
    counted = spark.sql("SELECT count(*) AS n FROM orders WHERE offset < 7 AND partition < 2")
    assert counted.first() == (14,)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING quorate OPTIONS ({name}, {secrets})")
    (plan,) = spark.sql("EXPLAIN EXTENDED SELECT * FROM orders").collect()
    assert "BatchScan" in plan[0]
    assert "hidden" not in plan[0]


def test_relative_starts(spark: SparkSession, cluster: FakeRangeCluster) -> None:
    frame = load(spark, cluster, startingOffsets="latest-3", endingOffsets="latest-1")
    assert sorted({row.offset for row in frame.collect()}) == [97, 98]


def test_a_deleted_topic_is_data_loss(spark: SparkSession, cluster: FakeRangeCluster) -> None:
    cluster.add("short", 0, [[Record(0, TIME_MS)]])
    impatient = {"subscribe": "short", "fetchOffset.numRetries": 1}
    frames = [load(spark, cluster, failOnDataLoss=fail, **impatient) for fail in ("true", "false")]
    assert [frame.count() for frame in frames] == [1, 1]
    del cluster.topic_ids["short"]
    with pytest.raises(PythonException, match="short-0 is no longer there"):
        frames[0].count()
    assert frames[1].count() == 0


def test_the_installed_package_registers_the_format(
    spark: SparkSession, cluster: FakeRangeCluster
) -> None:
    # Registrations belong to a session: a new one finds the format by the package's name alone.
    assert load(spark.newSession(), cluster).count() == 500


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assign": '{"a":[0]}'}, "exactly one of subscribe, subscribePattern, assign"),
        ({"startingOffsetz": "earliest"}, "did you mean 'startingOffsets'"),
        ({"startingOffsets": "latest"}, "a batch query would read nothing"),
        ({"subscribe": "orderz"}, "the cluster has no topic 'orderz'"),
        (
            {
                "startingOffsets": offsets_json(p0=0, p1=0, p2=0, p3=0, p4=0),
                "endingOffsets": offsets_json(p0=1, p1=1, p2=101, p3=1, p4=1),
            },
            r"range [0, 101) of topic orders partition 2 is not available: the log holds [0, 100)",
        ),
    ],
)
def test_refusals_reach_the_user(
    spark: SparkSession, cluster: FakeRangeCluster, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AnalysisException) as refusal:
        load(spark, cluster, **options).count()
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("ofset bigint", "unknown column 'ofset': did you mean 'offset'"),
        ("offset string", "column 'offset' is bigint, not string: select it as it is and cast it"),
        (StructType([]), "the schema has no column"),
    ],
)
def test_schemas_that_are_no_selection_are_refused(
    spark: SparkSession, cluster: FakeRangeCluster, schema: str | StructType, message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        reader(spark, cluster).schema(schema).load().count()


def test_a_corrupt_batch_names_its_place(spark: SparkSession, cluster: FakeRangeCluster) -> None:
    log = next(iter(cluster.logs.values()))
    base_offset, next_offset, encoded = log.batches[3]
    log.batches[3] = (base_offset, next_offset, encoded[:-1] + b"\xff")
    with pytest.raises(PythonException, match=r"topic orders partition 0 .* offset 21"):
        load(spark, cluster).count()
