"""What becomes of a plan when the log changes before it is read, against a real broker.

Without Spark: reader and plan are what it would call; the plan travels by pickle, as there.
"""

import json
import pickle
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, LongType, StructType

from quorate.client.results import NewPartitions, NewTopic
from quorate.spark.errors import RangeUnavailable, UnknownTopic
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.read_options import parse_read_options
from quorate.spark.reading.batch_reader import QuorateReader
from quorate.testing import RunningCluster, running_cluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

RECORDS = 100
PARTITIONS = 2
TIME_MS = 1_700_000_000_000
SCHEMA = StructType().add("partition", IntegerType()).add("offset", LongType())

Rows = list[tuple[int, int]]


class Topic:
    """A topic of two partitions, a hundred records in each, one per second."""

    def __init__(self, cluster: RunningCluster, name: str) -> None:
        self._cluster = cluster
        self.name = name
        self.create()
        self.produce()

    def create(self) -> None:
        with self._cluster.admin() as admin:
            topic = NewTopic(name=self.name, num_partitions=PARTITIONS)
            admin.create_topics([topic])[0].raise_for_error()

    def delete(self) -> None:
        with self._cluster.admin() as admin:
            admin.delete_topics([self.name])[0].raise_for_error()

    def grow(self) -> None:
        with self._cluster.admin() as admin:
            more = NewPartitions(name=self.name, count=PARTITIONS + 1)
            admin.create_partitions([more])[0].raise_for_error()

    def delete_records(self, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap})
        where = TopicPartition(self.name, 0, before)
        assert admin.delete_records([where])[where].result().low_watermark == before

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "acks": "all"})
        for n in range(RECORDS):
            for partition in range(PARTITIONS):
                producer.produce(
                    self.name, b"%d" % n, partition=partition, timestamp=TIME_MS + 1000 * n
                )
        assert producer.flush(30) == 0

    def reader(self, **options: object) -> QuorateReader:
        given = {
            "kafka.bootstrap.servers": self._cluster.bootstrap,
            "subscribe": self.name,
            "fetchOffset.numRetries": "2",
            **{name: str(value) for name, value in options.items()},
        }
        return QuorateReader(parse_read_options(given, Scope.BATCH), SCHEMA)

    def offsets(self, **by_partition: int | str) -> str:
        return json.dumps(
            {self.name: {key.removeprefix("p"): v for key, v in by_partition.items()}}
        )


def rows(reader: QuorateReader, plan: Sequence[InputPartition]) -> Rows:
    found: Rows = []
    for part in plan:
        for batch in reader.read(pickle.loads(pickle.dumps(part))):
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return sorted(found)


def all_of(start: int = 0, end: int = RECORDS, partitions: Sequence[int] = (0, 1)) -> Rows:
    return [(partition, offset) for partition in partitions for offset in range(start, end)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=1, log_retention_ms=-1) as running:
        yield running


def test_d2_what_is_produced_or_added_later_is_not_read(cluster: RunningCluster) -> None:
    topic = Topic(cluster, "grown")
    reader = topic.reader(maxRecordsPerPartition=30)
    plan = reader.partitions()
    assert len(plan) == 8
    topic.produce()
    topic.grow()
    assert rows(reader, plan) == all_of()
    assert len(rows(topic.reader(), topic.reader().partitions())) == 2 * len(all_of())


def test_deleted_records_fail_the_query_or_are_left_out(cluster: RunningCluster) -> None:
    topic = Topic(cluster, "shortened")
    strict, lenient = topic.reader(), topic.reader(failOnDataLoss=False)
    plan = strict.partitions()
    topic.delete_records(before=40)
    with pytest.raises(RangeUnavailable, match=r"of shortened-0 .* the log holds \[40, 100\)"):
        rows(strict, plan)
    left = all_of(40, partitions=[0]) + all_of(partitions=[1])
    assert rows(lenient, plan) == left
    # And planned anew.
    early = topic.offsets(p0=0, p1=0)
    message = r"range \[0, 100\) of topic shortened partition 0 .* the log holds \[40, 100\)"
    with pytest.raises(RangeUnavailable, match=message):
        topic.reader(startingOffsets=early).partitions()
    lenient = topic.reader(startingOffsets=early, failOnDataLoss=False)
    assert rows(lenient, lenient.partitions()) == left
    assert rows(strict, strict.partitions()) == left


def test_a_deleted_topic_fails_the_query_or_is_left_out(cluster: RunningCluster) -> None:
    topic = Topic(cluster, "deleted")
    strict, lenient = topic.reader(), topic.reader(failOnDataLoss=False)
    plan = strict.partitions()
    topic.delete()
    with pytest.raises(UnknownTopic, match=r"deleted-0 is no longer there"):
        rows(strict, plan)
    assert rows(lenient, plan) == []
    with pytest.raises(UnknownTopic, match="the cluster has no topic 'deleted'"):
        lenient.partitions()


def test_a_topic_made_anew_is_not_the_one_that_was_planned(cluster: RunningCluster) -> None:
    topic = Topic(cluster, "anew")
    strict, lenient = topic.reader(), topic.reader(failOnDataLoss=False)
    plan = strict.partitions()
    topic.delete()
    wait_until(lambda: "anew" not in known_topics(cluster), "anew to go")
    topic.create()
    topic.produce()
    with pytest.raises(UnknownTopic, match="anew was deleted and created anew"):
        rows(strict, plan)
    assert rows(lenient, plan) == []
    assert rows(strict, strict.partitions()) == all_of()


def test_positions_by_edge_and_time(cluster: RunningCluster) -> None:
    topic = Topic(cluster, "positions")
    assert read(topic, startingOffsets="latest-7") == all_of(93)
    assert read(topic, startingOffsets="latest-700", endingOffsets="earliest+3") == all_of(0, 3)
    assert read(topic, startingOffsets="-10m") == []
    assert read(topic, endingOffsets="-10m") == all_of()
    assert read(topic, startingTimestamp=TIME_MS + 89_999) == all_of(90)
    assert read(topic, endingTimestamp="2023-11-14T22:13:25Z") == all_of(0, 5)
    mixed = topic.offsets(p0="latest-2", p1=99)
    assert read(topic, startingOffsets=mixed) == [(0, 98), (0, 99), (1, 99)]


def read(topic: Topic, **options: object) -> Rows:
    reader = topic.reader(**options)
    return rows(reader, reader.partitions())


def known_topics(cluster: RunningCluster) -> set[str]:
    with cluster.admin() as admin:
        return set(admin.list_topics())
