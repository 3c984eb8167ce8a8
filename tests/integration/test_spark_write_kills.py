"""A writing task whose leaders are killed and frozen meanwhile: every row once, and in order."""

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from quorate.client.results import NewTopic
from quorate.spark.errors import ClusterUnavailable
from quorate.spark.options.connection_options import ConnectionOptions
from quorate.spark.writing.write_options import WriteOptions
from quorate.spark.writing.write_task import write_rows
from quorate.testing import RunningCluster, running_cluster
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PARTITIONS = 4
ROWS = 500
"""Of an Arrow batch: about half a megabyte."""
FILLER = bytes(1000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, broker_session_timeout_ms=2_000) as running:
        yield running


def create(cluster: RunningCluster, name: str) -> None:
    with cluster.admin() as admin:
        topic = NewTopic(
            name=name,
            num_partitions=PARTITIONS,
            replication_factor=3,
            configs={"min.insync.replicas": "2"},
        )
        admin.create_topics([topic])[0].raise_for_error()
    wait_until_known(cluster, name, PARTITIONS)


def arrow(first: int) -> pa.RecordBatch:
    """Rows from number ``first`` on, by turns to the partitions."""
    numbers = np.arange(first, first + ROWS)
    return pa.record_batch(
        {
            "value": pa.array([b"%d %s" % (number, FILLER) for number in numbers]),
            "partition": pa.array(numbers % PARTITIONS, pa.int32()),
        }
    )


def rows(batches: int, before: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    """So many Arrow batches; ``before`` each something may happen."""
    for number in range(batches):
        before(number)
        yield arrow(number * ROWS)


def write(
    cluster: RunningCluster, topic: str, batches: Iterator[pa.RecordBatch], **options: int
) -> int:
    connection = ConnectionOptions(cluster.bootstrap, retries_max=60)
    settings = WriteOptions(connection, topic, batch_bytes=50_000, **options)  # type: ignore[arg-type]
    return write_rows(settings, batches, task=0)


def numbers_in(cluster: RunningCluster, topic: str) -> list[list[int]]:
    """The numbers of the rows of each partition, in the order of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reference",
            "enable.auto.commit": False,
        }
    )
    try:
        return [_numbers_of(consumer, topic, number) for number in range(PARTITIONS)]
    finally:
        consumer.close()


def _numbers_of(consumer: Consumer, topic: str, partition: int) -> list[int]:
    tp = TopicPartition(topic, partition, 0)
    _, end = consumer.get_watermark_offsets(tp, timeout=30)
    consumer.assign([tp])
    found: list[int] = []
    while len(found) < end:
        messages = consumer.consume(end - len(found), 30)
        assert messages
        found += [int((message.value() or b"").split(b" ")[0]) for message in messages]
    return found


def in_order(batches: int) -> list[list[int]]:
    return [list(range(p, batches * ROWS, PARTITIONS)) for p in range(PARTITIONS)]


def leader_of(cluster: RunningCluster, topic: str) -> int:
    with cluster.admin() as admin:
        (described,) = admin.describe_topics([topic])
    return described.partitions[0].leader


def kill(cluster: RunningCluster, topic: str) -> None:
    cluster.kill_broker(leader_of(cluster, topic))


def freeze(cluster: RunningCluster, topic: str) -> None:
    cluster.pause_broker(leader_of(cluster, topic))


def heal(cluster: RunningCluster) -> None:
    for broker_id in cluster.broker_ids:
        if cluster.broker_pid(broker_id) is None:
            cluster.restart_broker(broker_id)
        cluster.resume_broker(broker_id)
    wait_until_whole(cluster)


def test_d2_a_killed_leader_costs_no_row_and_none_is_twice(cluster: RunningCluster) -> None:
    create(cluster, "killed")

    def hurt(number: int) -> None:
        if number == 10:
            kill(cluster, "killed")

    assert write(cluster, "killed", rows(30, hurt)) == 30 * ROWS
    assert numbers_in(cluster, "killed") == in_order(30)
    heal(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [kill, freeze])
def test_d2_leaders_lost_again_and_again(
    cluster: RunningCluster, loss: Callable[[RunningCluster, str], None]
) -> None:
    topic = f"again-{loss.__name__}"
    create(cluster, topic)

    def hurt(number: int) -> None:
        if number % 20 == 10:
            loss(cluster, topic)
        if number % 20 == 19:
            heal(cluster)

    assert write(cluster, topic, rows(120, hurt)) == 120 * ROWS
    heal(cluster)
    assert numbers_in(cluster, topic) == in_order(120)


@pytest.mark.slow
def test_too_few_replicas_are_waited_for_and_told(cluster: RunningCluster) -> None:
    create(cluster, "few")
    leader = leader_of(cluster, "few")
    others = [broker_id for broker_id in cluster.broker_ids if broker_id != leader]

    def lose(number: int) -> None:
        if number == 3:
            for broker_id in others:
                cluster.kill_broker(broker_id)

    with pytest.raises(ClusterUnavailable, match=r"writing to topic few partition \d fails"):
        write(cluster, "few", rows(10, lose), delivery_timeout_ms=3_000, request_timeout_ms=1_000)
    healing = threading.Timer(3, heal, [cluster])
    healing.start()
    started = time.monotonic()
    assert write(cluster, "few", rows(4, lambda number: None)) == 4 * ROWS
    assert time.monotonic() - started > 1
    healing.join()
