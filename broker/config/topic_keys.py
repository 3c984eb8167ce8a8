"""The configuration keys of topics. If a topic does not set a key, many keys take the value of a
broker key.
"""

from typing import Any, Final, Generic, NamedTuple

from quorate.broker.config.compaction import (
    LOG_CLEANER_DELETE_RETENTION_MS,
    LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    LOG_CLEANER_MIN_CLEANABLE_RATIO,
    LOG_CLEANER_MIN_COMPACTION_LAG_MS,
    LOG_CLEANUP_POLICY,
)
from quorate.broker.config.keys_without_effect import KEYS_WITHOUT_EFFECT
from quorate.broker.config.retention import LOG_RETENTION_BYTES, LOG_RETENTION_MS
from quorate.broker.config.topics import (
    COMPRESSION_TYPE,
    LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    LOG_MESSAGE_TIMESTAMP_TYPE,
    MESSAGE_MAX_BYTES,
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
)
from quorate.common.configuration import ConfigKey, ConfigSpec, T
from quorate.common.table_keys import TABLE_KEYS


class TopicKey(NamedTuple, Generic[T]):
    """A topic key, and the broker key that it overrides if there is one."""

    key: ConfigKey[T]
    broker_key: ConfigKey[T] | None = None


def _over(name: str, broker_key: ConfigKey[T], doc: str) -> TopicKey[T]:
    """Return a topic key with the type and range of the broker key that it overrides."""
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
    """Return a key that names replicas of a topic for throttling, in Kafka's notation (KIP-73)."""
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


def _without_effect(name: str, default: T, at_least: int | None, what: str) -> TopicKey[T]:
    """Return a key about the files that Kafka keeps for each partition.

    The key is accepted and described, but it has no effect, and its documentation says so.
    """
    doc = f"{what} in Kafka. It has no effect here, because partitions share segments."
    kind = type(default)
    return TopicKey(ConfigKey(name=name, type=kind, doc=doc, default=default, at_least=at_least))


TOPIC_MIN_INSYNC_REPLICAS: Final = _over(
    "min.insync.replicas",
    MIN_INSYNC_REPLICAS,
    "The smallest ISR with which a produce request with acks=all is accepted.",
)
TOPIC_UNCLEAN_LEADER_ELECTION: Final = _over(
    "unclean.leader.election.enable",
    UNCLEAN_LEADER_ELECTION_ENABLE,
    "Let a replica outside the ISR lead when nobody in it lives: loses data (C2).",
)
TOPIC_MAX_MESSAGE_BYTES: Final = _over(
    "max.message.bytes", MESSAGE_MAX_BYTES, "The largest record batch that is accepted."
)
TOPIC_LEADER_THROTTLED_REPLICAS: Final = _throttled(
    "leader", "The replicas whose data is throttled at the broker that sends it: 0:1,0:2 or *."
)
TOPIC_FOLLOWER_THROTTLED_REPLICAS: Final = _throttled(
    "follower", "The replicas whose data is throttled at the broker that fetches it: 0:1,0:2 or *."
)

TOPIC_CLEANUP_POLICY: Final = _over(
    "cleanup.policy",
    LOG_CLEANUP_POLICY,
    "With delete, old records are deleted by age and size. With compact, the newest record of "
    "each key stays. Empty, all records are kept.",
)
TOPIC_MIN_CLEANABLE_DIRTY_RATIO: Final = _over(
    "min.cleanable.dirty.ratio",
    LOG_CLEANER_MIN_CLEANABLE_RATIO,
    "A compacted log is cleaned again when at least this share of it has not been cleaned yet.",
)
TOPIC_MIN_COMPACTION_LAG_MS: Final = _over(
    "min.compaction.lag.ms",
    LOG_CLEANER_MIN_COMPACTION_LAG_MS,
    "The age that a record reaches before it may be compacted.",
)
TOPIC_MAX_COMPACTION_LAG_MS: Final = _over(
    "max.compaction.lag.ms",
    LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    "The age after which a record must be compacted, however little of its log is dirty.",
)
TOPIC_DELETE_RETENTION_MS: Final = _over(
    "delete.retention.ms",
    LOG_CLEANER_DELETE_RETENTION_MS,
    "How long a record without a value (a tombstone) stays after it was first compacted.",
)
TOPIC_COMPRESSION_TYPE: Final = _over(
    "compression.type",
    COMPRESSION_TYPE,
    "With producer, batches are stored as they are sent. With any other value, their leader "
    "compresses them again.",
)
TOPIC_TIMESTAMP_TYPE: Final = _over(
    "message.timestamp.type",
    LOG_MESSAGE_TIMESTAMP_TYPE,
    "With CreateTime, records have the timestamp of their producer. With LogAppendTime, they "
    "have that of their leader.",
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
    "When a partition holds more bytes than this, its oldest records are deleted. -1 means no "
    "limit.",
)
TOPIC_RETENTION_MS: Final = _over(
    "retention.ms",
    LOG_RETENTION_MS,
    "Records older than this are deleted. -1 keeps them forever.",
)

