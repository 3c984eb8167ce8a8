"""The records of a consumer group in __consumer_offsets, which are Kafka's, byte by byte.

key 3   group               → group epoch, and the hash of its topics in tag 0
key 4   group               → topics and partition counts; Kafka 4.0 wrote it, here it is removed
key 5   group, member       → what the member says of itself; in tag 0 what a member of the classic
                              protocol says beyond that
key 6   group               → epoch of the target assignment, and when it was made in tag 0
key 7   group, member       → target assignment
key 8   group, member       → epochs, state, partitions that it has and has to give up
key 16  group, expression   → the topics that match

The first two bytes of each are its version, 0 in all values. Keys have plain fields, and values
flexible ones (KIP-482). A record without a value is a tombstone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from quorate.broker.coordinator.groups.consumer.consumer_member import (
    ClassicMetadata,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    Owned,
    Partitions,
)
from quorate.broker.coordinator.groups.consumer.regular_expressions import ResolvedRegex
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

_GROUP: Final = 3
_TOPICS: Final = 4
_MEMBER: Final = 5
_TARGET_EPOCH: Final = 6
_TARGET: Final = 7
_CURRENT: Final = 8
_REGEX: Final = 16

_VERSION: Final = b"\0\0"
_VERSION_BYTES: Final = 2
_NO_TAGS: Final = b"\0"


class ConsumerGroupKey(NamedTuple):
    """The key of a record: its kind, the group, and the member or expression that it is about."""

    kind: int
    group_id: str
    about: str = ""


class GroupEpoch(NamedTuple):
    epoch: int
    metadata_hash: int


class TargetEpoch(NamedTuple):
    """The epoch of the target assignment; ``assigned_ms`` is wall-clock time, 0 if unknown."""

    epoch: int
    assigned_ms: int


class SubscribedTopics(NamedTuple):
    """The content of key 4, which is not read."""


Value = (
    GroupEpoch
    | SubscribedTopics
    | MemberMetadata
    | TargetEpoch
    | Partitions
    | CurrentAssignment
    | ResolvedRegex
)


# -- records that are written ------------------------------------------------------------------


def group_record(group_id: str, epoch: GroupEpoch) -> LogRecord:
    """Encode: group epoch i32 | tag 0: hash i64."""
    value = INT32.pack(epoch.epoch) + _tagged(INT64.pack(epoch.metadata_hash))
    return LogRecord(_key(_GROUP, group_id), _VERSION + value)


def member_record(group_id: str, member_id: str, metadata: MemberMetadata) -> LogRecord:
    """Encode: instance | rack | client id | client host | names | regex | timeout i32 |
    assignor | tag 0: session timeout i32 | protocols."""
    parts = [
        _VERSION,
        _text(metadata.instance_id),
        _text(metadata.rack_id),
        _text(metadata.client_id),
        _text(metadata.client_host),
        _array(map(_text, sorted(metadata.topic_names))),
        _text(metadata.topic_regex),
        INT32.pack(metadata.rebalance_timeout_ms),
        _text(metadata.server_assignor),
        _NO_TAGS if metadata.classic is None else _tagged(_classic(metadata.classic)),
    ]
    return LogRecord(_key(_MEMBER, group_id, member_id), b"".join(parts))


def target_epoch_record(group_id: str, target: TargetEpoch) -> LogRecord:
    """Encode: epoch of the target assignment i32 | tag 0: time i64."""
    value = INT32.pack(target.epoch) + _tagged(INT64.pack(target.assigned_ms))
    return LogRecord(_key(_TARGET_EPOCH, group_id), _VERSION + value)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> LogRecord:
    """Encode: topics, each with its id and its partitions."""
    topics = (
        topic_id + _array(map(INT32.pack, sorted(own))) + _NO_TAGS
        for topic_id, own in partitions.items()
    )
    value = _VERSION + _array(topics) + _NO_TAGS
    return LogRecord(_key(_TARGET, group_id, member_id), value)


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> LogRecord:
    """Encode: epoch i32 | previous epoch i32 | state i8 | assigned | to be given up."""
    value = (
        _VERSION
        + INT32.pack(current.epoch)
        + INT32.pack(current.previous_epoch)
        + bytes([current.state])
        + _owned(current.assigned)
        + _owned(current.revoking)
        + _NO_TAGS
    )
    return LogRecord(_key(_CURRENT, group_id, member_id), value)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> LogRecord:
    """Encode: topics | version of the metadata i64 | time i64."""
    value = (
        _VERSION
        + _array(map(_text, sorted(resolved.topics)))
        + INT64.pack(resolved.version)
        + INT64.pack(resolved.resolved_ms)
        + _NO_TAGS
    )
    return LogRecord(_key(_REGEX, group_id, regex), value)


def member_tombstones(group_id: str, member_id: str) -> list[LogRecord]:
    """Return the records that remove everything about a member."""
    return [
        LogRecord(_key(kind, group_id, member_id), None) for kind in (_CURRENT, _TARGET, _MEMBER)
    ]


def regex_tombstone(group_id: str, regex: str) -> LogRecord:
    """Return the record that removes a regular expression that nobody subscribes to."""
    return LogRecord(_key(_REGEX, group_id, regex), None)


def topics_tombstone(group_id: str) -> LogRecord:
    """Return the record that removes what Kafka 4.0 wrote."""
    return LogRecord(_key(_TOPICS, group_id), None)


def group_tombstones(group_id: str) -> list[LogRecord]:
    """Return the records that remove a group without members."""
    return [LogRecord(_key(kind, group_id), None) for kind in (_TARGET_EPOCH, _TOPICS, _GROUP)]


def _key(kind: int, group_id: str, about: str | None = None) -> bytes:
    key = kind.to_bytes(2) + text_field(group_id)
    return key if about is None else key + text_field(about)


def _owned(owned: Owned) -> bytes:
    return _array(
        topic_id
        + _array(map(INT32.pack, partitions))
        + _tagged(_array(map(INT32.pack, partitions.values())))
        for topic_id, partitions in owned.items()
    )


def _classic(classic: ClassicMetadata) -> bytes:
    """Encode what only members of the classic protocol say. It is nullable in Kafka, and so begins
    with a 1."""
    protocols = (
        _text(name) + compact_length(len(metadata)) + metadata + _NO_TAGS
        for name, metadata in classic.protocols
    )
    return b"\1" + INT32.pack(classic.session_timeout_ms) + _array(protocols) + _NO_TAGS


def _text(text: str | None) -> bytes:
    return compact_length(-1) if text is None else compact_text_field(text)


def _array(items: Iterable[bytes]) -> bytes:
    encoded = list(items)
    return compact_length(len(encoded)) + b"".join(encoded)


def _tagged(value: bytes) -> bytes:
    """Encode a value as the only tagged field, with tag 0."""
    return b"\1\0" + unsigned_varint(len(value)) + value


# -- records that are read ---------------------------------------------------------------------


def is_of_consumer_group(key: bytes) -> bool:
    """Return whether the key of a record is of a consumer group."""
    return int.from_bytes(key[:_VERSION_BYTES]) in _READERS


def read_key(key: bytes) -> ConsumerGroupKey:
    """Decode the key of a record of a consumer group.

    Raises:
        UnknownRecord: the key has another format.
    """
    reader = CoordinatorRecordReader(key)
    kind, group_id = reader.int16(), reader.text()
    return ConsumerGroupKey(kind, group_id, reader.text() if kind in _ABOUT_ONE else "")


def read_value(kind: int, value: bytes) -> Value:
    """Decode the value of a record with a key of that kind.

    Raises:
        UnknownRecord: the value has another format.
    """
    reader = _FlexibleReader(value)
    version = reader.int16()
    if version:
        raise UnknownRecord(f"value of version {version} for a key of version {kind}")
    return _READERS[kind](reader)


class _FlexibleReader(CoordinatorRecordReader):
    """Reads flexible fields (KIP-482). Each method may raise UnknownRecord."""

    def array(self, read: Callable[[], T]) -> list[T]:
        count = self.compact_length()
        if count > len(self._record):
            raise UnknownRecord(f"an array of {count} elements in {len(self._record)} bytes")
        return [read() for _ in range(count)]

    def compact_data(self) -> bytes:
        return self._take(max(0, self.compact_length()))

    def topic_id(self) -> TopicId:
        return TopicId(self._take(ID_BYTES))


def _read_group(reader: _FlexibleReader) -> GroupEpoch:
    epoch = reader.int32()
    return GroupEpoch(epoch, _tagged_int64(reader))


def _read_topics(reader: _FlexibleReader) -> SubscribedTopics:
    return SubscribedTopics()


def _read_member(reader: _FlexibleReader) -> MemberMetadata:
    instance_id, rack_id = reader.optional_compact_text(), reader.optional_compact_text()
    client_id, client_host = reader.compact_text(), reader.compact_text()
    names = reader.array(reader.compact_text)
    metadata = MemberMetadata(
        instance_id,
        rack_id,
        client_id,
        client_host,
        frozenset(name for name in names if name),
        reader.compact_text(),
        reader.int32(),
        reader.optional_compact_text(),
    )
    return metadata._replace(classic=_read_classic(reader.tags().get(0, b"")))


def _read_classic(tagged: bytes) -> ClassicMetadata | None:
    reader = _FlexibleReader(tagged)
    if not tagged or reader.int8() < 0:
        return None
    session_timeout_ms = reader.int32()
    protocols = reader.array(lambda: _read_protocol(reader))
    reader.tags()
    return ClassicMetadata(session_timeout_ms, tuple(protocols)) if protocols else None


def _read_protocol(reader: _FlexibleReader) -> tuple[str, bytes]:
    name, metadata = reader.compact_text(), reader.compact_data()
    reader.tags()
    return name, metadata


def _read_target_epoch(reader: _FlexibleReader) -> TargetEpoch:
    epoch = reader.int32()
    return TargetEpoch(epoch, _tagged_int64(reader))


def _tagged_int64(reader: _FlexibleReader) -> int:
    return int.from_bytes(reader.tags().get(0, b""), signed=True)


def _read_target(reader: _FlexibleReader) -> Partitions:
    target = dict(reader.array(lambda: _read_topic(reader)))
    reader.tags()
    return target


def _read_topic(reader: _FlexibleReader) -> tuple[TopicId, frozenset[int]]:
    topic_id, partitions = reader.topic_id(), frozenset(reader.array(reader.int32))
    reader.tags()
    return topic_id, partitions


def _read_current(reader: _FlexibleReader) -> CurrentAssignment:
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    if state not in MemberState.__members__.values():
        raise UnknownRecord(f"member in state {state}")
    assigned = dict(reader.array(lambda: _read_owned(reader, epoch)))
    revoking = dict(reader.array(lambda: _read_owned(reader, epoch)))
    reader.tags()
    return CurrentAssignment(epoch, previous_epoch, MemberState(state), assigned, revoking)


def _read_owned(reader: _FlexibleReader, epoch: int) -> tuple[TopicId, dict[int, int]]:
    """Read the partitions of a topic. Without epochs, which Kafka before 4.3 did not write, they
    are as old as the member's epoch."""
    topic_id, partitions = reader.topic_id(), reader.array(reader.int32)
    epochs = list(_epochs(reader.tags().get(0, b"")))
    if len(epochs) != len(partitions):
        epochs = [epoch] * len(partitions)
    return topic_id, dict(zip(partitions, epochs, strict=True))


def _epochs(tagged: bytes) -> Iterator[int]:
    if tagged:
        reader = _FlexibleReader(tagged)
        yield from reader.array(reader.int32)


def _read_regex(reader: _FlexibleReader) -> ResolvedRegex:
    names = reader.array(reader.compact_text)
    version, resolved_ms = reader.int64(), reader.int64()
    reader.tags()
    return ResolvedRegex(frozenset(name for name in names if name), version, resolved_ms)


_ABOUT_ONE: Final = frozenset({_MEMBER, _TARGET, _CURRENT, _REGEX})
"""The kinds of keys that name a member or an expression after the group."""

_READERS: Final[Mapping[int, Callable[[_FlexibleReader], Value]]] = {
    _GROUP: _read_group,
    _TOPICS: _read_topics,
    _MEMBER: _read_member,
    _TARGET_EPOCH: _read_target_epoch,
    _TARGET: _read_target,
    _CURRENT: _read_current,
    _REGEX: _read_regex,
}
