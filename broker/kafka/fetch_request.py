"""What a Fetch request says, in every version."""

import struct
from dataclasses import dataclass
from typing import Final

from broker.kafka.cursor import Cursor
from broker.replication.api import FetchWant
from metadata_log.types import TopicPartition

FIRST_FLEXIBLE_VERSION: Final = 12

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
"""Of a request that asks for no session, and ends the one that it names."""

_FIRST_VERSION_WITH_SESSIONS: Final = 7
_FIRST_VERSION_WITH_RACK: Final = 11
_REQUEST: Final = struct.Struct(">iiiib")
_SESSION: Final = struct.Struct(">ii")
_PARTITION_4: Final = struct.Struct(">iqi")
_PARTITION_5: Final = struct.Struct(">iq8xi")
_PARTITION_9: Final = struct.Struct(">iiq8xi")
_PARTITION_12: Final = struct.Struct(">iiq4x8xi")
"""Partition, from 9 on the current leader epoch, offset, …, most bytes. Between them is what only
followers of Kafka's say: the last fetched epoch and their log's start."""
_NOT_CHECKED: Final = -1


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """``topics``: name → positions. ``forgotten``: partitions to be left out of the session."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[str, list[FetchWant]]]
    forgotten: list[TopicPartition]
    rack: str


def decode(version: int, cursor: Cursor) -> FetchRequest:
    """Raises: MalformedRequest."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    _, max_wait_ms, min_bytes, max_bytes, isolation_level = cursor.unpack(_REQUEST)
    session_id, session_epoch = NO_SESSION, FINAL_EPOCH
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        session_id, session_epoch = cursor.unpack(_SESSION)
    topics = []
    for _ in range(cursor.array_length(flexible=flexible) or 0):
        name = cursor.text(flexible=flexible) or ""
        count = cursor.array_length(flexible=flexible) or 0
        topics.append((name, [_decode_want(version, name, cursor) for _ in range(count)]))
        if flexible:
            cursor.skip_tagged_fields()
    forgotten: list[TopicPartition] = []
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        forgotten = _decode_forgotten(cursor, flexible)
    rack = ""
    if version >= _FIRST_VERSION_WITH_RACK:
        rack = cursor.text(flexible=flexible) or ""
    if flexible:
        cursor.skip_tagged_fields()
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack,
    )


def _decode_want(version: int, topic: str, cursor: Cursor) -> FetchWant:
    leader_epoch = _NOT_CHECKED
    if version >= FIRST_FLEXIBLE_VERSION:
        partition, leader_epoch, offset, max_bytes = cursor.unpack(_PARTITION_12)
        cursor.skip_tagged_fields()
    elif version >= 9:
        partition, leader_epoch, offset, max_bytes = cursor.unpack(_PARTITION_9)
    else:
        layout = _PARTITION_5 if version >= 5 else _PARTITION_4
        partition, offset, max_bytes = cursor.unpack(layout)
    return FetchWant(TopicPartition(topic, partition), offset, max_bytes, leader_epoch)


def _decode_forgotten(cursor: Cursor, flexible: bool) -> list[TopicPartition]:
    forgotten: list[TopicPartition] = []
    for _ in range(cursor.array_length(flexible=flexible) or 0):
        name = cursor.text(flexible=flexible) or ""
        count = cursor.array_length(flexible=flexible) or 0
        forgotten += [TopicPartition(name, cursor.int32()) for _ in range(count)]
        if flexible:
            cursor.skip_tagged_fields()
    return forgotten
