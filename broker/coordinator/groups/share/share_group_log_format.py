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
from typing import Final, NamedTuple, TypeVar

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
    UnknownRecord,
    compact_length,
    compact_text_field,
    text_field,
    unsigned_varint,
)
from quorate.common.types import ID_BYTES, TopicId

T = TypeVar("T")

_MEMBER: Final = 10
_GROUP: Final = 11
_TARGET_EPOCH: Final = 12
_TARGET: Final = 13
_CURRENT: Final = 14
_TOPICS: Final = 15

_VERSION: Final = b"\0\0"
_VERSION_BYTES: Final = 2
_NO_TAGS: Final = b"\0"
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
    rack_id = metadata.rack_id
    value = (
        _VERSION
        + (compact_length(-1) if rack_id is None else compact_text_field(rack_id))
        + compact_text_field(metadata.client_id)
        + compact_text_field(metadata.client_host)
        + _array(map(compact_text_field, sorted(metadata.topic_names)))
        + _NO_TAGS
    )
    return LogRecord(_key(_MEMBER, group_id, member_id), value)


def group_record(group_id: str, epoch: int, metadata_hash: int) -> LogRecord:
    """Encode: group epoch i32 | hash i64."""
    value = _VERSION + INT32.pack(epoch) + INT64.pack(metadata_hash) + _NO_TAGS
    return LogRecord(_key(_GROUP, group_id), value)


def target_epoch_record(group_id: str, epoch: int, assigned_wall_ms: int) -> LogRecord:
    """Encode: epoch of the target assignment i32 | tag 0: time i64."""
    tagged = b"\1\0" + unsigned_varint(INT64.size) + INT64.pack(assigned_wall_ms)
    return LogRecord(_key(_TARGET_EPOCH, group_id), _VERSION + INT32.pack(epoch) + tagged)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> LogRecord:
    """Encode: topics, each with its id and its partitions."""
    value = _VERSION + _partitions(partitions) + _NO_TAGS
    return LogRecord(_key(_TARGET, group_id, member_id), value)


def current_record(group_id: str, member_id: str, current: ShareAssignment) -> LogRecord:
    """Encode: epoch i32 | previous epoch i32 | state i8, 0: stable | assigned."""
    value = (
        _VERSION
        + INT32.pack(current.epoch)
        + INT32.pack(current.previous_epoch)
        + _STABLE
        + _partitions(current.partitions)
        + _NO_TAGS
    )
    return LogRecord(_key(_CURRENT, group_id, member_id), value)


def topics_record(group_id: str, topics: ShareTopics) -> LogRecord:
    """Encode: topics being initialized | initialized topics | topics being deleted; each with its
    id, its name, and, but for the last, its partitions."""
    deleting = (
        topic_id + compact_text_field(topics.names.get(topic_id, "")) + _NO_TAGS
        for topic_id in sorted(topics.deleting)
    )
    value = (
        _VERSION
        + _named(topics.initializing, topics.names)
        + _named(topics.initialized, topics.names)
        + _array(deleting)
        + _NO_TAGS
    )
    return LogRecord(_key(_TOPICS, group_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[LogRecord]:
    """Return the records that remove everything about a member."""
    return [
        LogRecord(_key(kind, group_id, member_id), None) for kind in (_CURRENT, _TARGET, _MEMBER)
    ]


def group_tombstones(group_id: str) -> list[LogRecord]:
    """Return the records that remove a group without members."""
    return [LogRecord(_key(kind, group_id), None) for kind in (_TARGET_EPOCH, _TOPICS, _GROUP)]


def _key(kind: int, group_id: str, member_id: str | None = None) -> bytes:
    key = kind.to_bytes(2) + text_field(group_id)
    return key if member_id is None else key + text_field(member_id)


def _array(items: Iterable[bytes]) -> bytes:
    encoded = list(items)
    return compact_length(len(encoded)) + b"".join(encoded)


def _numbers(partitions: Iterable[int]) -> bytes:
    return _array(map(INT32.pack, sorted(partitions)))


def _partitions(partitions: Partitions) -> bytes:
    return _array(topic_id + _numbers(own) + _NO_TAGS for topic_id, own in partitions.items())


def _named(partitions: TopicPartitions, names: Mapping[TopicId, str]) -> bytes:
    return _array(
        topic_id + compact_text_field(names.get(topic_id, "")) + _numbers(own) + _NO_TAGS
        for topic_id, own in sorted(partitions.items())
    )


# -- records that are read ---------------------------------------------------------------------


def is_of_share_group(key: bytes) -> bool:
    """Return whether the key of a record is of a share group."""
    return int.from_bytes(key[:_VERSION_BYTES]) in _READERS


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
    reader = _Reader(value)
    version = reader.int16()
    if version:
        raise UnknownRecord(f"value of version {version} for a key of version {kind}")
    return _READERS[kind](reader)


class _Reader(CoordinatorRecordReader):
    def array(self, read: Callable[[], T]) -> list[T]:
        count = self.compact_length()
        if count > len(self._record):
            raise UnknownRecord(f"an array of {count} elements in {len(self._record)} bytes")
        return [read() for _ in range(count)]

    def topic_id(self) -> TopicId:
        return TopicId(self._take(ID_BYTES))

    def numbers(self) -> frozenset[int]:
        return frozenset(self.array(self.int32))


def _read_member(reader: _Reader) -> ShareMemberMetadata:
    rack_id, client_id = reader.optional_compact_text(), reader.compact_text()
    client_host = reader.compact_text()
    return ShareMemberMetadata(
        rack_id, client_id, client_host, frozenset(reader.array(reader.compact_text))
    )


def _read_group(reader: _Reader) -> ShareGroupEpoch:
    return ShareGroupEpoch(reader.int32(), reader.int64())


def _read_target_epoch(reader: _Reader) -> ShareTargetEpoch:
    return ShareTargetEpoch(reader.int32())


def _read_partitions(reader: _Reader) -> Partitions:
    def one() -> tuple[TopicId, frozenset[int]]:
        topic_id, partitions = reader.topic_id(), reader.numbers()
        reader.tags()
        return topic_id, partitions

    return dict(reader.array(one))


def _read_current(reader: _Reader) -> ShareAssignment:
    epoch, previous_epoch, _ = reader.int32(), reader.int32(), reader.int8()
    return ShareAssignment(epoch, previous_epoch, _read_partitions(reader))


def _read_topics(reader: _Reader) -> ShareTopics:
    names: dict[TopicId, str] = {}

    def named() -> tuple[TopicId, frozenset[int]]:
        topic_id, name, partitions = reader.topic_id(), reader.compact_text(), reader.numbers()
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

_READERS: Final[Mapping[int, Callable[[_Reader], Value]]] = {
    _MEMBER: _read_member,
    _GROUP: _read_group,
    _TARGET_EPOCH: _read_target_epoch,
    _TARGET: _read_partitions,
    _CURRENT: _read_current,
    _TOPICS: _read_topics,
}
