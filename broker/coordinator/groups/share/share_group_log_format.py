"""The records of a share group in __consumer_offsets, which are Kafka's, byte by byte.

key 10  group, member   → what the member says of itself
key 11  group           → group epoch and the hash of its topics
key 12  group           → epoch of the target assignment, and when it was made in tag 0
key 13  group, member   → target assignment
key 14  group, member   → epochs, state, partitions that it has
key 15  group           → the topics whose partitions have a state with the share coordinator

The first two bytes of each are its version, 0 in all values. Keys have plain fields, and values
flexible ones (KIP-482). A record without a value is a tombstone.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from quorate.broker.coordinator.groups.consumer.consumer_member import Partitions
from quorate.broker.coordinator.groups.share.share_member import (
    ShareAssignment,
    ShareMemberMetadata,
)
from quorate.broker.coordinator.groups.share.share_topics import ShareTopics, TopicPartitions
from quorate.broker.coordinator.shards.coordinator_records import (
    INT32,
    INT64,
    CoordinatorRecordReader,
    LogRecord,
    compact_text_field,
)
from quorate.broker.coordinator.shards.flexible_fields import (
    NO_TAGS,
    VERSION,
    FlexibleReader,
    array,
    int32_array,
    kind_of,
    optional_compact_text,
    read_versioned,
    record_key,
    tagged,
)
from quorate.common.types import TopicId

_MEMBER: Final = 10
_GROUP: Final = 11
_TARGET_EPOCH: Final = 12
_TARGET: Final = 13
_CURRENT: Final = 14
_TOPICS: Final = 15

_STABLE: Final = b"\0"


class ShareGroupKey(NamedTuple):
    """The key of a record: its kind, the group, and the member that it is about."""

    kind: int
    group_id: str
    member_id: str = ""


class ShareGroupEpoch(NamedTuple):
    epoch: int
    metadata_hash: int


class ShareTargetEpoch(NamedTuple):
    epoch: int


Value = (
    ShareMemberMetadata
    | ShareGroupEpoch
    | ShareTargetEpoch
    | Partitions
    | ShareAssignment
    | ShareTopics
)


# -- records that are written ------------------------------------------------------------------


def member_record(group_id: str, member_id: str, metadata: ShareMemberMetadata) -> LogRecord:
    """Encode: rack | client id | client host | names."""
    value = (
        VERSION
        + optional_compact_text(metadata.rack_id)
        + compact_text_field(metadata.client_id)
        + compact_text_field(metadata.client_host)
        + array(map(compact_text_field, sorted(metadata.topic_names)))
        + NO_TAGS
    )
    return LogRecord(record_key(_MEMBER, group_id, member_id), value)


def group_record(group_id: str, epoch: int, metadata_hash: int) -> LogRecord:
    """Encode: group epoch i32 | hash i64."""
    value = VERSION + INT32.pack(epoch) + INT64.pack(metadata_hash) + NO_TAGS
    return LogRecord(record_key(_GROUP, group_id), value)


def target_epoch_record(group_id: str, epoch: int, assigned_wall_ms: int) -> LogRecord:
    """Encode: epoch of the target assignment i32 | tag 0: time i64."""
    value = INT32.pack(epoch) + tagged(INT64.pack(assigned_wall_ms))
    return LogRecord(record_key(_TARGET_EPOCH, group_id), VERSION + value)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> LogRecord:
    """Encode: topics, each with its id and its partitions."""
    value = VERSION + _partitions(partitions) + NO_TAGS
    return LogRecord(record_key(_TARGET, group_id, member_id), value)


def current_record(group_id: str, member_id: str, current: ShareAssignment) -> LogRecord:
    """Encode: epoch i32 | previous epoch i32 | state i8, 0: stable | assigned."""
    value = (
        VERSION
        + INT32.pack(current.epoch)
        + INT32.pack(current.previous_epoch)
        + _STABLE
        + _partitions(current.partitions)
        + NO_TAGS
    )
    return LogRecord(record_key(_CURRENT, group_id, member_id), value)


def topics_record(group_id: str, topics: ShareTopics) -> LogRecord:
    """Encode: topics being initialized | initialized topics | topics being deleted; each with its
    id, its name, and, but for the last, its partitions."""
    deleting = (
        topic_id + compact_text_field(topics.names.get(topic_id, "")) + NO_TAGS
        for topic_id in sorted(topics.deleting)
    )
    value = (
        VERSION
        + _named(topics.initializing, topics.names)
        + _named(topics.initialized, topics.names)
        + array(deleting)
        + NO_TAGS
    )
    return LogRecord(record_key(_TOPICS, group_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[LogRecord]:
    """Return the records that remove everything about a member."""
    return [
        LogRecord(record_key(kind, group_id, member_id), None)
        for kind in (_CURRENT, _TARGET, _MEMBER)
    ]


def group_tombstones(group_id: str) -> list[LogRecord]:
    """Return the records that remove a group without members."""
    return [
        LogRecord(record_key(kind, group_id), None) for kind in (_TARGET_EPOCH, _TOPICS, _GROUP)
    ]


def _numbers(partitions: Iterable[int]) -> bytes:
    return int32_array(sorted(partitions))


def _partitions(partitions: Partitions) -> bytes:
    return array(topic_id + _numbers(own) + NO_TAGS for topic_id, own in partitions.items())


def _named(partitions: TopicPartitions, names: Mapping[TopicId, str]) -> bytes:
    return array(
        topic_id + compact_text_field(names.get(topic_id, "")) + _numbers(own) + NO_TAGS
        for topic_id, own in sorted(partitions.items())
    )


# -- records that are read ---------------------------------------------------------------------


def is_of_share_group(key: bytes) -> bool:
    """Return whether the key of a record is of a share group."""
    return kind_of(key) in _READERS


def read_key(key: bytes) -> ShareGroupKey:
    """Decode the key of a record of a share group.

    Raises:
        UnknownRecord: the key has another format.
    """
    reader = CoordinatorRecordReader(key)
    kind, group_id = reader.int16(), reader.text()
    return ShareGroupKey(kind, group_id, reader.text() if kind in _OF_MEMBERS else "")


def read_value(kind: int, value: bytes) -> Value:
    """Decode the value of a record with a key of that kind.

    Raises:
        UnknownRecord: the value has another format.
    """
    return read_versioned(_READERS, kind, value)


def _read_numbers(reader: FlexibleReader) -> frozenset[int]:
    return frozenset(reader.array(reader.int32))


def _read_member(reader: FlexibleReader) -> ShareMemberMetadata:
    rack_id, client_id = reader.optional_compact_text(), reader.compact_text()
    client_host = reader.compact_text()
    return ShareMemberMetadata(
        rack_id, client_id, client_host, frozenset(reader.array(reader.compact_text))
    )


def _read_group(reader: FlexibleReader) -> ShareGroupEpoch:
    return ShareGroupEpoch(reader.int32(), reader.int64())


def _read_target_epoch(reader: FlexibleReader) -> ShareTargetEpoch:
    return ShareTargetEpoch(reader.int32())


def _read_partitions(reader: FlexibleReader) -> Partitions:
    def one() -> tuple[TopicId, frozenset[int]]:
        topic_id, partitions = reader.topic_id(), _read_numbers(reader)
        reader.tags()
        return topic_id, partitions

    return dict(reader.array(one))


def _read_current(reader: FlexibleReader) -> ShareAssignment:
    epoch, previous_epoch, _ = reader.int32(), reader.int32(), reader.int8()
    return ShareAssignment(epoch, previous_epoch, _read_partitions(reader))


def _read_topics(reader: FlexibleReader) -> ShareTopics:
    names: dict[TopicId, str] = {}

    def named() -> tuple[TopicId, frozenset[int]]:
        topic_id, name, partitions = reader.topic_id(), reader.compact_text(), _read_numbers(reader)
        reader.tags()
        names[topic_id] = name
        return topic_id, partitions

    def deleted() -> TopicId:
        topic_id = reader.topic_id()
        names[topic_id] = reader.compact_text()
        reader.tags()
        return topic_id

    initializing, initialized = dict(reader.array(named)), dict(reader.array(named))
    return ShareTopics(names, initializing, initialized, frozenset(reader.array(deleted)))


_OF_MEMBERS: Final = frozenset({_MEMBER, _TARGET, _CURRENT})
"""The kinds of keys that name a member after the group."""

_READERS: Final[Mapping[int, Callable[[FlexibleReader], Value]]] = {
    _MEMBER: _read_member,
    _GROUP: _read_group,
    _TARGET_EPOCH: _read_target_epoch,
    _TARGET: _read_partitions,
    _CURRENT: _read_current,
    _TOPICS: _read_topics,
}
