"""The keys of a topic; where a topic sets none, many take the value of a key of the broker."""

from typing import Any, Final, Generic, NamedTuple

from broker.config.compaction import (
    LOG_CLEANER_DELETE_RETENTION_MS,
    LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    LOG_CLEANER_MIN_CLEANABLE_RATIO,
    LOG_CLEANER_MIN_COMPACTION_LAG_MS,
    LOG_CLEANUP_POLICY,
)
from broker.config.retention import LOG_RETENTION_BYTES, LOG_RETENTION_MS
from broker.config.topics import (
    COMPRESSION_TYPE,
    LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    LOG_MESSAGE_TIMESTAMP_TYPE,
    MESSAGE_MAX_BYTES,
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
)
from metadata_log.configuration import ConfigKey, ConfigSpec, T


class TopicKey(NamedTuple, Generic[T]):
    """A topic's key and the broker key whose value it takes the place of, if there is one."""

    key: ConfigKey[T]
    broker_key: ConfigKey[T] | None = None


def _over(name: str, broker_key: ConfigKey[T], doc: str) -> TopicKey[T]:
    """A topic key with the type and range of the broker key that it overrides."""
    key = ConfigKey(
        name=name,
        type=broker_key.type,
        doc=doc,
        default=broker_key.default,
        at_least=broker_key.at_least,
        at_most=broker_key.at_most,
        one_of=broker_key.one_of,
        pattern=broker_key.pattern,
        form=broker_key.form,
        is_list=broker_key.is_list,
    )
    return TopicKey(key, broker_key)


def _throttled(side: str, doc: str) -> TopicKey[str]:
    """Replicas of a topic, as Kafka names them for throttling (KIP-73)."""
    return TopicKey(
        ConfigKey(
            name=f"{side}.replication.throttled.replicas",
            type=str,
            default="",
            doc=doc,
            pattern=r"\*|(\d+:\d+(,\d+:\d+)*)?",
            form="* or partition:broker,partition:broker,…",
            is_list=True,
        )
    )


def _of_kafkas_files(name: str, default: T, at_least: int | None, what: str) -> TopicKey[T]:
    """A key about files that Kafka keeps per partition, and that promises its user nothing: it is
    taken, and shown, and has nothing to do.
    """
    doc = f"{what}: of Kafka's files. Here partitions share segments, and it has no effect."
    kind = type(default)
    return TopicKey(ConfigKey(name=name, type=kind, doc=doc, default=default, at_least=at_least))


TOPIC_MIN_INSYNC_REPLICAS: Final = _over(
    "min.insync.replicas", MIN_INSYNC_REPLICAS, "Smallest ISR at which acks=all is accepted."
)
TOPIC_UNCLEAN_LEADER_ELECTION: Final = _over(
    "unclean.leader.election.enable",
    UNCLEAN_LEADER_ELECTION_ENABLE,
    "Let a replica outside the ISR lead when nobody in it lives: loses data (C2).",
)
TOPIC_MAX_MESSAGE_BYTES: Final = _over(
    "max.message.bytes", MESSAGE_MAX_BYTES, "Largest record batch accepted."
)
TOPIC_LEADER_THROTTLED_REPLICAS: Final = _throttled(
    "leader", "Replicas whose data is throttled where it is sent from: 0:1,0:2 or *."
)
TOPIC_FOLLOWER_THROTTLED_REPLICAS: Final = _throttled(
    "follower", "Replicas whose data is throttled where it is taken: 0:1,0:2 or *."
)

