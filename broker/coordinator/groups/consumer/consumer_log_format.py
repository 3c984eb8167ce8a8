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

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

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

_GROUP: Final = 3
_TOPICS: Final = 4
_MEMBER: Final = 5
_TARGET_EPOCH: Final = 6
_TARGET: Final = 7
_CURRENT: Final = 8
_REGEX: Final = 16


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
    value = INT32.pack(epoch.epoch) + tagged(INT64.pack(epoch.metadata_hash))
    return LogRecord(record_key(_GROUP, group_id), VERSION + value)


def member_record(group_id: str, member_id: str, metadata: MemberMetadata) -> LogRecord:
    """Encode: instance | rack | client id | client host | names | regex | timeout i32 |
    assignor | tag 0: session timeout i32 | protocols."""
    parts = [
        VERSION,
        optional_compact_text(metadata.instance_id),
        optional_compact_text(metadata.rack_id),
        optional_compact_text(metadata.client_id),
        optional_compact_text(metadata.client_host),
        array(map(optional_compact_text, sorted(metadata.topic_names))),
        optional_compact_text(metadata.topic_regex),
        INT32.pack(metadata.rebalance_timeout_ms),
        optional_compact_text(metadata.server_assignor),
        NO_TAGS if metadata.classic is None else tagged(_classic(metadata.classic)),
    ]
    return LogRecord(record_key(_MEMBER, group_id, member_id), b"".join(parts))


def target_epoch_record(group_id: str, target: TargetEpoch) -> LogRecord:
    """Encode: epoch of the target assignment i32 | tag 0: time i64."""
    value = INT32.pack(target.epoch) + tagged(INT64.pack(target.assigned_ms))
    return LogRecord(record_key(_TARGET_EPOCH, group_id), VERSION + value)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> LogRecord:
    """Encode: topics, each with its id and its partitions."""
    topics = (topic_id + int32_array(sorted(own)) + NO_TAGS for topic_id, own in partitions.items())
    value = VERSION + array(topics) + NO_TAGS
    return LogRecord(record_key(_TARGET, group_id, member_id), value)


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> LogRecord:
    """Encode: epoch i32 | previous epoch i32 | state i8 | assigned | to be given up."""
    value = (
        VERSION
        + INT32.pack(current.epoch)
        + INT32.pack(current.previous_epoch)
        + bytes([current.state])
        + _owned(current.assigned)
        + _owned(current.revoking)
        + NO_TAGS
    )
    return LogRecord(record_key(_CURRENT, group_id, member_id), value)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> LogRecord:
    """Encode: topics | version of the metadata i64 | time i64."""
    value = (
        VERSION
        + array(map(optional_compact_text, sorted(resolved.topics)))
        + INT64.pack(resolved.version)
        + INT64.pack(resolved.resolved_ms)
        + NO_TAGS
    )
    return LogRecord(record_key(_REGEX, group_id, regex), value)


def member_tombstones(group_id: str, member_id: str) -> list[LogRecord]:
    """Return the records that remove everything about a member."""
    return [
        LogRecord(record_key(kind, group_id, member_id), None)
        for kind in (_CURRENT, _TARGET, _MEMBER)
    ]


def regex_tombstone(group_id: str, regex: str) -> LogRecord:
    """Return the record that removes a regular expression that nobody subscribes to."""
    return LogRecord(record_key(_REGEX, group_id, regex), None)


def topics_tombstone(group_id: str) -> LogRecord:
    """Return the record that removes what Kafka 4.0 wrote."""
    return LogRecord(record_key(_TOPICS, group_id), None)


def group_tombstones(group_id: str) -> list[LogRecord]:
    """Return the records that remove a group without members."""
    return [
        LogRecord(record_key(kind, group_id), None) for kind in (_TARGET_EPOCH, _TOPICS, _GROUP)
    ]


def _owned(owned: Owned) -> bytes:
    return array(
        topic_id + int32_array(partitions) + tagged(int32_array(partitions.values()))
        for topic_id, partitions in owned.items()
    )


