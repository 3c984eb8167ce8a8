"""A coordinator that was stopped goes on with what it knew: it must not tell it any more.

While it stood still, its partition of __consumer_offsets was given to another broker, which took
later offsets. Whoever was told the earlier ones then would do work again that is done.
"""

import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from quorate.broker.config.internal_topics import OFFSETS_TOPIC, partition_of
from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from quorate_proto.v1 import errors_pb2
from tests.support.raw_client import RawClient, string
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TOPIC, GROUP = "orders", "paused"
OFFSET_FETCH, OFFSET_FETCH_VERSION = 9, 2
ASKED = string(GROUP) + struct.pack(">i", 1) + string(TOPIC) + struct.pack(">ii", 1, 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, config={"offsets.topic.num.partitions": 3}) as cluster:
        with cluster.admin() as admin:
            new = NewTopic(name=TOPIC, num_partitions=1, replication_factor=3)
            admin.create_topics([new])[0].raise_for_error()
        wait_until_whole(cluster)
        yield cluster


def commit(cluster: RunningCluster, offset: int) -> None:
    """By a consumer that is no member, and has met no broker yet."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "log_level": 0}
    consumer = Consumer(settings)

    def is_committed() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        except KafkaException:
            return False
        return True

    try:
        wait_until(is_committed, f"the commit of {offset}")
    finally:
        consumer.close()


def coordinator(cluster: RunningCluster) -> int:
    """As the others know it; -1: nobody."""
    with cluster.admin() as admin:
        partitions = admin.describe_topics([OFFSETS_TOPIC])[0].partitions
    return partitions[partition_of(GROUP, len(partitions))].leader


def committed_in(answer: bytes) -> tuple[int, int]:
    """(error code, offset) of an answer about one partition."""
    (error_code,) = struct.unpack_from(">h", answer, len(answer) - 2)
    at = 4 + len(string(TOPIC)) + 4 + 4
    (offset,) = struct.unpack_from(">q", answer, at) if len(answer) > at + 8 else (-1,)
    return error_code, offset


def test_a_coordinator_that_was_stopped_does_not_tell_offsets_of_before(
    cluster: RunningCluster,
) -> None:
    commit(cluster, 10)
    wait_until_whole(cluster)
    stopped = coordinator(cluster)
    with RawClient(cluster.broker_address(stopped)) as client:
        answer = client.call(OFFSET_FETCH, OFFSET_FETCH_VERSION, ASKED)
        assert committed_in(answer) == (errors_pb2.NONE, 10)
        cluster.pause_broker(stopped)
        try:
            commit(cluster, 20)
            client.send(OFFSET_FETCH, OFFSET_FETCH_VERSION, ASKED)
        finally:
            cluster.resume_broker(stopped)
        error_code, offset = committed_in(client.receive())
    assert error_code == errors_pb2.NOT_COORDINATOR or offset == 20
    wait_until_whole(cluster)