TOPIC_CLEANUP_POLICY: Final = _over(
    "cleanup.policy",
    LOG_CLEANUP_POLICY,
    "delete: old records are deleted by age and size. compact: of each key the newest one stays.",
)
TOPIC_MIN_CLEANABLE_DIRTY_RATIO: Final = _over(
    "min.cleanable.dirty.ratio",
    LOG_CLEANER_MIN_CLEANABLE_RATIO,
    "Part of a compacted log that must not have been cleaned yet for it to be cleaned again.",
)
TOPIC_MIN_COMPACTION_LAG_MS: Final = _over(
    "min.compaction.lag.ms",
    LOG_CLEANER_MIN_COMPACTION_LAG_MS,
    "Age that a record reaches before it may be compacted.",
)
TOPIC_MAX_COMPACTION_LAG_MS: Final = _over(
    "max.compaction.lag.ms",
    LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    "Age beyond which a record must be compacted, however little of its log is dirty.",
)
TOPIC_DELETE_RETENTION_MS: Final = _over(
    "delete.retention.ms",
    LOG_CLEANER_DELETE_RETENTION_MS,
    "How long a record without a value stays after it was first compacted.",
)
TOPIC_COMPRESSION_TYPE: Final = _over(
    "compression.type",
    COMPRESSION_TYPE,
    "producer: batches are stored as they are sent. Else their leader compresses them anew.",
)
TOPIC_TIMESTAMP_TYPE: Final = _over(
    "message.timestamp.type",
    LOG_MESSAGE_TIMESTAMP_TYPE,
    "CreateTime: records have their producer's time. LogAppendTime: that of their leader.",
)
TOPIC_TIMESTAMP_BEFORE_MAX_MS: Final = _over(
    "message.timestamp.before.max.ms",
    LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    "How old a producer's timestamp may be, with CreateTime.",
)
TOPIC_TIMESTAMP_AFTER_MAX_MS: Final = _over(
    "message.timestamp.after.max.ms",
    LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    "How far ahead of the leader's clock a producer's timestamp may be, with CreateTime.",
)
TOPIC_RETENTION_BYTES: Final = _over(
    "retention.bytes",
    LOG_RETENTION_BYTES,
    "Bytes of each partition beyond which the oldest are deleted; -1: no limit.",
)
TOPIC_RETENTION_MS: Final = _over(
    "retention.ms",
    LOG_RETENTION_MS,
    "Age beyond which records are deleted; -1: kept forever.",
)

TOPIC_SEGMENT_MS: Final = TopicKey(
    ConfigKey(
        name="segment.ms",
        type=int,
        default=7 * 24 * 3_600_000,
        at_least=1,
        at_most=2**63 - 1,
        doc="Age of its records at which a compacted topic has the segment that is written end, if "
        "so much is dirty then that it will be cleaned.",
    )
)
TOPIC_SEGMENT_BYTES: Final = TopicKey(
    ConfigKey(
        name="segment.bytes",
        type=int,
        default=1 << 30,
        at_least=14,
        at_most=2**31 - 1,
        doc="The same for the bytes of its records there.",
    )
)

_KEYS: Final[tuple[TopicKey[Any], ...]] = (
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_UNCLEAN_LEADER_ELECTION,
    TOPIC_MAX_MESSAGE_BYTES,
    TOPIC_LEADER_THROTTLED_REPLICAS,
    TOPIC_FOLLOWER_THROTTLED_REPLICAS,
    TOPIC_CLEANUP_POLICY,
    TOPIC_MIN_CLEANABLE_DIRTY_RATIO,
    TOPIC_MIN_COMPACTION_LAG_MS,
    TOPIC_MAX_COMPACTION_LAG_MS,
    TOPIC_DELETE_RETENTION_MS,
    TOPIC_COMPRESSION_TYPE,
    TOPIC_TIMESTAMP_TYPE,
    TOPIC_TIMESTAMP_BEFORE_MAX_MS,
    TOPIC_TIMESTAMP_AFTER_MAX_MS,
    TOPIC_RETENTION_BYTES,
    TOPIC_RETENTION_MS,
    TOPIC_SEGMENT_MS,
    TOPIC_SEGMENT_BYTES,
    _of_kafkas_files("segment.jitter.ms", 0, 0, "What segment.ms varies by"),
    _of_kafkas_files("segment.index.bytes", 10 << 20, 4, "Size of a segment's index"),
    _of_kafkas_files("index.interval.bytes", 4096, 0, "How often an index has an entry"),
    _of_kafkas_files("file.delete.delay.ms", 60_000, 0, "How long a deleted file stays"),
    _of_kafkas_files("preallocate", False, None, "Whether segments are allocated ahead"),
)

TOPIC_KEYS: Final = {topic_key.key.name: topic_key for topic_key in _KEYS}

TOPIC_SPEC: Final = ConfigSpec("topic", [topic_key.key for topic_key in _KEYS])
"""What CreateTopics accepts as configuration."""
