"""Topics to read: records of one size, as a real client batches and compresses them."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Producer

from quorate.client.admin import AdminClient
from quorate.client.results import NewTopic
from quorate.common.topic_partition import TopicPartition
from quorate.spark.cluster_client import ClusterClient
from quorate.spark.retries import RetryPolicy
from quorate_proto.v1.replication_pb2 import RangeReadRequest

FRAME_BYTES: Final = 1 << 20
_TEMPLATES: Final = 4096
"""Different ends of values; repeated, so that the producer is not what is measured."""
_NUMBER_BYTES: Final = 16
"""Each value begins with its row's number: a dictionary would make Parquet's work too easy."""
_FLUSH_TIMEOUT_S: Final = 300


@dataclass(frozen=True)
class Topic:
    """Records of one kind, no value twice; half of a value's bytes are random, as codecs see it."""

    name: str
    value_bytes: int = 100
    key_bytes: int = 0
    codec: str = "none"
    batch_bytes: int = 128 << 10
    partitions: int = 1

    @property
    def record_bytes(self) -> int:
        return self.key_bytes + self.value_bytes

    def create(self, bootstrap: str, rows: int) -> None:
        """The topic, with ``rows`` records over its partitions."""
        with AdminClient(bootstrap) as admin:
            new = NewTopic(name=self.name, num_partitions=self.partitions, replication_factor=1)
            admin.create_topics([new])[0].raise_for_error()
        self.fill(bootstrap, rows)

    def fill(self, bootstrap: str, rows: int) -> None:
        """Produce ``rows`` records to the topic that is there, over its partitions in turn.

        Raises:
            RuntimeError: not all of them were acknowledged.
        """
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 200,
                "batch.size": self.batch_bytes,
                "batch.num.messages": 1_000_000,
                "compression.type": self.codec,
                "queue.buffering.max.messages": 0,
                "queue.buffering.max.kbytes": (1 << 31) - 1,
            }
        )
        keys = [os.urandom(self.key_bytes) or None for _ in range(_TEMPLATES)]
        ends = [_half_random(self.value_bytes - _NUMBER_BYTES) for _ in range(_TEMPLATES)]
        for row in range(rows):
            value = b"%016d%s" % (row, ends[row % _TEMPLATES])
            if row % _TEMPLATES == 0:
                producer.poll(0)
            producer.produce(
                self.name, value, keys[row % _TEMPLATES], partition=row % self.partitions
            )
        if left := producer.flush(_FLUSH_TIMEOUT_S):
            raise RuntimeError(f"{left} of {rows} records of {self.name} were not acknowledged")


def frames(bootstrap: str, topic: Topic, rows: int) -> Iterator[bytes]:
    """The first ``rows`` offsets of partition 0, as a leader sends them."""
    partition = TopicPartition(topic.name, 0)
    with ClusterClient(bootstrap, RetryPolicy(10, 100)) as cluster:
        cluster.refresh([partition])
        leader = cluster.leader_of(partition)
        if leader is None:
            raise RuntimeError(f"{partition} has no leader")
        request = RangeReadRequest(
            topic=topic.name, start_offset=0, end_offset=rows, max_frame_bytes=FRAME_BYTES
        )
        yield from cluster.open_range(leader, request)


def _half_random(size: int) -> bytes:
    digits = random.Random(os.urandom(8)).randbytes(size // 2).hex().encode()
    return digits.ljust(size, b"-")
