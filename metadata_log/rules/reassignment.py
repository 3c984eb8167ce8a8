"""Rules of moving replicas: no step may leave a partition without acknowledged records (C11)."""

import immutables

from quorate.common.types import BrokerId, MetadataOffset, TopicPartition
from quorate.metadata_log.draft import Draft, require_isr, require_version
from quorate.metadata_log.partitions import Partition, Reassignment, interned
from quorate.metadata_log.records import OperationRefused, PartitionReassignment, ResultCode

Replicas = tuple[BrokerId, ...]


def partition_reassignment(
    draft: Draft, offset: MetadataOffset, record: PartitionReassignment
) -> int:
    """Begin, replan, complete or cancel a reassignment. ``target`` and AR tell which of the four it
    is.
    """
    draft.require_controller(record.controller_id, record.controller_epoch)
    tp = TopicPartition(record.topic, record.partition)
    before = draft.require_partition(tp, record.topic_id)
    draft.require_kept(tp)
    require_version(tp, before, record.expected_version)
    if record.leader_epoch <= before.leader_epoch:
        raise OperationRefused(
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
        _put_pending(
            draft, tp, Reassignment(interned(record.target), interned(record.original), offset)
        )
    else:
        _require_end(tp, before, pending, record)
        _remove_pending(draft, tp)
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


def _put_pending(draft: Draft, tp: TopicPartition, pending: Reassignment) -> None:
    others = draft.reassignments.get(tp.topic) or immutables.Map()
    draft.reassignments.put(tp.topic, others.set(tp.partition, pending))


def _remove_pending(draft: Draft, tp: TopicPartition) -> None:
    """Remove the pending reassignment of the partition, if it has one."""
    pending = draft.reassignments.get(tp.topic)
    if pending is None or tp.partition not in pending:
        return
    others = pending.delete(tp.partition)
    if others:
        draft.reassignments.put(tp.topic, others)
    else:
        draft.reassignments.remove(tp.topic)


def _require_distinct(tp: TopicPartition, replicas: Replicas) -> None:
    if len(set(replicas)) != len(replicas) or any(one < 0 for one in replicas):
        raise OperationRefused(
            ResultCode.INVALID, f"replicas {list(replicas)} of {tp} are not distinct broker ids"
        )


def _require_survivors(
    tp: TopicPartition, before: Partition, record: PartitionReassignment
) -> None:
    """Refuse the step unless in-sync replicas that stay remain in sync, at least one does, and none
    joins.
    """
    survivors = set(before.isr).intersection(record.replicas)
    if set(record.isr) != survivors or (before.isr and not survivors):
        raise OperationRefused(
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
    """Refuse the step unless AR consists of the original and the target replicas, so that it can
    still go either way.
    """
    original = before.replicas if pending is None else pending.original
    if record.original != original:
        raise OperationRefused(
            ResultCode.INVALID,
            f"{tp} comes from replicas {list(original)}, not {list(record.original)}",
        )
    if set(record.replicas) != {*record.original, *record.target}:
        raise OperationRefused(
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
    """Refuse an end anywhere but at the original replicas, or where every replica is in sync."""
    original = before.replicas if pending is None else pending.original
    if record.original or not record.replicas:
        raise OperationRefused(
            ResultCode.INVALID, f"a reassignment of {tp} that ends has replicas alone"
        )
    if set(record.replicas) != set(original) and not set(record.replicas) <= set(before.isr):
        raise OperationRefused(
            ResultCode.INVALID,
            f"replicas {list(record.replicas)} of {tp} are not all in the ISR {list(before.isr)}",
        )
