"""Tasks of the Spark writer against real brokers, without Spark: rows in, records in the log."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from quorate.client.results import NewTopic
from quorate.spark.errors import RecordTooLarge, RowError, WriteRefused
from quorate.spark.options.connection_options import ConnectionOptions
from quorate.spark.writing.write_options import WriteOptions
from quorate.spark.writing.write_task import write_rows
from quorate.testing import RunningCluster, running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=2, log_retention_ms=-1) as running:
        yield running


def create(cluster: RunningCluster, name: str, partitions: int = 1, **config: str) -> None:
    with cluster.admin() as admin:
        topic = NewTopic(name=name, num_partitions=partitions, configs=config)
        admin.create_topics([topic])[0].raise_for_error()


def write(
    cluster: RunningCluster, *batches: pa.RecordBatch, topic: str | None = None, **options: object
) -> int:
    connection = ConnectionOptions(cluster.bootstrap, retries_max=50)
    return write_rows(
        WriteOptions(connection, topic=topic, **options),  # type: ignore[arg-type]
        iter(batches),
        task=0,
    )


def consume(cluster: RunningCluster, topic: str, partitions: int, count: int) -> list[Message]:
    """So many records, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reference",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found: list[Message] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), 30)
            assert messages, f"nothing came after {len(found)} of {count} records"
            assert not [m for m in messages if m.error()]
            found += messages
        assert not consumer.consume(1, 0.2), "there are more records than were written"
    finally:
        consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def partitions_of(messages: Sequence[Message]) -> dict[bytes | None, int | None]:
    return {message.key(): message.partition() for message in messages}


@pytest.mark.parametrize("codec", CODECS)
def test_d2_confluent_kafka_reads_what_was_written(cluster: RunningCluster, codec: str) -> None:
    create(cluster, codec)
    rows: list[dict[str, Any]] = [
        {
            "key": None if n % 3 == 0 else b"k%d" % n,
            "value": None if n % 7 == 6 else b"v%d-" % n + b"x" * (n % 500),
            "headers": [{"key": "h", "value": b"%d" % n}, {"key": "e", "value": None}][: n % 3],
            "timestamp": 1_700_000_000_000_000 + n * 1000,
        }
        for n in range(3000)
    ]
    schema = pa.schema(
        {
            "key": pa.binary(),
            "value": pa.binary(),
            "headers": HEADERS,
            "timestamp": pa.timestamp("us", "UTC"),
        }
    )
    whole = pa.RecordBatch.from_pylist(rows, schema)
    cut = [whole.slice(at, 1000) for at in range(0, 3000, 1000)]
    assert write(cluster, *cut, topic=codec, compression=codec, batch_bytes=50_000) == 3000
    for row, message in zip(rows, consume(cluster, codec, 1, 3000), strict=True):
        assert message.key() == row["key"]
        assert message.value() == row["value"]
        assert message.timestamp() == (1, row["timestamp"] // 1000)
        headers = [(header["key"], header["value"]) for header in row["headers"]]
        assert (message.headers() or []) == headers


def test_keys_go_where_confluent_kafka_sends_them(cluster: RunningCluster) -> None:
    create(cluster, "ours", 7)
    create(cluster, "theirs", 7)
    keys = [b"key %d" % n for n in range(500)] + [b"", bytes(100)]
    write(cluster, pa.record_batch({"key": keys, "value": keys}), topic="ours")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce("theirs", key, key)
    assert producer.flush(30) == 0
    ours, theirs = (consume(cluster, name, 7, len(keys)) for name in ("ours", "theirs"))
    assert partitions_of(ours) == partitions_of(theirs)


def test_rows_say_topic_and_partition(cluster: RunningCluster) -> None:
    create(cluster, "a", 2)
    create(cluster, "b", 3)
    batch = pa.record_batch(
        {
            "value": ["a0", "b2", "a1", "b2 again"],
            "topic": ["a", "b", "a", "b"],
            "partition": pa.array([0, 2, 1, 2], pa.int32()),
        }
    )
    assert write(cluster, batch) == 4
    assert [(m.partition(), m.value()) for m in consume(cluster, "a", 2, 2)] == [
        (0, b"a0"), (1, b"a1"),
    ]  # fmt: skip
    assert [m.value() for m in consume(cluster, "b", 3, 2)] == [b"b2", b"b2 again"]


def test_nothing_to_write_asks_nobody() -> None:
    options = WriteOptions(ConnectionOptions("127.0.0.1:1"), topic="t")
    empty = pa.record_batch({"value": pa.array([], pa.binary())})
    assert write_rows(options, iter([empty]), task=0) == 0


def test_refusals_name_topic_partition_and_limit(cluster: RunningCluster) -> None:
    create(cluster, "small", 2, **{"max.message.bytes": "2000"})
    large = pa.record_batch(
        {"value": [bytes(100), bytes(3000)], "partition": pa.array([0, 1], pa.int32())}
    )
    with pytest.raises(RecordTooLarge, match=r"topic small partition 1 has 30\d\d bytes.* 2000 "):
        write(cluster, large, topic="small")
    assert write(cluster, large, topic="small", compression="zstd") == 2
    many = pa.record_batch({"value": [bytes(100)] * 1000})
    assert write(cluster, many, topic="small") == 1000
    outside = pa.record_batch({"value": ["x"], "partition": pa.array([2], pa.int32())})
    with pytest.raises(RowError, match="partition 2 of topic small, which has partitions 0 to 1"):
        write(cluster, outside, topic="small")


def test_a_record_that_fills_a_whole_request(cluster: RunningCluster) -> None:
    create(cluster, "huge", 1, **{"max.message.bytes": str(20 << 20)})
    value = bytes(15 << 20)
    assert write(cluster, pa.record_batch({"value": [b"a", value, b"b"]}), topic="huge") == 3
    assert [m.value() for m in consume(cluster, "huge", 1, 3)] == [b"a", value, b"b"]


def test_a_topic_is_created_as_for_any_producer(cluster: RunningCluster) -> None:
    rows = pa.record_batch({"value": ["one", "two"]})
    assert write(cluster, rows, topic="made-on-demand") == 2
    with cluster.admin() as admin:
        (made,) = [t for t in admin.describe_topics() if t.name == "made-on-demand"]
    assert sum(1 for _ in made.partitions) >= 1
    with pytest.raises(WriteRefused, match="INVALID_TOPIC_EXCEPTION"):
        write(cluster, rows, topic="no/topic")
