"""Limits of replicas that are the same for every topic."""

from dataclasses import dataclass, field

from quorate.broker.log import KEEP_ALL, Retention
from quorate.broker.log.batches.topic_timestamps import AS_SENT, TopicStorageOptions
from quorate.broker.log.compaction.log_selection import CompactionOptions
from quorate.broker.replication.hosting.partition_limits import CleanerLimits, PartitionLimits
from quorate.broker.replication.hosting.replication_throttle import (
    UNLIMITED,
    ReplicationThrottle,
    ReplicationThrottles,
    ThrottleConfig,
)
from quorate.common.types import TopicPartition


class FixedThrottle(ThrottleConfig):
    """One side of a broker: a rate, and the topic whose replicas it throttles."""

    def __init__(self, rate: int = UNLIMITED, topic: str = "moved") -> None:
        self.rate_now = rate
        self.topic = topic

    def rate(self) -> int:
        return self.rate_now

    def covers(self, tp: TopicPartition) -> bool:
        return tp.topic == self.topic


@dataclass(kw_only=True)
class FixedLimits(PartitionLimits):
    """The same for all topics, until somebody says otherwise."""

    lag_time: int = 30_000
    silence: int = 5_000
    min_insync: int = 1
    batch_bytes: int = 8 << 20
    kept: Retention = KEEP_ALL
    compacted: CompactionOptions | None = None
    cleaning: CleanerLimits = field(default_factory=CleanerLimits)
    stored: TopicStorageOptions = AS_SENT
    verifies: bool = True
    leader_throttle: FixedThrottle = field(default_factory=FixedThrottle)
    follower_throttle: FixedThrottle = field(default_factory=FixedThrottle)

    def throttles(self) -> ReplicationThrottles:
        return ReplicationThrottles(
            ReplicationThrottle(self.leader_throttle), ReplicationThrottle(self.follower_throttle)
        )

    def verifies_transactions(self) -> bool:
        return self.verifies

    def lag_time_max_ms(self) -> int:
        return self.lag_time

    def silence_max_ms(self) -> int:
        return self.silence

    def min_insync_replicas(self, topic: str) -> int:
        return self.min_insync

    def max_batch_bytes(self, topic: str) -> int:
        return self.batch_bytes

    def retention(self, topic: str) -> Retention:
        return self.kept

    def compaction(self, topic: str) -> CompactionOptions | None:
        return self.compacted

    def cleaner(self) -> CleanerLimits:
        return self.cleaning

    def storing(self, topic: str) -> TopicStorageOptions:
        return self.stored
