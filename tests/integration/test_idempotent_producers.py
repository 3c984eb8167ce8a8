"""Idempotent producers (KIP-98): what is sent again is stored once, whoever leads by then.

By hand, where every step is known; and by librdkafka with five requests in flight, while brokers
are killed under it.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from quorate.client.results import NewTopic
from quorate.spark.options.connection_options import ConnectionOptions
from quorate.spark.writing.write_options import WriteOptions
from quorate.spark.writing.write_task import write_rows
from quorate.testing import RunningCluster, running_cluster
from quorate_proto.v1 import errors_pb2
from tests.support.acked_load import (
    acked_load,
    assert_nothing_lost,
    assert_nothing_twice,
    assert_order_kept,
    consume_all,
)
from tests.support.raw_client import ProduceAnswer, RawClient, fetch, produce, send_produce
from tests.support.record_batches import Record, encode_batch
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PARTITIONS = 6
EVERY_S = 0.0005
"""So often a record is sent: some requests are in flight whenever a broker is killed."""

PRODUCER = 4_000_000_000
"""An id that no broker of these tests hands out."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3) as cluster:
        yield cluster


def create(cluster: RunningCluster, topic: str, partitions: int) -> None:
    with cluster.admin() as admin:
        new = NewTopic(name=topic, num_partitions=partitions, replication_factor=3)
        admin.create_topics([new])[0].raise_for_error()
    wait_until_known(cluster, topic, partitions)


def leader_of(cluster: RunningCluster, topic: str) -> int:
    with cluster.admin() as admin:
        return admin.describe_topics([topic])[0].partitions[0].leader


def numbered(sequence: int, *, epoch: int = 0) -> bytes:
    """Two records."""
    records = [Record(offset, value=b"%d" % (sequence + offset)) for offset in range(2)]
    return encode_batch(records, producer=(PRODUCER, epoch, sequence))


def send(cluster: RunningCluster, topic: str, batch: bytes) -> ProduceAnswer:
    """To whoever leads, as soon as somebody does and knows it."""
    answers: list[ProduceAnswer] = []

    def is_answered() -> bool:
        leader = leader_of(cluster, topic)
        if leader < 0:
            return False
        try:
            with RawClient(cluster.broker_address(leader)) as client:
                answers.append(produce(client, topic, 0, batch))
        except OSError:
            return False
        return answers[-1].error_code != errors_pb2.NOT_LEADER_OR_FOLLOWER

    wait_until(is_answered, f"an answer from the leader of {topic}")
    return answers[-1]


def nothing(_: RunningCluster, __: int) -> None:
    """The same leader goes on."""


def kill(cluster: RunningCluster, leader: int) -> None:
    cluster.kill_broker(leader)


def restart(cluster: RunningCluster, leader: int) -> None:
    cluster.kill_broker(leader)
    cluster.restart_broker(leader)


@pytest.mark.parametrize("happens", [nothing, kill, restart])
def test_kip_98_an_answer_that_was_lost_is_given_by_whoever_leads_then(
    cluster: RunningCluster, happens: Callable[[RunningCluster, int], None]
) -> None:
    topic = f"lost-answer-{happens.__name__}"
    create(cluster, topic, 1)
    wait_until_whole(cluster)
    assert send(cluster, topic, numbered(0)) == (errors_pb2.NONE, 0)
    leader = leader_of(cluster, topic)
    with RawClient(cluster.broker_address(leader)) as client:
        send_produce(client, topic, 0, numbered(2))
        wait_until(lambda: end_offset(cluster, topic, leader) == 4, "the append")
    happens(cluster, leader)
    assert send(cluster, topic, numbered(2)) == (errors_pb2.NONE, 2)
    assert send(cluster, topic, numbered(6)).error_code == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(cluster, topic, numbered(4)) == (errors_pb2.NONE, 4)
    assert send(cluster, topic, numbered(0, epoch=1)) == (errors_pb2.NONE, 6)
    assert send(cluster, topic, numbered(6)).error_code == errors_pb2.INVALID_PRODUCER_EPOCH
    if happens is kill:
        cluster.restart_broker(leader)
    wait_until_whole(cluster)


def end_offset(cluster: RunningCluster, topic: str, leader: int) -> int:
    with RawClient(cluster.broker_address(leader)) as client:
        return fetch(client, topic, 0, 0).high_watermark


def kill_leaders_under_load(cluster: RunningCluster, topic: str, kills: int) -> None:
    create(cluster, topic, PARTITIONS)
    wait_until_whole(cluster)
    with acked_load(
        cluster.bootstrap, topic, PARTITIONS, every_s=EVERY_S, enable_idempotence="true"
    ) as load:
        for _ in range(kills):
            load.wait_for_more(50)
            victim = leader_of(cluster, topic)
            cluster.kill_broker(victim)
            load.wait_for_more(50)
            cluster.restart_broker(victim)
            wait_until_whole(cluster)
        acknowledged = load.stop()
    assert not acknowledged.failures
    consumed = consume_all(cluster.bootstrap, topic, PARTITIONS)
    assert_nothing_twice(consumed)
    assert_nothing_lost(acknowledged, consumed)
    assert_order_kept(acknowledged)


def test_kip_98_a_killed_leader_loses_nothing_doubles_nothing_and_keeps_order(
    cluster: RunningCluster,
) -> None:
    kill_leaders_under_load(cluster, "killed-once", kills=1)


def test_kip_98_a_leader_killed_under_a_spark_task_loses_nothing_and_doubles_nothing(
    cluster: RunningCluster,
) -> None:
    topic, rows = "spark-task", range(0, 40_000, 500)
    create(cluster, topic, PARTITIONS)
    wait_until_whole(cluster)
    victim = leader_of(cluster, topic)

    def batches() -> Iterator[pa.RecordBatch]:
        for first in rows:
            if first == rows[len(rows) // 2]:
                cluster.kill_broker(victim)
            keys = [b"%08d" % number for number in range(first, first + rows.step)]
            yield pa.record_batch({"key": keys, "value": keys})

    connection = ConnectionOptions(cluster.bootstrap, retries_max=50)
    options = WriteOptions(connection, topic=topic, batch_bytes=4_000)
    assert write_rows(options, batches(), task=0) == rows.stop
    consumed = consume_all(cluster.bootstrap, topic, PARTITIONS)
    assert_nothing_twice(consumed)
    assert len(consumed) == rows.stop
    for partition in range(PARTITIONS):
        stored = sorted((o, key) for key, ((p, o, _),) in consumed.items() if p == partition)
        assert [key for _, key in stored] == sorted(key for _, key in stored)
    cluster.restart_broker(victim)
    wait_until_whole(cluster)


@pytest.mark.slow
def test_kip_98_many_killed_leaders_lose_double_and_reorder_nothing(
    cluster: RunningCluster,
) -> None:
    kill_leaders_under_load(cluster, "killed-often", kills=15)
