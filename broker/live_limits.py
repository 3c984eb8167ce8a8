"""The limits of a broker's partitions, as they are configured now."""

from broker.config.compaction import (
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_ENABLE,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
)
from broker.config.replication import REPLICA_LAG_TIME_MAX_MS
from broker.config.topics import CODEC_OF_TYPE, LOG_APPEND_TIME
from broker.dynamic_config import LiveConfiguration
from broker.log import KEEP_ALL, Retention
from broker.log.compaction.choosing import Compaction
from broker.log.storing import Storing
from broker.replication.limits import CleanerLimits
from broker.topic_config import (
    TOPIC_CLEANUP_POLICY,
    TOPIC_COMPRESSION_TYPE,
    TOPIC_DELETE_RETENTION_MS,
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
)
from metadata_log.configuration import list_items


class LiveLimits:
    """For ``replication.manager``."""

    def __init__(self, live: LiveConfiguration) -> None:
        self._live = live

    def lag_time_max_ms(self) -> int:
        return self._live[REPLICA_LAG_TIME_MAX_MS]

    def min_insync_replicas(self, topic: str) -> int:
        return self._live.of_topic(topic, TOPIC_MIN_INSYNC_REPLICAS)

    def max_batch_bytes(self, topic: str) -> int:
        return self._live.of_topic(topic, TOPIC_MAX_MESSAGE_BYTES)

    def storing(self, topic: str) -> Storing:
        of_topic = self._live.of_topic
        return Storing(
            log_append_time=of_topic(topic, TOPIC_TIMESTAMP_TYPE) == LOG_APPEND_TIME,
            before_max_ms=of_topic(topic, TOPIC_TIMESTAMP_BEFORE_MAX_MS),
            after_max_ms=of_topic(topic, TOPIC_TIMESTAMP_AFTER_MAX_MS),
            codec=CODEC_OF_TYPE.get(of_topic(topic, TOPIC_COMPRESSION_TYPE)),
        )

    def retention(self, topic: str) -> Retention:
        of_topic = self._live.of_topic
        if "delete" not in self._cleanup_policies(topic):
            return KEEP_ALL
        return Retention(
            of_topic(topic, TOPIC_RETENTION_MS), of_topic(topic, TOPIC_RETENTION_BYTES)
        )

    def compaction(self, topic: str) -> Compaction | None:
        if "compact" not in self._cleanup_policies(topic):
            return None
        of_topic = self._live.of_topic
        return Compaction(
            min_cleanable_dirty_ratio=of_topic(topic, TOPIC_MIN_CLEANABLE_DIRTY_RATIO),
            min_compaction_lag_ms=of_topic(topic, TOPIC_MIN_COMPACTION_LAG_MS),
            max_compaction_lag_ms=of_topic(topic, TOPIC_MAX_COMPACTION_LAG_MS),
            delete_retention_ms=of_topic(topic, TOPIC_DELETE_RETENTION_MS),
            segment_ms=of_topic(topic, TOPIC_SEGMENT_MS),
            segment_bytes=of_topic(topic, TOPIC_SEGMENT_BYTES),
        )

    def cleaner(self) -> CleanerLimits:
        live = self._live
        return CleanerLimits(
            is_enabled=live[LOG_CLEANER_ENABLE],
            backoff_ms=live[LOG_CLEANER_BACKOFF_MS],
            dedupe_buffer_bytes=live[LOG_CLEANER_DEDUPE_BUFFER_SIZE],
            io_max_bytes_per_second=live[LOG_CLEANER_IO_MAX_BYTES_PER_SECOND],
        )

    def _cleanup_policies(self, topic: str) -> list[str]:
        return list_items(self._live.of_topic(topic, TOPIC_CLEANUP_POLICY))
