"""Offsets: the ranges that a query reads, and the questions that leaders answer about them."""

from dataclasses import dataclass
from typing import NamedTuple

from quorate.common.topic_partition import TopicPartition

EARLIEST = -2
"""Kafka's timestamp that asks for the earliest offset."""
LATEST = -1
"""Kafka's timestamp that asks for the latest offset."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition with ``start <= offset < end``."""

    topic_partition: TopicPartition
    start: int
    end: int
    topic_id: bytes = b""
    """The topic's id when the range was planned. It shows whether the topic was re-created."""

    @property
    def size(self) -> int:
        """The number of offsets: an upper bound of the records, exact without compaction."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic as the cluster describes it."""

    topic_id: bytes
    partitions: int


class OffsetQuestion(NamedTuple):
    """A question to the leader of a partition, as Kafka's ListOffsets request has it."""

    topic_partition: TopicPartition
    timestamp_ms: int
    """`EARLIEST`, `LATEST`, or a time: then the first offset at or after it is asked for."""
