"""Moving replicas: no step may leave a partition without what was acknowledged (C11)."""

from metadata_log.draft import Draft
from metadata_log.image import Partition, Reassignment, interned
from metadata_log.records import PartitionReassignment, ResultCode
from metadata_log.rules.requirements import (
    Refused,
    require_controller,
    require_isr,
    require_kept,
    require_partition,
    require_version,
)
from metadata_log.types import BrokerId, MetadataOffset, TopicPartition

Replicas = tuple[BrokerId, ...]


def partition_reassignment(
    draft: Draft, offset: MetadataOffset, record: PartitionReassignment
) -> int:
    """Begin, replan, complete or cancel: the four are told apart by ``target`` and AR."""
    require_controller(draft, record.controller_id, record.controller_epoch)
    tp = TopicPartition(record.topic, record.partition)
    before = require_partition(draft, tp, record.topic_id)
    require_kept(draft, tp)
    require_version(tp, before, record.expected_version)
    if record.leader_epoch <= before.leader_epoch:
        raise Refused(
            ResultCode.FENCED_LEADER_EPOCH,
            f"leader epoch {record.leader_epoch} of {tp} is not above {before.leader_epoch}",
        )
    for replicas in (record.replicas, record.target, record.original):
        _require_distinct(tp, replicas)
    require_isr(record.leader, record.isr, record.replicas)
    _require_survivors(tp, before, record)
    pending = draft.reassignment(tp)
    if record.target:
        _require_union(tp, before, pending, record)
        draft.put_reassignment(
            tp, Reassignment(interned(record.target), interned(record.original), offset)
        )
    else:
        _require_end(tp, before, pending, record)
        draft.remove_reassignment(tp)
    draft.put_partition(
        tp,
        Partition(
            replicas=interned(record.replicas),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            isr=interned(record.isr),
            controller_id=record.controller_id,
            controller_epoch=record.controller_epoch,
            version=before.version + 1,
        ),
    )
    return before.version + 1


def _require_distinct(tp: TopicPartition, replicas: Replicas) -> None:
    if len(set(replicas)) != len(replicas) or any(one < 0 for one in replicas):
        raise Refused(
            ResultCode.INVALID, f"replicas {list(replicas)} of {tp} are not distinct broker ids"
        )


def _require_survivors(
    tp: TopicPartition, before: Partition, record: PartitionReassignment
) -> None:
    """Who was in sync and keeps a replica stays in sync, at least one does, and nobody joins."""
    survivors = set(before.isr).intersection(record.replicas)
    if set(record.isr) != survivors or (before.isr and not survivors):
        raise Refused(
            ResultCode.INVALID,
            f"ISR {list(record.isr)} of {tp} is not what replicas {list(record.replicas)} "
            f"leave of {list(before.isr)}, or nothing",
        )


def _require_union(
    tp: TopicPartition,
    before: Partition,
    pending: Reassignment | None,
    record: PartitionReassignment,
) -> None:
    """While it is pending AR is what was and what will be: each can be gone back or on to."""
    original = before.replicas if pending is None else pending.original
    if record.original != original:
        raise Refused(
            ResultCode.INVALID,
            f"{tp} comes from replicas {list(original)}, not {list(record.original)}",
        )
    if set(record.replicas) != {*record.original, *record.target}:
        raise Refused(
            ResultCode.INVALID,
            f"replicas {list(record.replicas)} of {tp} are not those of {list(record.original)} "
            f"and {list(record.target)}",
        )


def _require_end(
    tp: TopicPartition,
    before: Partition,
    pending: Reassignment | None,
    record: PartitionReassignment,
) -> None:
    """It ends where it came from, or where every replica is in sync."""
    original = before.replicas if pending is None else pending.original
    if record.original or not record.replicas:
        raise Refused(ResultCode.INVALID, f"a reassignment of {tp} that ends has replicas alone")
    if set(record.replicas) != set(original) and not set(record.replicas) <= set(before.isr):
        raise Refused(
            ResultCode.INVALID,
            f"replicas {list(record.replicas)} of {tp} are not all in the ISR {list(before.isr)}",
        )
