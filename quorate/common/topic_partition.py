"""The name of a partition.

It has a module of its own because every Python worker of Spark imports it: `quorate.common.types`
needs msgspec, whose import takes far longer.
"""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition by the name of its topic, as clients and people know it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
