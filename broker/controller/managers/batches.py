"""Cuts many operations into few transactions, each below the quorum's limit (C3).

10,000 leadership changes are one or two Raft entries, not 10,000 round trips. The operations of a
batch are independent of each other: the transactions are not atomic, each reports its own results.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from metadata_log.records import (
    ConfigSet,
    NewPartition,
    Operation,
    PartitionChange,
    Record,
    TopicCreated,
    Transaction,
)

TARGET_BYTES: Final = Transaction.MAX_ENCODED_BYTES * 9 // 10
"""Sizes are estimated from above; the rest is room for the transaction's own fields."""

_FIXED_BYTES: Final = 96
"""Upper bound of all fixed-width parts of a record with its operation, conditions and framing."""

_LEAF_BYTES: Final = 12
"""Tags and lengths of one partition of a new topic, without its broker ids."""


def split(
    operations: Iterable[Operation], target_bytes: int = TARGET_BYTES
) -> Iterator[Sequence[Operation]]:
    """``operations`` in order, in batches of at most ``target_bytes`` as estimated."""
    batch: list[Operation] = []
    size = 0
    for operation in operations:
        added = estimated_bytes(operation)
        if batch and size + added > target_bytes:
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += added
    if batch:
        yield batch


def estimated_bytes(operation: Operation) -> int:
    """Upper bound of the encoded size: measuring exactly costs as much as encoding."""
    return 16 + sum(_record_bytes(record) for record in operation.records)


def _record_bytes(record: Record) -> int:
    match record:
        case PartitionChange(topic=topic, isr=isr):
            return _FIXED_BYTES + _text(topic) + sum(map(_varint_bytes, isr))
        case TopicCreated(name=name, partitions=partitions):
            leaves = sum(_LEAF_BYTES + sum(map(_varint_bytes, _ids(p))) for p in partitions)
            return _FIXED_BYTES + _text(name) + leaves
        case ConfigSet(entity_name=name, key=key, value=value):
            return _FIXED_BYTES + _text(name) + _text(key) + _text(value or "")
        case _:
            return 4 * _FIXED_BYTES
    raise AssertionError("every record has a size")


def _ids(partition: NewPartition) -> tuple[int, ...]:
    return (partition.leader, *partition.replicas, *partition.isr)


def _varint_bytes(number: int) -> int:
    """A negative number takes ten bytes, most broker ids take one."""
    return 10 if number < 0 else max(1, (number.bit_length() + 6) // 7)


def _text(value: str) -> int:
    return len(value) if value.isascii() else len(value.encode())