def _classic(classic: ClassicMetadata) -> bytes:
    """Encode what only members of the classic protocol say. It is nullable in Kafka, and so begins
    with a 1."""
    protocols = (
        optional_compact_text(name) + compact_length(len(metadata)) + metadata + NO_TAGS
        for name, metadata in classic.protocols
    )
    return b"\1" + INT32.pack(classic.session_timeout_ms) + array(protocols) + NO_TAGS


# -- records that are read ---------------------------------------------------------------------


def is_of_consumer_group(key: bytes) -> bool:
    """Return whether the key of a record is of a consumer group."""
    return kind_of(key) in _READERS


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
    return read_versioned(_READERS, kind, value)


def _read_group(reader: FlexibleReader) -> GroupEpoch:
    epoch = reader.int32()
    return GroupEpoch(epoch, _tagged_int64(reader))


def _read_topics(reader: FlexibleReader) -> SubscribedTopics:
    return SubscribedTopics()


def _read_member(reader: FlexibleReader) -> MemberMetadata:
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
    reader = FlexibleReader(tagged)
    if not tagged or reader.int8() < 0:
        return None
    session_timeout_ms = reader.int32()
    protocols = reader.array(lambda: _read_protocol(reader))
    reader.tags()
    return ClassicMetadata(session_timeout_ms, tuple(protocols)) if protocols else None


def _read_protocol(reader: FlexibleReader) -> tuple[str, bytes]:
    name, metadata = reader.compact_text(), reader.compact_data()
    reader.tags()
    return name, metadata


def _read_target_epoch(reader: FlexibleReader) -> TargetEpoch:
    epoch = reader.int32()
    return TargetEpoch(epoch, _tagged_int64(reader))


def _tagged_int64(reader: FlexibleReader) -> int:
    return int.from_bytes(reader.tags().get(0, b""), signed=True)


def _read_target(reader: FlexibleReader) -> Partitions:
    target = dict(reader.array(lambda: _read_topic(reader)))
    reader.tags()
    return target


def _read_topic(reader: FlexibleReader) -> tuple[TopicId, frozenset[int]]:
    topic_id, partitions = reader.topic_id(), frozenset(reader.array(reader.int32))
    reader.tags()
    return topic_id, partitions


def _read_current(reader: FlexibleReader) -> CurrentAssignment:
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    if state not in MemberState.__members__.values():
        raise UnknownRecord(f"member in state {state}")
    assigned = dict(reader.array(lambda: _read_owned(reader, epoch)))
    revoking = dict(reader.array(lambda: _read_owned(reader, epoch)))
    reader.tags()
    return CurrentAssignment(epoch, previous_epoch, MemberState(state), assigned, revoking)


def _read_owned(reader: FlexibleReader, epoch: int) -> tuple[TopicId, dict[int, int]]:
    """Read the partitions of a topic. Without epochs, which Kafka before 4.3 did not write, they
    are as old as the member's epoch."""
    topic_id, partitions = reader.topic_id(), reader.array(reader.int32)
    epochs = list(_epochs(reader.tags().get(0, b"")))
    if len(epochs) != len(partitions):
        epochs = [epoch] * len(partitions)
    return topic_id, dict(zip(partitions, epochs, strict=True))


def _epochs(tagged: bytes) -> Iterator[int]:
    if tagged:
        reader = FlexibleReader(tagged)
        yield from reader.array(reader.int32)


def _read_regex(reader: FlexibleReader) -> ResolvedRegex:
    names = reader.array(reader.compact_text)
    version, resolved_ms = reader.int64(), reader.int64()
    reader.tags()
    return ResolvedRegex(frozenset(name for name in names if name), version, resolved_ms)


_ABOUT_ONE: Final = frozenset({_MEMBER, _TARGET, _CURRENT, _REGEX})
"""The kinds of keys that name a member or an expression after the group."""

_READERS: Final[Mapping[int, Callable[[FlexibleReader], Value]]] = {
    _GROUP: _read_group,
    _TOPICS: _read_topics,
    _MEMBER: _read_member,
    _TARGET_EPOCH: _read_target_epoch,
    _TARGET: _read_target,
    _CURRENT: _read_current,
    _REGEX: _read_regex,
}
