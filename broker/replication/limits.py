"""What is configured for the partitions of a broker, and may change while they are served."""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from broker.log import KEEP_ALL, Retention
from broker.log.compaction.choosing import Compaction
from broker.log.storing import AS_SENT, Storing


class CleanerLimits(NamedTuple):
    """``log.cleaner.*``: what compaction may take of a broker."""

    is_enabled: bool = True
    backoff_ms: int = 15_000
    dedupe_buffer_bytes: int = 128 << 20
    io_max_bytes_per_second: float = float("inf")


ANY_CLEANING: Final = CleanerLimits()


class Limits(Protocol):
    """As they are now; ``live_limits.LiveLimits`` is the real one."""

    def lag_time_max_ms(self) -> int:
        """``replica.lag.time.max.ms`` (C13)."""

    def min_insync_replicas(self, topic: str) -> int:
        """Of the topic, or the broker's."""

    def retention(self, topic: str) -> Retention:
        """What is kept of each of the topic's partitions; all, unless ``cleanup.policy`` has
        ``delete``."""

    def compaction(self, topic: str) -> Compaction | None:
        """How the topic is compacted; None, unless ``cleanup.policy`` has ``compact``."""

    def cleaner(self) -> CleanerLimits:
        """What compaction may take."""

    def max_batch_bytes(self, topic: str) -> int:
        """``max.message.bytes`` of the topic, or the broker's ``message.max.bytes``."""

    def storing(self, topic: str) -> Storing:
        """What becomes of the times of records, and of batches' codecs."""


@dataclass(kw_only=True)
class FixedLimits:
    """The same for all topics, until somebody says otherwise: for tests and benchmarks."""

    lag_time: int = 30_000
    min_insync: int = 1
    batch_bytes: int = 8 << 20
    kept: Retention = KEEP_ALL
    compacted: Compaction | None = None
    cleaning: CleanerLimits = ANY_CLEANING
    stored: Storing = AS_SENT

    def lag_time_max_ms(self) -> int:
        return self.lag_time

    def min_insync_replicas(self, topic: str) -> int:
        return self.min_insync

    def max_batch_bytes(self, topic: str) -> int:
        return self.batch_bytes

    def retention(self, topic: str) -> Retention:
        return self.kept

    def compaction(self, topic: str) -> Compaction | None:
        return self.compacted

    def cleaner(self) -> CleanerLimits:
        return self.cleaning

    def storing(self, topic: str) -> Storing:
        return self.stored
