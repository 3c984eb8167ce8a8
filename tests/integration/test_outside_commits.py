"""Spark's offsets and the death of their coordinator: a group never goes back, nor loses any.

Two drivers commit to one group, one of which should be dead and knows only older offsets. What the
group was told, in order, is in __consumer_offsets.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from quorate.broker.config.internal_topics import OFFSETS_TOPIC
from quorate.broker.coordinator.groups.state import group_log_format as log_format
from quorate.broker.coordinator.groups.state.group_log_format import OffsetKey
from quorate.client.results import NewTopic
from quorate.common import topic_partition
from quorate.spark.cluster_client import ClusterClient
from quorate.spark.committing.group_offset_committer import GroupOffsetCommitter, ReachedOffset
from quorate.spark.options.read_options import GroupCommits
from quorate.spark.retries import RetryPolicy
from quorate.testing import RunningCluster, running_cluster
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC, GROUP = "orders", "lake"
ORDERS = topic_partition.TopicPartition(TOPIC, 0)
RETRY_POLICY = RetryPolicy(40, 50)


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, config={"offsets.topic.num.partitions": 1}) as cluster:
        with cluster.admin() as admin:
            new = NewTopic(name=TOPIC, num_partitions=1, replication_factor=3)
            admin.create_topics([new])[0].raise_for_error()
        wait_until_whole(cluster)
        yield cluster


class Drivers:
    """Two at once, until told to stop; a failure of one ends both, and is raised."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.acknowledged = 0
        """The offset that the one in charge has committed."""
        self._cluster = cluster
        self._stop = threading.Event()
        self._failures: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._run, args=(is_zombie,)) for is_zombie in (False, True)
        ]

    def __enter__(self) -> "Drivers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def wait_for_more(self) -> None:
        """Until some more commits were acknowledged."""
        wanted = self.acknowledged + 20
        wait_until(
            lambda: self.acknowledged >= wanted or bool(self._failures), f"a commit of {wanted}"
        )

    def _run(self, is_zombie: bool) -> None:
        chance = random.Random(3)
        bootstrap = self._cluster.bootstrap
        try:
            with ClusterClient(bootstrap, RETRY_POLICY) as client:
                group = GroupOffsetCommitter(client, GroupCommits(GROUP), RETRY_POLICY)
                while not self._stop.is_set():
                    offset = self.acknowledged + 1
                    if is_zombie:
                        offset = chance.randrange(offset)
                    group.commit([ReachedOffset(ORDERS, b"", offset)])
                    if not is_zombie:
                        self.acknowledged = offset
        except Exception as error:  # noqa: BLE001 - raised at the end
            self._failures.append(error)


def coordinator(cluster: RunningCluster) -> int:
    """As the others know it; -1: nobody."""
    with cluster.admin() as admin:
        return admin.describe_topics([OFFSETS_TOPIC])[0].partitions[0].leader


def history(cluster: RunningCluster) -> list[int]:
    """Every offset that the group was told, in order."""
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    told: list[int] = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(OFFSETS_TOPIC, 0, 0)])
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                return told
            key = log_format.decode_key(message.key() or b"")
            if isinstance(key, OffsetKey) and key.group_id == GROUP:
                told.append(log_format.decode_offset(message.value() or b"").offset)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_group_never_goes_back_while_its_coordinators_die(
    cluster: RunningCluster, kills: int
) -> None:
    with Drivers(cluster) as drivers:
        drivers.wait_for_more()
        for _ in range(kills):
            victim = coordinator(cluster)
            if victim < 0:
                continue
            cluster.kill_broker(victim)
            drivers.wait_for_more()
            cluster.restart_broker(victim)
            drivers.wait_for_more()
    told = history(cluster)
    assert told == sorted(told), "it went back"
    assert told[-1] >= drivers.acknowledged, "a commit that was acknowledged is lost"
    assert len(told) >= drivers.acknowledged
