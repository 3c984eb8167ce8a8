"""The settings with which the fixtures start clusters: nothing makes a test wait."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

FAST_SETTINGS: Final[Mapping[str, object]] = MappingProxyType(
    {
        # A group's first members are not waited for: 3 s in production.
        "group.initial.rebalance.delay.ms": 0,
        # Members of the consumer protocol hear of a new assignment by their heartbeats.
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.assignment.interval.ms": 0,
        # Internal topics are created by the first test that needs them; 50 partitions are not.
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        # The operating system writes to the disk when it likes: only a power loss loses records.
        "log.flush": "os",
    }
)
