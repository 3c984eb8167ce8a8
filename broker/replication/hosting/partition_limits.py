"""The configuration of this broker's partitions, which may change while they are served."""

from typing import Final, NamedTuple

from quorate.broker.config.compaction import (
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_ENABLE,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
)
from quorate.broker.config.dynamic_config import LiveConfiguration
from quorate.broker.config.producers import TRANSACTION_PARTITION_VERIFICATION_ENABLE
from quorate.broker.config.replication import (
    REPLICA_LAG_TIME_MAX_MS,
    REPLICA_SILENCE_MAX_MS,
)
from quorate.broker.config.topic_keys import (
    TOPIC_CLEANUP_POLICY,
    TOPIC_COMPRESSION_TYPE,
    TOPIC_DELETE_RETENTION_MS,
    TOPIC_KEY_SCHEMA_VALIDATION,
    TOPIC_MAX_COMPACTION_LAG_MS,
    TOPIC_MAX_MESSAGE_BYTES,
    TOPIC_MIN_CLEANABLE_DIRTY_RATIO,
    TOPIC_MIN_COMPACTION_LAG_MS,
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_RETENTION_BYTES,
    TOPIC_RETENTION_MS,
    TOPIC_SEGMENT_BYTES,
    TOPIC_SEGMENT_MS,
    TOPIC_TIMESTAMP_AFTER_MAX_MS,
    TOPIC_TIMESTAMP_BEFORE_MAX_MS,
    TOPIC_TIMESTAMP_TYPE,
    TOPIC_VALUE_SCHEMA_VALIDATION,
)
from quorate.broker.config.topics import (
    CODEC_OF_TYPE,
    LOG_APPEND_TIME,
    MESSAGE_MAX_DECOMPRESSED_BYTES,
)
from quorate.broker.log import KEEP_ALL, Retention
from quorate.broker.log.batches.schema_prefixes import NamedParts
from quorate.broker.log.batches.topic_timestamps import TopicStorageOptions
from quorate.broker.log.compaction.log_selection import CompactionOptions
from quorate.common.configuration import list_items

LONG_POLLS_MIN: Final = 3
"""The long polls that fit into the time after which a follower or leader counts as silent."""


class CleanerLimits(NamedTuple):
    """The values of ``log.cleaner.*``: what compaction may take of a broker."""

    is_enabled: bool = True
    backoff_ms: int = 15_000
    dedupe_buffer_bytes: int = 128 << 20
    io_max_bytes_per_second: float = float("inf")


class PartitionLimits:
    """Looks up what is configured now: for a topic, or else for the broker."""

    def __init__(self, live: LiveConfiguration) -> None:
        self._live = live

    def lag_time_max_ms(self) -> int:
        """Return ``replica.lag.time.max.ms`` (C13)."""
        return self._live[REPLICA_LAG_TIME_MAX_MS]

    def silence_max_ms(self) -> int:
        """Return ``replica.silence.max.ms``."""
        return self._live[REPLICA_SILENCE_MAX_MS]

    def fetch_wait_ms(self, wanted_ms: int) -> int:
        """Return how long a follower's fetch waits in effect that wants to wait so long.

        A stream is quiet while a fetch waits. A wait as long as the silence that counts as a cut
        would make every idle follower look cut off.
        """
        return min(wanted_ms, self.silence_max_ms() // LONG_POLLS_MIN)

    def min_insync_replicas(self, topic: str) -> int:
        """Return ``min.insync.replicas`` of the topic."""
        return self._live.of_topic(topic, TOPIC_MIN_INSYNC_REPLICAS)

    def max_batch_bytes(self, topic: str) -> int:
        """Return ``max.message.bytes`` of the topic."""
        return self._live.of_topic(topic, TOPIC_MAX_MESSAGE_BYTES)

    def storing(self, topic: str) -> TopicStorageOptions:
        """Return what becomes of the timestamps of records and the codecs of batches."""
        of_topic = self._live.of_topic
        parts = NamedParts(
            keys=of_topic(topic, TOPIC_KEY_SCHEMA_VALIDATION),
            values=of_topic(topic, TOPIC_VALUE_SCHEMA_VALIDATION),
        )
        return TopicStorageOptions(
            log_append_time=of_topic(topic, TOPIC_TIMESTAMP_TYPE) == LOG_APPEND_TIME,
            before_max_ms=of_topic(topic, TOPIC_TIMESTAMP_BEFORE_MAX_MS),
            after_max_ms=of_topic(topic, TOPIC_TIMESTAMP_AFTER_MAX_MS),
            codec=CODEC_OF_TYPE.get(of_topic(topic, TOPIC_COMPRESSION_TYPE)),
            decompressed_max_bytes=self._live[MESSAGE_MAX_DECOMPRESSED_BYTES],
            named_parts=parts if any(parts) else None,
        )

    def retention(self, topic: str) -> Retention:
        """Return what is kept of each partition: all, without ``delete`` in ``cleanup.policy``."""
        of_topic = self._live.of_topic
        if "delete" not in self._cleanup_policies(topic):
            return KEEP_ALL
        return Retention(
            of_topic(topic, TOPIC_RETENTION_MS), of_topic(topic, TOPIC_RETENTION_BYTES)
        )

    def compaction(self, topic: str) -> CompactionOptions | None:
        """Return how the topic is compacted, or None without ``compact`` in ``cleanup.policy``."""
        if "compact" not in self._cleanup_policies(topic):
            return None
        of_topic = self._live.of_topic
        return CompactionOptions(
            min_cleanable_dirty_ratio=of_topic(topic, TOPIC_MIN_CLEANABLE_DIRTY_RATIO),
            min_compaction_lag_ms=of_topic(topic, TOPIC_MIN_COMPACTION_LAG_MS),
            max_compaction_lag_ms=of_topic(topic, TOPIC_MAX_COMPACTION_LAG_MS),
            delete_retention_ms=of_topic(topic, TOPIC_DELETE_RETENTION_MS),
            segment_ms=of_topic(topic, TOPIC_SEGMENT_MS),
            segment_bytes=of_topic(topic, TOPIC_SEGMENT_BYTES),
        )

    def cleaner(self) -> CleanerLimits:
        """Return what compaction may take."""
        live = self._live
        return CleanerLimits(
            is_enabled=live[LOG_CLEANER_ENABLE],
            backoff_ms=live[LOG_CLEANER_BACKOFF_MS],
            dedupe_buffer_bytes=live[LOG_CLEANER_DEDUPE_BUFFER_SIZE],
            io_max_bytes_per_second=live[LOG_CLEANER_IO_MAX_BYTES_PER_SECOND],
        )

    def verifies_transactions(self) -> bool:
        """Return ``transaction.partition.verification.enable``."""
        return self._live[TRANSACTION_PARTITION_VERIFICATION_ENABLE]

    def _cleanup_policies(self, topic: str) -> list[str]:
        return list_items(self._live.of_topic(topic, TOPIC_CLEANUP_POLICY))
