"""Keeps what a cluster has acknowledged, and checks that it is there."""

import random
from collections.abc import Sequence

from confluent_kafka import KafkaError, Message, Producer

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster
from tests.support.acked_load import Acknowledged, assert_nothing_lost, consume_all
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known

TOPIC = "acknowledged"
PARTITIONS = 2
_REPEATS = 64
_FLUSH_S = 40.0
_MARKS = 5
"""The number of topics that are there at a time only to be looked for."""


class BrokenPromise(AssertionError):
    """Something acknowledged is not there."""


class Promises:
    """Records acknowledged with acks=all, and topics that were created."""

    def __init__(self, cluster: RunningCluster, chance: random.Random) -> None:
        self._cluster, self._chance = cluster, chance
        self._acknowledged = Acknowledged(_REPEATS)
        self._number = 0
        self._marks: list[str] = []
        configs = {"min.insync.replicas": "2"}
        self._create(_topic(TOPIC, PARTITIONS, len(cluster.broker_ids), configs))
        wait_until_known(cluster, TOPIC, PARTITIONS)
        with cluster.admin() as admin:
            self.topic_id = admin.describe_topics([TOPIC])[0].topic_id

    def _create(self, topic: NewTopic) -> None:
        with self._cluster.admin() as admin:
            admin.create_topics([topic])[0].raise_for_error()

    def produce(self, count: int) -> None:
        """Have ``count`` more records acknowledged.

        Raises:
            BrokenPromise: the cluster takes none.
        """
        producer = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 200,
                "batch.num.messages": 20,
                "log_level": 0,
            }
        )
        for _ in range(count):
            key = b"%08d" % self._number
            producer.produce(
                TOPIC,
                value=key * _REPEATS,
                key=key,
                partition=self._number % PARTITIONS,
                on_delivery=self._delivered,
            )
            self._number += 1
        if producer.flush(_FLUSH_S):
            raise BrokenPromise(f"records are not acknowledged within {_FLUSH_S:.0f} s")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        key, partition, offset = message.key(), message.partition(), message.offset()
        if error is None and key is not None and partition is not None and offset is not None:
            self._acknowledged.offsets[key] = (partition, offset)

    def change_metadata(self) -> None:
        """Create a topic, and delete the oldest of those that were created before."""
        mark = f"mark-{self._chance.randrange(10**9)}"
        self._create(_topic(mark, 1, len(self._cluster.broker_ids), {}))
        self._marks.append(mark)
        if len(self._marks) > _MARKS:
            with self._cluster.admin() as admin:
                admin.delete_topics([self._marks.pop(0)])[0].raise_for_error()

    def ends(self) -> dict[str, int]:
        """Return the offsets below which every replica has everything, by partition."""
        ends: dict[str, int] = {}
        for partition, offset in self._acknowledged.offsets.values():
            name = f"{self.topic_id.hex()}-{partition}"
            ends[name] = max(ends.get(name, 0), offset + 1)
        return ends

    def check(self) -> None:
        """Look for everything.

        Raises:
            BrokenPromise: something is missing, or is not what was written.
        """
        missing = self._missing_marks()
        if missing:
            raise BrokenPromise(f"topics are gone: {missing}")
        try:
            consumed = consume_all(self._cluster.bootstrap, TOPIC, PARTITIONS)
            assert_nothing_lost(self._acknowledged, consumed)
        except AssertionError as error:
            raise BrokenPromise(str(error)) from error

    def _missing_marks(self) -> Sequence[str]:
        """Return what is still missing when every broker has had the time to hear of it."""

        def missing() -> list[str]:
            with self._cluster.admin() as admin:
                there = {topic.name for topic in admin.describe_topics()}
            return [mark for mark in self._marks if mark not in there]

        try:
            wait_until(lambda: not missing(), "all topics", timeout_s=5.0)
        except AssertionError:
            return missing()
        return ()


def _topic(name: str, partitions: int, replicas: int, configs: dict[str, str]) -> NewTopic:
    return NewTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, configs=configs
    )