TOPIC_SEGMENT_MS: Final = TopicKey(
    ConfigKey(
        name="segment.ms",
        type=int,
        default=7 * 24 * 3_600_000,
        at_least=1,
        at_most=2**63 - 1,
        doc="When the records of a compacted topic in the open segment are older than this, the "
        "segment ends, if the log is then dirty enough to be cleaned.",
    )
)
TOPIC_SEGMENT_BYTES: Final = TopicKey(
    ConfigKey(
        name="segment.bytes",
        type=int,
        default=1 << 30,
        at_least=14,
        at_most=2**31 - 1,
        doc="When a compacted topic has more bytes than this in the open segment, the segment "
        "ends, if the log is then dirty enough to be cleaned.",
    )
)

TOPIC_KEY_SCHEMA_VALIDATION: Final = TopicKey(
    ConfigKey(
        name="quorate.key.schema.validation",
        type=bool,
        default=False,
        doc="Whether a record is refused whose key does not begin with the id of a schema in the "
        "schema registry. Records without a key are accepted.",
    )
)
TOPIC_VALUE_SCHEMA_VALIDATION: Final = TopicKey(
    ConfigKey(
        name="quorate.value.schema.validation",
        type=bool,
        default=False,
        doc="Whether a record is refused whose value does not begin with the id of a schema in the "
        "schema registry. Records without a value (tombstones) are accepted.",
    )
)
TOPIC_DEAD_LETTERS_ENABLE: Final = TopicKey(
    ConfigKey(
        name="errors.deadletterqueue.group.enable",
        type=bool,
        default=False,
        doc="Whether share groups may have the topic as their dead letter topic (KIP-1191). "
        "Brokers write dead letters with rights of their own, so this is the permission.",
    )
)

_WITHOUT_EFFECT: Final[tuple[TopicKey[Any], ...]] = (
    _without_effect("segment.jitter.ms", 0, 0, "The variation of segment.ms"),
    _without_effect("segment.index.bytes", 10 << 20, 4, "The size of a segment's index"),
    _without_effect(
        "index.interval.bytes", 4096, 0, "The distance between two entries of an index"
    ),
    _without_effect("file.delete.delay.ms", 60_000, 0, "How long a deleted file stays"),
    _without_effect("preallocate", False, None, "Whether segments are allocated ahead"),
    *map(TopicKey, KEYS_WITHOUT_EFFECT),
)

NAMES_WITHOUT_EFFECT: Final = frozenset(topic_key.key.name for topic_key in _WITHOUT_EFFECT)

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
    TOPIC_KEY_SCHEMA_VALIDATION,
    TOPIC_VALUE_SCHEMA_VALIDATION,
    TOPIC_DEAD_LETTERS_ENABLE,
    *_WITHOUT_EFFECT,
    *map(TopicKey, TABLE_KEYS),
)

TOPIC_KEYS: Final = {topic_key.key.name: topic_key for topic_key in _KEYS}

TOPIC_SPEC: Final = ConfigSpec("topic", [topic_key.key for topic_key in _KEYS])
"""The keys that CreateTopics accepts."""
