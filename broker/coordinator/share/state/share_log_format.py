"""The records of share-partitions in __share_group_state, which are Kafka's, byte by byte.

key 0  group, topic id, partition   → snapshot: everything that is known
key 1  group, topic id, partition   → update: what a leader says since the last snapshot

The first two bytes of each are its version, 0 in all values. Keys have plain fields, and values
flexible ones (KIP-482). Both values have the number of final records in tag 0 (KIP-1226). A
snapshot without a value is a tombstone.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from quorate.broker.coordinator.shards.coordinator_records import (
    INT32,
    CoordinatorRecordReader,
    LogRecord,
    UnknownRecord,
    compact_length,
    text_field,
)
from quorate.broker.coordinator.share.state.record_state import RecordState, StateBatch
from quorate.broker.coordinator.share.state.stored_state import (
    UNKNOWN_COUNT,
    SharePartitionKey,
    StateWrite,
    StoredShareState,
)
from quorate.common.types import ID_BYTES, TopicId

_SNAPSHOT: Final = 0
_UPDATE: Final = 1
_VERSION: Final = b"\0\0"
_SNAPSHOT_FIELDS: Final = struct.Struct(">iiiqqq")
_UPDATE_FIELDS: Final = struct.Struct(">iiq")
_BATCH: Final = struct.Struct(">qqbhx")
"""First and last offset, state, delivery count, and no tagged fields."""
_NO_TAGS: Final = b"\0"
_STATES: Final = {state.value: state for state in RecordState}


class ShareKey(NamedTuple):
    """The key of a record: whether it is a snapshot, and whose."""

    is_snapshot: bool
    of: SharePartitionKey


def snapshot_record(key: SharePartitionKey, state: StoredShareState, now_wall_ms: int) -> LogRecord:
    """Encode: snapshot epoch i32 | state epoch i32 | leader epoch i32 | start i64 | created i64 |
    written i64 | batches | tag 0: final records i32."""
    fields = _SNAPSHOT_FIELDS.pack(
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        now_wall_ms,
        now_wall_ms,
    )
    value = _VERSION + fields + _batches(state.batches) + _tags(state.final_records)
    return LogRecord(_key(_SNAPSHOT, key), value)


def update_record(key: SharePartitionKey, snapshot_epoch: int, write: StateWrite) -> LogRecord:
    """Encode: snapshot epoch i32 | leader epoch i32 | start i64 | batches | tag 0: final records
    i32."""
    fields = _UPDATE_FIELDS.pack(snapshot_epoch, write.leader_epoch, write.start_offset)
    value = _VERSION + fields + _batches(write.batches) + _tags(write.final_records)
    return LogRecord(_key(_UPDATE, key), value)


def tombstone(key: SharePartitionKey) -> LogRecord:
    """Return the record that removes a share-partition."""
    return LogRecord(_key(_SNAPSHOT, key), None)


def _key(kind: int, key: SharePartitionKey) -> bytes:
    return kind.to_bytes(2) + text_field(key.group_id) + key.topic_id + INT32.pack(key.partition)


def _batches(batches: Sequence[StateBatch]) -> bytes:
    return compact_length(len(batches)) + b"".join(_BATCH.pack(*batch) for batch in batches)


def _tags(final_records: int) -> bytes:
    if final_records == UNKNOWN_COUNT:
        return _NO_TAGS
    return b"\1\0\4" + INT32.pack(final_records)


def read_key(key: bytes) -> ShareKey:
    """Decode the key of a record.

    Raises:
        UnknownRecord: the key has another format.
    """
    reader = _Reader(key)
    kind = reader.int16()
    if kind not in (_SNAPSHOT, _UPDATE):
        raise UnknownRecord(f"key of version {kind}")
    of = SharePartitionKey(reader.text(), reader.topic_id(), reader.int32())
    return ShareKey(kind == _SNAPSHOT, of)


def read_snapshot(value: bytes) -> StoredShareState:
    """Decode a snapshot.

    Raises:
        UnknownRecord: the value has another format.
    """
    reader = _Reader(value)
    reader.check_version()
    snapshot_epoch, state_epoch, leader_epoch = reader.int32(), reader.int32(), reader.int32()
    start_offset, *_ = reader.int64(), reader.int64(), reader.int64()
    batches = reader.batches()
    return StoredShareState(
        start_offset, state_epoch, leader_epoch, snapshot_epoch, reader.final_records(), batches
    )


def read_update(value: bytes) -> StateWrite:
    """Decode an update; it has no state epoch.

    Raises:
        UnknownRecord: the value has another format.
    """
    reader = _Reader(value)
    reader.check_version()
    _, leader_epoch, start_offset = reader.int32(), reader.int32(), reader.int64()
    batches = reader.batches()
    return StateWrite(-1, leader_epoch, start_offset, reader.final_records(), batches)


class _Reader(CoordinatorRecordReader):
    def check_version(self) -> None:
        version = self.int16()
        if version:
            raise UnknownRecord(f"value of version {version}")

    def topic_id(self) -> TopicId:
        return TopicId(self._take(ID_BYTES))

    def batches(self) -> list[StateBatch]:
        count = self.compact_length()
        if count * _BATCH.size > len(self._record):
            raise UnknownRecord(f"{count} batches in {len(self._record)} bytes")
        return [self._batch() for _ in range(count)]

    def _batch(self) -> StateBatch:
        first, last, state = self.int64(), self.int64(), self.int8()
        delivery_count = self.int16()
        self.tags()
        if state not in _STATES:
            raise UnknownRecord(f"records in state {state}")
        return StateBatch(first, last, _STATES[state], delivery_count)

    def final_records(self) -> int:
        tagged = self.tags().get(0)
        return UNKNOWN_COUNT if tagged is None else int.from_bytes(tagged, signed=True)
