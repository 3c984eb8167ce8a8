"""Typed columns as a Spark user sees them, against brokers and a registry inside this process."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.avro_records import encode, field, record
from tests.support.fake_range_cluster import FakeRangeCluster
from tests.support.record_batches import Record
from tests.support.stub_registry import StubRegistry, framed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

OLD = record(field("id", "int"), field("gone", "string"))
NEW = record(
    field("id", "long"),
    field("note", ["null", "string"], default=None),
    field("tags", {"type": "map", "values": "int"}, default={}),
)
ROWS = 40


@pytest.fixture(scope="module")
def registry() -> Iterator[StubRegistry]:
    with StubRegistry() as running:
        running.add("orders-value", OLD)
        running.add("orders-value", NEW)
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeRangeCluster]:
    """A topic whose schema changed in the middle, with tombstones and one damaged value."""
    values: list[bytes | None] = [
        framed(1, encode(OLD, {"id": n, "gone": "x"}))
        if n < ROWS // 2
        else framed(2, encode(NEW, {"id": n, "note": f"n{n}", "tags": {"t": n}}))
        for n in range(ROWS)
    ]
    values[3] = None
    damaged = list(values)
    damaged[7] = b"\0\0\0\0\1"
    with FakeRangeCluster() as running:
        for topic, some in (("orders", values), ("damaged", damaged)):
            records = [Record(n, key=b"k%d" % n, value=value) for n, value in enumerate(some)]
            running.add(topic, 0, [records[at : at + 10] for at in range(0, ROWS, 10)])
        yield running


@pytest.fixture
def options(cluster: FakeRangeCluster, registry: StubRegistry) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "orders",
        "keyFormat": "string",
        "valueFormat": "avro",
        "schema.registry.url": registry.url,
    }


def test_values_are_structs_of_the_latest_schema_whoever_wrote_them(
    spark: SparkSession, options: dict[str, str]
) -> None:
    frame = spark.read.format("quorate").options(**options).load()
    found = frame.orderBy("offset").select("key", "value").collect()
    assert [row.key for row in found] == [f"k{n}" for n in range(ROWS)]
    assert [row.value and row.value.asDict() for row in found] == [
        None
        if n == 3
        else {"id": n, "note": None, "tags": {}}
        if n < ROWS // 2
        else {"id": n, "note": f"n{n}", "tags": {"t": n}}
        for n in range(ROWS)
    ]


def test_fields_are_columns_and_only_those_that_are_named(
    spark: SparkSession, options: dict[str, str]
) -> None:
    flat = {**options, "valueColumns": "flatten", "valueFields": "note,id"}
    frame = spark.read.format("quorate").options(**flat).load()
    assert frame.columns[:3] == ["key", "note", "id"]
    assert frame.agg(F.sum("id"), F.count("note")).collect() == [(sum(range(ROWS)) - 3, ROWS // 2)]
    chosen = spark.read.format("quorate").options(**options).schema("value struct<id: bigint>")
    assert chosen.load().selectExpr("max(value.id)").collect() == [(ROWS - 1,)]


def test_a_damaged_value_is_named_or_handed_out(
    spark: SparkSession, options: dict[str, str]
) -> None:
    given = {**options, "subscribe": "damaged", "valueSubject": "orders-value"}
    reader = spark.read.format("quorate").options(**given)
    with pytest.raises(
        PythonException,
        match="the value at offset 7 of topic damaged partition 0 cannot be decoded: "
        "schema id 1: field id: its number is malformed; mode=permissive",
    ):
        reader.load().collect()
    found = reader.option("mode", "PERMISSIVE").load().where("value IS NULL").orderBy("offset")
    assert [(row.offset, row._corrupt_value) for row in found.collect()] == [
        (3, None),
        (7, b"\0\0\0\0\1"),
    ]


def test_refusals_reach_the_user(spark: SparkSession, options: dict[str, str]) -> None:
    with pytest.raises(AnalysisException, match="has no subject 'none-value'"):
        spark.read.format("quorate").options(**{**options, "subscribe": "none"}).load()


def test_a_stream_of_typed_columns(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    given = {**options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "15"}
    query = (
        spark.readStream.format("quorate")
        .options(**given, valueColumns="flatten")
        .load()
        .select("id", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"file://{tmp_path}/checkpoint")
        .option("path", f"file://{tmp_path}/out")
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    found = spark.read.parquet(f"file://{tmp_path}/out").orderBy("offset").collect()
    assert [tuple(row) for row in found] == [(None if n == 3 else n, n) for n in range(ROWS)]


def test_a_schema_of_ones_own_needs_no_registry(
    spark: SparkSession, cluster: FakeRangeCluster
) -> None:
    records = [Record(n, value=json.dumps({"id": n, "more": [n]}).encode()) for n in range(5)]
    cluster.add("json", 0, [records])
    reader = spark.read.format("quorate").option("kafka.bootstrap.servers", cluster.bootstrap)
    typed = reader.option("valueFormat", "json").option("valueSchema", "id int, more array<int>")
    assert typed.load("json").select("value.*").orderBy("id").collect() == [
        (n, [n]) for n in range(5)
    ]
