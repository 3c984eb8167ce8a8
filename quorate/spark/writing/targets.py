"""What is written to: topics and their partitions, and which rows go to which."""

from dataclasses import dataclass
from typing import NamedTuple

from quorate.spark.ranges import TopicPartition
from quorate.spark.writing.columns import Int64Array


class TopicTargets(NamedTuple):
    """A topic that is written to, as the cluster describes it."""

    topic_id: bytes
    partitions: int
    bytes_max: int
    """Of a batch; 0: not known."""


@dataclass(frozen=True, slots=True)
class Target:
    """A partition that is written to. Its slot is its position among all of a writer's targets."""

    partition: TopicPartition
    topic_id: bytes
    bytes_max: int
    """Of a batch; 0: not known."""


class RowsOfSlot(NamedTuple):
    """The rows order[begin:end] go to the target of that slot."""

    slot: int
    order: Int64Array
    begin: int
    end: int
