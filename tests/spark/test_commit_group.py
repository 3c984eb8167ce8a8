"""A real Spark shows in a consumer group how far it is, for lag tools to see."""

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from quorate.client.results import NewTopic
from quorate.pipeline.execution import execute
from quorate.pipeline.pipeline_config import parse_config
from quorate.testing import RunningCluster, running_cluster

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(300)]

PARTITIONS = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(config={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@pytest.fixture
def topic(cluster: RunningCluster) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name=name, num_partitions=PARTITIONS)])[0].raise_for_error()
    produce(cluster, name, 100)
    return name


def produce(cluster: RunningCluster, topic: str, records: int) -> None:
    """So many in each partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(records * PARTITIONS):
        producer.produce(topic, b"v%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def committed(cluster: RunningCluster, group: str, topic: str) -> list[int]:
    """Per partition, as any Kafka client sees it; -1001: none."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group}
    with closing(Consumer(settings)) as consumer:
        asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return [found.offset for found in consumer.committed(asked, timeout=30)]


@contextmanager
def member(cluster: RunningCluster, group: str, topic: str) -> Iterator[None]:
    """A consumer that is a member of the group."""
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "client.id": "someone",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None
        yield


def batch(
    spark: SparkSession, cluster: RunningCluster, topic: str, group: str, **options: object
) -> DataFrame:
    reader = spark.read.format("quorate").options(
        **{
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": topic,
            "commitGroup": group,
            **{name: str(value) for name, value in options.items()},
        }
    )
    return reader.schema("offset bigint").load()


def test_d2_a_batch_query_is_shown_when_all_of_it_was_read(
    spark: SparkSession, cluster: RunningCluster, topic: str
) -> None:
    half = f'{{"{topic}":{{"0":50,"1":40}}}}'
    assert len(batch(spark, cluster, topic, "b", minPartitions=5).take(1)) == 1
    assert committed(cluster, "b", topic) == [-1001, -1001]
    assert batch(spark, cluster, topic, "b", endingOffsets=half, minPartitions=5).count() == 90
    assert committed(cluster, "b", topic) == [50, 40]
    everything = batch(spark, cluster, topic, "b")
    assert everything.count() == everything.count() == 200
    assert committed(cluster, "b", topic) == [100, 100]
    assert batch(spark, cluster, topic, "b", endingOffsets=half).count() == 90
    assert committed(cluster, "b", topic) == [100, 100], "it never goes back"
    back = batch(spark, cluster, topic, "b", endingOffsets=half, commitGroupMayGoBack="true")
    assert back.count() == 90
    assert committed(cluster, "b", topic) == [50, 40], "but when it is told to"


def test_d2_a_stream_is_shown_batch_by_batch(
    spark: SparkSession, cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    seen: list[list[int]] = []

    def look(frame: DataFrame, batch_id: int) -> None:
        frame.count()
        seen.append(committed(cluster, "s", topic))

    def run() -> None:
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "100",
            "commitGroup": "s",
        }
        reader = spark.readStream.format("quorate").options(**options)
        writing = reader.schema("offset bigint").load().writeStream.foreachBatch(look)
        checkpoint = str(tmp_path / "checkpoint")
        query = writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    run()
    assert seen == [[-1001, -1001], [50, 50]], "a batch is not shown before it has succeeded"
    assert committed(cluster, "s", topic) == [100, 100], "the last one, too"
    produce(cluster, topic, 10)
    run()
    assert committed(cluster, "s", topic) == [110, 110]
    produce(cluster, topic, 10)
    with (
        member(cluster, "s", topic),
        pytest.raises(StreamingQueryException, match="group 's' has live members \\(someone at"),
    ):
        run()


@pytest.mark.slow
def test_d2_a_pipeline_is_shown_as_it_commits(
    spark: SparkSession, cluster: RunningCluster, topic: str, tmp_path: Path
) -> None:
    config = parse_config(
        {
            "name": topic,
            "source.kafka.bootstrap.servers": cluster.bootstrap,
            "source.subscribe": topic,
            "source.commitGroup": "p",
            "source.maxOffsetsPerTrigger": 120,
            "sink.path": str(tmp_path),
        }
    )
    assert execute(config, spark).batches == 2
    assert committed(cluster, "p", topic) == [100, 100]


def test_a_group_with_members_is_left_alone(
    spark: SparkSession, cluster: RunningCluster, topic: str
) -> None:
    with (
        member(cluster, "m", topic),
        pytest.raises(AnalysisException, match="stop them, or choose another group"),
    ):
        batch(spark, cluster, topic, "m").count()
    assert committed(cluster, "m", topic) == [-1001, -1001]
