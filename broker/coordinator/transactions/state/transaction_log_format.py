"""The format of transactional ids in __transaction_state, which is Kafka's, byte by byte.

    key 0   transactional id
    value 0 producer id, epoch, timeout, state, topics with their partitions, last update, start

The first two bytes of each are its version. A record without a value is a tombstone: the id is
forgotten.
"""

import struct
from itertools import groupby
from typing import Final

from quorate.broker.coordinator.shards.coordinator_records import (
    INT16,
    INT32,
    CoordinatorRecordReader,
    UnknownRecord,
    text_field,
)
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
)
from quorate.common.types import TopicPartition

_KEY: Final = 0
_VALUE: Final = 0
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


def encode(transaction: TransactionMetadata) -> bytes:
    parts = [
        _PRODUCER_TIMEOUT_STATE.pack(
            _VALUE,
            transaction.producer_id,
            transaction.epoch,
            transaction.timeout_ms,
            transaction.state,
        ),
        _encode_partitions(transaction),
        _UPDATED_STARTED.pack(transaction.updated_ms, transaction.started_ms),
    ]
    return b"".join(parts)


def _encode_partitions(transaction: TransactionMetadata) -> bytes:
    """Encode the partitions; without a transaction the array is null, as in Kafka."""
    if transaction.state is TransactionState.EMPTY:
        return INT32.pack(-1)
    topics = [
        (topic, [tp.partition for tp in tps])
        for topic, tps in groupby(sorted(transaction.partitions), key=lambda tp: tp.topic)
    ]
    parts = [INT32.pack(len(topics))]
    for topic, partitions in topics:
        parts += text_field(topic), INT32.pack(len(partitions)), *map(INT32.pack, partitions)
    return b"".join(parts)


def decode(value: bytes) -> TransactionMetadata:
    """Decode the value of a record.

    Raises:
        UnknownRecord: the value has another format.
    """
    reader = CoordinatorRecordReader(value)
    version = reader.int16()
    if version != _VALUE:
        raise UnknownRecord(f"transaction of version {version}")
    producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    state = _state(reader.int8())
    partitions = []
    for _ in range(reader.int32()):
        topic = reader.text()
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(reader.int32())]
    return TransactionMetadata(
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset(partitions),
        updated_ms=reader.int64(),
        started_ms=reader.int64(),
    )


def _state(number: int) -> TransactionState:
    try:
        return TransactionState(number)
    except ValueError:
        raise UnknownRecord(f"transaction in state {number}") from None
