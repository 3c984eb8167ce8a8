"""Spark against real brokers: the same records that confluent-kafka consumes, to the byte."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = "million"
PARTITIONS = 6
RECORDS = 1_000_000
EXTRA = 1_000
"""Records before and behind the range of each partition: what must not be read."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FILLER = bytes(range(33, 123)) * 2
CONSUME_TIMEOUT_SECONDS = 60

Ranges = dict[int, tuple[int, int]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=2) as running:
        yield running


def ranges_of_a_million() -> Ranges:
    """Six ranges of 1,000,000 records together, with uneven edges in the middle of batches."""
    sizes = [RECORDS // PARTITIONS + (1 if n < RECORDS % PARTITIONS else 0) for n in range(6)]
    return {n: (EXTRA + 7 * n, EXTRA + 7 * n + size) for n, size in enumerate(sizes)}


def produce(bootstrap: str, ranges: Ranges) -> None:
    """100 bytes each, every value different; each of the codecs writes a part of each partition."""
    totals = {partition: end + EXTRA for partition, (_, end) in ranges.items()}
    for part, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "linger.ms": 20,
                "acks": "all",
                "queue.buffering.max.messages": 0,
                "queue.buffering.max.kbytes": 1 << 20,
            }
        )
        for partition, total in totals.items():
            first, behind_last = total * part // len(CODECS), total * (part + 1) // len(CODECS)
            for n in range(first, behind_last):
                value = b"%d/%09d/" % (partition, n) + FILLER[n % 90 : n % 90 + 88]
                key = b"%d" % n if n % 3 else None
                producer.produce(TOPIC, value, key, partition=partition)
            producer.poll(0)
        assert producer.flush(60) == 0


def consume(bootstrap: str, ranges: Ranges) -> pa.Table:
    """What confluent-kafka gives for the ranges, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reference",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    tables = []
    try:
        for partition, (start, end) in ranges.items():
            consumer.assign([TopicPartition(TOPIC, partition, start)])
            tables.append(_consume_partition(consumer, start, end))
    finally:
        consumer.close()
    return pa.concat_tables(tables)


def _consume_partition(consumer: Consumer, start: int, end: int) -> pa.Table:
    rows: list[tuple[bytes | None, bytes | None, int | None, int | None, int]] = []
    while len(rows) < end - start:
        messages = consumer.consume(min(50_000, end - start - len(rows)), CONSUME_TIMEOUT_SECONDS)
        assert messages, f"nothing came after {len(rows)} of {end - start} records"
        for message in messages:
            assert message.error() is None
            rows.append(
                (
                    message.key(),
                    message.value(),
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1],
                )
            )
    key, value, partition, offset, timestamp_ms = zip(*rows, strict=True)
    return pa.table(
        {
            "key": pa.array(key, pa.binary()),
            "value": pa.array(value, pa.binary()),
            "partition": pa.array(partition, pa.int32()),
            "offset": pa.array(offset, pa.int64()),
            "timestamp": pa.array(timestamp_ms, pa.int64()),
        }
    )


def offsets_json(ranges: Ranges, side: int) -> str:
    return json.dumps({TOPIC: {str(partition): edge[side] for partition, edge in ranges.items()}})


def load(spark: SparkSession, bootstrap: str, ranges: Ranges) -> DataFrame:
    return (
        spark.read.format("quorate")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", offsets_json(ranges, 0))
        .option("endingOffsets", offsets_json(ranges, 1))
        .load()
    )


@pytest.fixture(scope="module")
def million(cluster: RunningCluster) -> Ranges:
    """The topic, filled; its ranges."""
    with cluster.admin() as admin:
        (created,) = admin.create_topics([NewTopic(name=TOPIC, num_partitions=PARTITIONS)])
        assert created.error == "NONE"
    ranges = ranges_of_a_million()
    produce(cluster.bootstrap, ranges)
    return ranges


def test_d2_spark_reads_exactly_the_range(
    spark: SparkSession, cluster: RunningCluster, million: Ranges, tmp_path: Path
) -> None:
    frame = load(spark, cluster.bootstrap, million)
    frame.write.parquet(f"file://{tmp_path}/out")
    found = pq.read_table(tmp_path / "out").sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )
    expected = consume(cluster.bootstrap, million)
    assert found.num_rows == expected.num_rows == RECORDS
    assert pc.unique(found["topic"]).to_pylist() == [TOPIC]
    assert pc.unique(pc.binary_length(found["value"])).to_pylist() == [100]
    for column in ("key", "value", "partition", "offset"):
        assert found[column].combine_chunks().equals(expected[column].combine_chunks()), column
    timestamps_ms = pc.floor_temporal(found["timestamp"], unit="millisecond").cast(
        pa.timestamp("ms", "UTC")
    )
    assert (
        timestamps_ms.cast(pa.int64())
        .combine_chunks()
        .equals(expected["timestamp"].combine_chunks())
    )


@pytest.mark.slow
def test_a_range_outside_the_log_names_partition_and_available_range(
    spark: SparkSession, cluster: RunningCluster, million: Ranges
) -> None:
    end = million[3][1] + EXTRA
    outside = {**million, 3: (0, end + 1)}
    with pytest.raises(AnalysisException) as refusal:
        load(spark, cluster.bootstrap, outside).count()
    assert (
        f"range [0, {end + 1}) of topic {TOPIC} partition 3 is not available: "
        f"the log holds [0, {end})"
    ) in str(refusal.value)
