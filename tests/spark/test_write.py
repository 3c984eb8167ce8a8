"""What a Spark user sees who writes: rows in a DataFrame, then records in a log of real brokers."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.avro_records import field, record

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(300)]

TIME = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    registry = {"registry.listener": "http://127.0.0.1:0"}
    with running_cluster(log_retention_ms=-1, config=registry) as running:
        yield running


def create(cluster: RunningCluster, name: str, partitions: int) -> None:
    with cluster.admin() as admin:
        topic = NewTopic(name=name, num_partitions=partitions)
        admin.create_topics([topic])[0].raise_for_error()


def write(frame: DataFrame, cluster: RunningCluster, **options: str) -> None:
    writer = frame.write.format("quorate").mode("append")
    writer.option("kafka.bootstrap.servers", cluster.bootstrap).options(**options).save()


def read(spark: SparkSession, cluster: RunningCluster, topic: str) -> DataFrame:
    reader = spark.read.format("quorate").option("kafka.bootstrap.servers", cluster.bootstrap)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def collected(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


def content(row: Row) -> str:
    """Key, value and headers, however they are typed."""
    key, value = (
        each.encode() if isinstance(each, str) else each and bytes(each)
        for each in (row.key, row.value)
    )
    headers = [(one.key, one.value and bytes(one.value)) for one in row.headers or ()]
    return repr((key, value, headers))


def test_d2_what_is_written_is_read_and_can_be_copied(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    create(cluster, "out", 3)
    create(cluster, "copy", 3)
    rows = spark.range(1000, numPartitions=2).select(
        F.when(F.col("id") % 3 > 0, F.concat(F.lit("k"), F.col("id"))).alias("key"),
        F.when(F.col("id") % 7 > 0, F.repeat(F.lit("é"), F.col("id").cast("int"))).alias("value"),
        F.when(
            F.col("id") % 2 > 0,
            F.array(
                F.struct(F.lit("n").alias("key"), F.encode("id", "utf-8").alias("value")),
                F.struct(F.lit("e").alias("key"), F.lit(None).cast("binary").alias("value")),
            ),
        ).alias("headers"),
        F.when(F.col("id") == 5, None).otherwise(F.lit(TIME)).alias("timestamp"),
    )  # fmt: skip
    write(rows, cluster, topic="out", **{"kafka.compression.type": "zstd"})
    out = collected(read(spark, cluster, "out"))
    assert sorted(map(content, out)) == sorted(map(content, rows.collect()))
    assert Counter(row.timestamp == TIME.replace(tzinfo=None) for row in out)[False] == 1

    write(read(spark, cluster, "out"), cluster, topic="copy")
    copied = collected(read(spark, cluster, "copy"))
    assert [row.asDict() for row in copied] == [row.asDict() | {"topic": "copy"} for row in out]


def test_d2_a_stream_writes_every_row_of_every_batch(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    create(cluster, "in", 2)
    create(cluster, "streamed", 2)
    write(spark.range(300).selectExpr("cast(id as string) value"), cluster, topic="in")
    stream = (
        spark.readStream.format("quorate")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .options(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="100")
        .load()
        .selectExpr("value", "'streamed' topic")
    )
    query = (
        stream.writeStream.format("quorate")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .option("checkpointLocation", f"file://{tmp_path}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert query.exception() is None
    found = read(spark, cluster, "streamed").selectExpr("cast(cast(value as string) as int) v")
    assert sorted(row.v for row in found.collect()) == list(range(300))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id", {"topic": "t"}, "unknown column 'id': did you mean"),
        ("'v' value, 1 extra", {"topic": "t"}, "unknown column 'extra'"),
        ("'k' key", {"topic": "t"}, "column 'value' is missing"),
        ("'v' value", {}, "no topic: give option topic, or a column 'topic'"),
        ("1 value", {"topic": "t"}, "column 'value' is int, not string or binary"),
        ("'v' value, 'p' partition", {"topic": "t"}, "column 'partition' is string, not int"),
        ("'v' value", {"topik": "t"}, "unknown option 'topik': did you mean 'topic'"),
        ("'v' value", {"topic": "t", "kafka.compression.type": "br"}, "kafka.compression.type"),
    ],
)
def test_what_cannot_be_written_is_refused_before_it_begins(
    spark: SparkSession,
    cluster: RunningCluster,
    columns: str,
    options: dict[str, str],
    message: str,
) -> None:
    with pytest.raises(AnalysisException) as refusal:
        write(spark.range(1).selectExpr(*columns.split(", ")), cluster, **options)
    assert message in str(refusal.value)


def test_a_topic_is_not_overwritten(spark: SparkSession, cluster: RunningCluster) -> None:
    writer = spark.range(1).selectExpr("'v' value").write.format("quorate").mode("overwrite")
    with pytest.raises(AnalysisException, match=r"write with \.mode\('append'\)"):
        writer.options(**{"kafka.bootstrap.servers": cluster.bootstrap, "topic": "t"}).save()


def test_a_failure_of_a_task_says_why(spark: SparkSession, cluster: RunningCluster) -> None:
    create(cluster, "two", 2)
    rows = spark.range(1).selectExpr("'v' value", "7 partition")
    with pytest.raises(PythonException, match="partition 7 of topic two, which has partitions 0"):
        write(rows, cluster, topic="two")


def test_struct_columns_are_written_by_a_schema(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    """The cluster's own registry has the schema, Confluent's deserializer and Spark read by it."""
    create(cluster, "typed", 2)
    schema = json.dumps(record(field("id", "long"), field("note", ["null", "string"])))
    url = cluster.registry_url(cluster.broker_ids[0])
    typed = {"keyFormat": "string", "valueFormat": "avro", "schema.registry.url": url}
    rows = spark.range(50).selectExpr(
        "CAST(id AS string) AS key",
        "IF(id = 5, NULL, struct(id, IF(id % 2 = 0, concat('n', id), NULL) AS note)) AS value",
    )
    write(rows, cluster, topic="typed", valueSchema=schema, **typed)
    reader = spark.read.format("quorate").option("kafka.bootstrap.servers", cluster.bootstrap)
    found = reader.options(**typed).load("typed").select("key", "value").collect()
    assert sorted(map(repr, found)) == sorted(map(repr, rows.collect()))

    client = SchemaRegistryClient({"url": url})
    try:
        context = SerializationContext("typed", MessageField.VALUE)
        deserialize = AvroDeserializer(client)
        raw = [bytes(row.value) for row in collected(read(spark, cluster, "typed")) if row.value]
        ids = [(deserialize(value, context) or {})["id"] for value in raw]
    finally:
        client._rest_client.session.close()
    assert sorted(ids) == [n for n in range(50) if n != 5]
