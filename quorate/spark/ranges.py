"""What a query reads: partitions, and ranges of offsets in them."""

from dataclasses import dataclass
from typing import NamedTuple

EARLIEST = -2
LATEST = -1


class TopicPartition(NamedTuple):
    """A partition by the name of its topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition with ``start <= offset < end``."""

    topic_partition: TopicPartition
    start: int
    end: int
    topic_id: bytes = b""
    """The topic's id when the range was planned, so that a re-created topic is noticed."""

    @property
    def size(self) -> int:
        """Offsets in the range: an upper bound of the records, exact without compaction."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"
