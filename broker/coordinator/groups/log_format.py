"""How groups and offsets stand in __consumer_offsets: Kafka's own format, byte by byte.

    key 1 (also 0)  group, topic, partition     → offset, leader epoch, metadata, time of the commit
    key 2           group                       → protocol type, generation, protocol, leader, time,
                                                  members

The first two bytes of each are its version. No value, a tombstone: it is gone. Older versions of
values are read as well, so that a topic that Kafka wrote can be taken over.
"""

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from broker.coordinator.groups.commits import CommittedOffset
from broker.coordinator.groups.stored import StoredGroup, StoredMember
from broker.coordinator.record_fields import (
    INT16,
    INT32,
    INT64,
    RecordReader,
    UnknownRecord,
    data_field,
    text_field,
)
from metadata_log.types import TopicPartition

_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2
_OFFSET_VALUE: Final = 3
_GROUP_VALUE: Final = 3

_OFFSET_AND_EPOCH: Final = struct.Struct(">hqi")
_PLAIN_OFFSET: Final = struct.Struct(">hqihq")
"""A whole value: nearly no client has metadata."""
_TWO_INT32: Final = struct.Struct(">ii")


class OffsetKey(NamedTuple):
    """Of a record with what a group has committed of a partition."""

    group_id: str
    tp: TopicPartition


class GroupKey(NamedTuple):
    """Of a record with a group itself: its members and what they were assigned."""

    group_id: str


def encode_offset_key(group_id: str, tp: TopicPartition) -> bytes:
    """version i16 = 1 | group id | topic | partition i32; texts with their length, i16."""
    return _offset_key_prefix(group_id, tp.topic) + INT32.pack(tp.partition)


@lru_cache(maxsize=1024)
def _offset_key_prefix(group_id: str, topic: str) -> bytes:
    """Groups commit the same partitions again and again."""
    return b"\0\1" + text_field(group_id) + text_field(topic)


def encode_group_key(group_id: str) -> bytes:
    """version i16 = 2 | group id."""
    return b"\0\2" + text_field(group_id)


def encode_offset(commit: CommittedOffset) -> bytes:
    """version i16 = 3 | offset i64 | leader epoch i32 | metadata | committed at i64, ms."""
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
    """version i16 = 3 | protocol type | generation i32 | protocol | leader | time i64 | members."""
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
    """Raises: UnknownRecord."""
    reader = RecordReader(key)
    version = reader.int16()
    if version == _GROUP_KEY:
        return GroupKey(reader.text())
    if version in _OFFSET_KEYS:
        return OffsetKey(reader.text(), TopicPartition(reader.text(), reader.int32()))
    raise UnknownRecord(f"key of version {version}")


def decode_offset(value: bytes) -> CommittedOffset:
    """Raises: UnknownRecord."""
    reader = RecordReader(value)
    version = reader.int16()
    if not 0 <= version <= _OFFSET_VALUE:
        raise UnknownRecord(f"offset of version {version}")
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    return CommittedOffset(offset, leader_epoch, reader.text(), reader.int64())


def decode_group(value: bytes) -> StoredGroup:
    """Raises: UnknownRecord."""
    reader = RecordReader(value)
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


def _member(reader: RecordReader, version: int) -> StoredMember:
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
