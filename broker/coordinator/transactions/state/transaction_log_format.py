"""The format of transactional ids in __transaction_state, which is Kafka's, byte by byte.

    key 0   transactional id
    value 0 producer id, epoch, timeout, state, topics with their partitions, last update, start
    value 1 the same in compact form, and tagged: 0 previous producer id, 1 next producer id,
            2 transaction.version of the client

The first two bytes of each are its version. A record without a value is a tombstone: the id is
forgotten. Value 1 is written from transaction.version 1 on (KIP-890), when all brokers can read it.
A tag that is not known here is passed over.
"""

import struct
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Final

from quorate.broker.coordinator.shards.coordinator_records import (
    INT16,
    INT32,
    INT64,
    CoordinatorRecordReader,
    UnknownRecord,
    compact_length,
    compact_text_field,
    text_field,
)
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionState,
)
from quorate.common.types import TopicPartition

PLAIN: Final = 0
TAGGED: Final = 1
"""The versions of the value."""

_KEY: Final = 0
_NO_TAGS: Final = b"\0"
_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_CLIENT_VERSION: Final = 2
_PRODUCER_TIMEOUT_STATE: Final = struct.Struct(">hqhib")
_UPDATED_STARTED: Final = struct.Struct(">qq")


def encode_key(transactional_id: str) -> bytes:
    return INT16.pack(_KEY) + text_field(transactional_id)


def decode_key(key: bytes) -> str:
    """Decode the key of a record.

    Raises:
        UnknownRecord: the key has another format.
    """
    reader = CoordinatorRecordReader(key)
    version = reader.int16()
    if version != _KEY:
        raise UnknownRecord(f"key of version {version}")
    return reader.text()


def encode(transaction: TransactionMetadata, version: int = TAGGED) -> bytes:
    """Encode the value of a record. Version ``PLAIN`` lacks what is tagged."""
    tagged = version >= TAGGED
    parts = [
        _PRODUCER_TIMEOUT_STATE.pack(
            version,
            transaction.producer_id,
            transaction.epoch,
            transaction.timeout_ms,
            transaction.state,
        ),
        _encode_partitions(transaction, tagged=tagged),
        _UPDATED_STARTED.pack(transaction.updated_ms, transaction.started_ms),
        _encode_tags(transaction) if tagged else b"",
    ]
    return b"".join(parts)


def _encode_partitions(transaction: TransactionMetadata, *, tagged: bool) -> bytes:
    """Encode the partitions; without a transaction the array is null, as in Kafka."""
    length: Callable[[int], bytes] = compact_length if tagged else INT32.pack
    text = compact_text_field if tagged else text_field
    end = _NO_TAGS if tagged else b""
    if transaction.state is TransactionState.EMPTY:
        return length(-1)
    topics = [
        (topic, [tp.partition for tp in tps])
        for topic, tps in groupby(sorted(transaction.partitions), key=lambda tp: tp.topic)
    ]
    parts = [length(len(topics))]
    for topic, partitions in topics:
        parts += text(topic), length(len(partitions)), *map(INT32.pack, partitions), end
    return b"".join(parts)


def _encode_tags(transaction: TransactionMetadata) -> bytes:
    """Encode the tagged fields that do not have their default, in the order of their tags."""
    tags = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append((_PREVIOUS_PRODUCER_ID, INT64.pack(transaction.previous_producer_id)))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append((_NEXT_PRODUCER_ID, INT64.pack(transaction.next_producer_id)))
    if transaction.client_version:
        tags.append((_CLIENT_VERSION, INT16.pack(transaction.client_version)))
    return bytes([len(tags)]) + b"".join(bytes([tag, len(data)]) + data for tag, data in tags)


def decode(value: bytes) -> TransactionMetadata:
    """Decode the value of a record.

    Raises:
        UnknownRecord: the value has another format.
    """
    reader = CoordinatorRecordReader(value)
    version = reader.int16()
    if version not in (PLAIN, TAGGED):
        raise UnknownRecord(f"transaction of version {version}")
    tagged = version >= TAGGED
    producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    state = _state(reader.int8())
    partitions = _decode_partitions(reader, tagged=tagged)
    updated_ms, started_ms = reader.int64(), reader.int64()
    tags = reader.tags() if tagged else {}
    return TransactionMetadata(
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=partitions,
        updated_ms=updated_ms,
        started_ms=started_ms,
        previous_producer_id=_tagged(tags, _PREVIOUS_PRODUCER_ID, INT64, NO_PRODUCER_ID),
        next_producer_id=_tagged(tags, _NEXT_PRODUCER_ID, INT64, NO_PRODUCER_ID),
        client_version=_tagged(tags, _CLIENT_VERSION, INT16, 0),
    )


def _decode_partitions(
    reader: CoordinatorRecordReader, *, tagged: bool
) -> frozenset[TopicPartition]:
    length = reader.compact_length if tagged else reader.int32
    partitions = []
    for _ in range(length()):
        topic = reader.compact_text() if tagged else reader.text()
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(length())]
        if tagged:
            reader.tags()
    return frozenset(partitions)


def _tagged(tags: Mapping[int, bytes], tag: int, layout: struct.Struct, default: int) -> int:
    data = tags.get(tag)
    if data is None:
        return default
    if len(data) != layout.size:
        raise UnknownRecord(f"tagged field {tag} of {len(data)} bytes")
    return int(layout.unpack(data)[0])


def _state(number: int) -> TransactionState:
    try:
        return TransactionState(number)
    except ValueError:
        raise UnknownRecord(f"transaction in state {number}") from None
