"""How groups and offsets stand in __consumer_offsets: Kafka's own format, byte by byte.

    key 1 (also 0)  group, topic, partition     → offset, leader epoch, metadata, time of the commit
    key 2           group                       → protocol type, generation, protocol, leader, time,
                                                  members

The first two bytes of each are its version. No value, a tombstone: it is gone. Older versions of
values are read as well, so that a topic that Kafka wrote can be taken over.
"""

import struct
from typing import Final, NamedTuple

from broker.coordinator.groups.offsets import CommittedOffset
from broker.coordinator.groups.stored import StoredGroup, StoredMember
from metadata_log.types import TopicPartition

_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2
_OFFSET_VALUE: Final = 3
_GROUP_VALUE: Final = 3

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_OFFSET_AND_EPOCH: Final = struct.Struct(">hqi")
_TWO_INT32: Final = struct.Struct(">ii")


class UnknownRecord(Exception):
    """A record of another format: written by a newer release, or not by a coordinator at all."""


class OffsetKey(NamedTuple):
    group_id: str
    tp: TopicPartition


class GroupKey(NamedTuple):
    group_id: str


def encode_offset_key(group_id: str, tp: TopicPartition) -> bytes:
    return b"\0\1" + _text(group_id) + _text(tp.topic) + _INT32.pack(tp.partition)


def encode_group_key(group_id: str) -> bytes:
    return b"\0\2" + _text(group_id)


def encode_offset(commit: CommittedOffset) -> bytes:
    return (
        _OFFSET_AND_EPOCH.pack(_OFFSET_VALUE, commit.offset, commit.leader_epoch)
        + _text(commit.metadata)
        + _INT64.pack(commit.committed_ms)
    )


def encode_group(group: StoredGroup) -> bytes:
    parts = [
        _INT16.pack(_GROUP_VALUE),
        _text(group.protocol_type),
        _INT32.pack(group.generation_id),
        _text(group.protocol_name),
        _text(group.leader_id),
        _INT64.pack(group.changed_at_ms),
        _INT32.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            _text(member.member_id),
            _text(member.instance_id),
            _text(member.client_id),
            _text(member.client_host),
            _TWO_INT32.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            _data(member.metadata),
            _data(member.assignment),
        )
    return b"".join(parts)


def decode_key(key: bytes) -> OffsetKey | GroupKey:
    """Raises: UnknownRecord."""
    reader = _Reader(key)
    version = reader.int16()
    if version == _GROUP_KEY:
        return GroupKey(reader.text())
    if version in _OFFSET_KEYS:
        return OffsetKey(reader.text(), TopicPartition(reader.text(), reader.int32()))
    raise UnknownRecord(f"key of version {version}")


def decode_offset(value: bytes) -> CommittedOffset:
    """Raises: UnknownRecord."""
    reader = _Reader(value)
    version = reader.int16()
    if not 0 <= version <= _OFFSET_VALUE:
        raise UnknownRecord(f"offset of version {version}")
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    return CommittedOffset(offset, leader_epoch, reader.text(), reader.int64())


def decode_group(value: bytes) -> StoredGroup:
    """Raises: UnknownRecord."""
    reader = _Reader(value)
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


def _member(reader: "_Reader", version: int) -> StoredMember:
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


class _Reader:
    """Reads a record from front to back."""

    def __init__(self, record: bytes) -> None:
        self._record = record
        self._position = 0

    def int16(self) -> int:
        return self._unpack(_INT16)

    def int32(self) -> int:
        return self._unpack(_INT32)

    def int64(self) -> int:
        return self._unpack(_INT64)

    def optional_text(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._take(length).decode("utf-8", "replace")

    def text(self) -> str:
        return self.optional_text() or ""

    def data(self) -> bytes:
        return self._take(max(0, self.int32()))

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._record):
            raise UnknownRecord(f"{len(self._record)} bytes, cut off in a field that ends at {end}")
        taken = self._record[self._position : end]
        self._position = end
        return taken

    def _unpack(self, layout: struct.Struct) -> int:
        return int(layout.unpack(self._take(layout.size))[0])


def _text(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def _data(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data
