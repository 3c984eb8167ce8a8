"""The records of a group in __consumer_offsets, from which a new coordinator loads it."""

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffset
from quorate.broker.coordinator.groups.state.group_basis import GroupLimits
from quorate.broker.coordinator.groups.state.members import Member
from quorate.broker.coordinator.shards.coordinator_records import (
    INT16,
    INT32,
    INT64,
    CoordinatorRecordReader,
    UnknownRecord,
    data_field,
    text_field,
)
from quorate.common.types import TopicPartition


class StoredMember(NamedTuple):
    """A member in the log; ``metadata`` is its subscription for the group's protocol only."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    metadata: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """A group in the log; offsets of a group without members expire after ``changed_at_ms`` (wall
    clock)."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    changed_at_ms: int
    members: tuple[StoredMember, ...]


def stored(group: ClassicGroup, now_wall_ms: int) -> StoredGroup:
    """Return the present state of the group, to be written to the log."""
    name = group.protocol_name or ""
    return StoredGroup(
        group.protocol_type or "",
        group.generation_id,
        group.protocol_name,
        group.members.leader_id or None,
        now_wall_ms,
        tuple(
            StoredMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(name),
                member.assignment,
            )
            for member in group.members
        ),
    )


def restored(group_id: str, kept: StoredGroup, limits: GroupLimits, now_ms: int) -> ClassicGroup:
    """Return the group from the log; each member gets its full session timeout from ``now_ms``
    on.

    If it has members and no leader, it was of the consumer protocol before, and none of them has
    assigned yet.
    """
    group = ClassicGroup(group_id, limits)
    group.restore(
        [_restored_member(each, kept.protocol_name or "") for each in kept.members],
        now_ms,
        generation_id=kept.generation_id,
        protocol_type=kept.protocol_type or None,
        protocol_name=kept.protocol_name,
        leader_id=kept.leader_id or "",
    )
    if kept.members and kept.leader_id is None:
        group.begin_without_leader(now_ms)
    return group


def _restored_member(kept: StoredMember, protocol_name: str) -> Member:
    return Member(
        member_id=kept.member_id,
        instance_id=kept.instance_id,
        client_id=kept.client_id,
        client_host=kept.client_host,
        session_timeout_ms=kept.session_timeout_ms,
        rebalance_timeout_ms=kept.rebalance_timeout_ms,
        protocols=((protocol_name, kept.metadata),),
        assignment=kept.assignment,
    )


# The format of groups and offsets in __consumer_offsets, which is Kafka's, byte by byte.
#
# key 1 (also 0)  group, topic, partition     → offset, leader epoch, metadata, time of the commit
# key 2           group                       → protocol type, generation, protocol, leader, time,
# members
#
# The first two bytes of each are its version. A record without a value is a tombstone. Older
# versions of values are read as well, so a topic that Kafka wrote can be taken over.


_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2
_OFFSET_VALUE: Final = 3
_GROUP_VALUE: Final = 3

_OFFSET_AND_EPOCH: Final = struct.Struct(">hqi")
_PLAIN_OFFSET: Final = struct.Struct(">hqihq")
"""The layout of a whole value without metadata, which nearly no client sends."""
_TWO_INT32: Final = struct.Struct(">ii")


class OffsetKey(NamedTuple):
    """The key of a record with the offset that a group has committed for a partition."""

    group_id: str
    tp: TopicPartition


class GroupKey(NamedTuple):
    """The key of a record with a group: its members and their assignments."""

    group_id: str


def encode_offset_key(group_id: str, tp: TopicPartition) -> bytes:
    """Encode: version i16 = 1 | group id | topic | partition i32; texts have a length of i16."""
    return _offset_key_prefix(group_id, tp.topic) + INT32.pack(tp.partition)


@lru_cache(maxsize=1024)
def _offset_key_prefix(group_id: str, topic: str) -> bytes:
    """Return the constant part of a key; groups commit the same partitions again and again."""
    return b"\0\1" + text_field(group_id) + text_field(topic)


def encode_group_key(group_id: str) -> bytes:
    """Encode: version i16 = 2 | group id."""
    return b"\0\2" + text_field(group_id)


def encode_offset(commit: CommittedOffset) -> bytes:
    """Encode: version i16 = 3 | offset i64 | leader epoch i32 | metadata | committed at i64, ms."""
    if not commit.metadata:
        return _PLAIN_OFFSET.pack(
            _OFFSET_VALUE, commit.offset, commit.leader_epoch, 0, commit.committed_ms
        )
    return (
        _OFFSET_AND_EPOCH.pack(_OFFSET_VALUE, commit.offset, commit.leader_epoch)
        + text_field(commit.metadata)
        + INT64.pack(commit.committed_ms)
    )


def encode_group(group: StoredGroup) -> bytes:
    """Encode: version i16 = 3 | protocol type | generation i32 | protocol | leader | time i64 |
    members."""
    parts = [
        INT16.pack(_GROUP_VALUE),
        text_field(group.protocol_type),
        INT32.pack(group.generation_id),
        text_field(group.protocol_name),
        text_field(group.leader_id),
        INT64.pack(group.changed_at_ms),
        INT32.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            text_field(member.member_id),
            text_field(member.instance_id),
            text_field(member.client_id),
            text_field(member.client_host),
            _TWO_INT32.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            data_field(member.metadata),
            data_field(member.assignment),
        )
    return b"".join(parts)


def decode_key(key: bytes) -> OffsetKey | GroupKey:
    """Decode the key of a record.

    Raises:
        UnknownRecord: the key has another format.
    """
    reader = CoordinatorRecordReader(key)
    version = reader.int16()
    if version == _GROUP_KEY:
        return GroupKey(reader.text())
    if version in _OFFSET_KEYS:
        return OffsetKey(reader.text(), TopicPartition(reader.text(), reader.int32()))
    raise UnknownRecord(f"key of version {version}")


def decode_offset(value: bytes) -> CommittedOffset:
    """Decode the value of a committed offset.

    Raises:
        UnknownRecord: the value has another format.
    """
    reader = CoordinatorRecordReader(value)
    version = reader.int16()
    if not 0 <= version <= _OFFSET_VALUE:
        raise UnknownRecord(f"offset of version {version}")
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    return CommittedOffset(offset, leader_epoch, reader.text(), reader.int64())


def decode_group(value: bytes) -> StoredGroup:
    """Decode the value of a group.

    Raises:
        UnknownRecord: the value has another format.
    """
    reader = CoordinatorRecordReader(value)
    version = reader.int16()
    if not 0 <= version <= _GROUP_VALUE:
        raise UnknownRecord(f"group of version {version}")
    return StoredGroup(
        protocol_type=reader.text(),
        generation_id=reader.int32(),
        protocol_name=reader.optional_text(),
        leader_id=reader.optional_text(),
        changed_at_ms=reader.int64() if version >= 2 else -1,
        members=tuple(_member(reader, version) for _ in range(reader.int32())),
    )


def _member(reader: CoordinatorRecordReader, version: int) -> StoredMember:
    member_id = reader.text()
    instance_id = reader.optional_text() if version >= 3 else None
    client_id, client_host = reader.text(), reader.text()
    rebalance_timeout_ms = reader.int32() if version >= 1 else None
    session_timeout_ms = reader.int32()
    return StoredMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        session_timeout_ms,
        reader.data(),
        reader.data(),
    )
