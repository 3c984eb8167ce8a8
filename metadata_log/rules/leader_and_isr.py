"""Rules of leaderAndISR: the controller decides leaders, a leader its own ISR, by compare-and-set
(C1).
"""

from quorate.common.types import BrokerEpoch, BrokerId, MetadataOffset, TopicPartition
from quorate.metadata_log.draft import Draft, require_isr, require_version
from quorate.metadata_log.partitions import Partition, interned
from quorate.metadata_log.records import IsrChange, OperationRefused, PartitionChange, ResultCode


def partition_change(draft: Draft, offset: MetadataOffset, record: PartitionChange) -> int:
    """Write leader and ISR as the controller decided (C1, C2)."""
    draft.require_controller(record.controller_id, record.controller_epoch)
    tp = TopicPartition(record.topic, record.partition)
    before = draft.require_partition(tp, record.topic_id)
    draft.require_kept(tp)
    require_version(tp, before, record.expected_version)
    floor = before.leader_epoch + (record.leader != before.leader)
    if record.leader_epoch < floor:
        raise OperationRefused(
            ResultCode.FENCED_LEADER_EPOCH,
            f"leader epoch {record.leader_epoch} of {tp} is below {floor}",
        )
    require_isr(record.leader, record.isr, before.replicas)
    return _put_leaf(
        draft,
        tp,
        Partition(
            replicas=before.replicas,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            isr=interned(record.isr),
            controller_id=record.controller_id,
            controller_epoch=record.controller_epoch,
            version=before.version + 1,
        ),
    )


def isr_change(draft: Draft, offset: MetadataOffset, record: IsrChange) -> int:
    """Write the ISR as its leader proposed (C1, C13), if it still leads in this epoch (C15)."""
    tp = TopicPartition(record.topic, record.partition)
    before = draft.require_partition(tp, record.topic_id)
    _require_leadership(draft, tp, before, record)
    require_version(tp, before, record.expected_version)
    isr = tuple(member.broker_id for member in record.isr)
    require_isr(record.leader, isr, before.replicas)
    for member in record.isr:
        if member.broker_id not in before.isr:
            _require_eligible(draft, tp, member.broker_id, member.broker_epoch)
    return _put_leaf(
        draft,
        tp,
        Partition(
            replicas=before.replicas,
            leader=before.leader,
            leader_epoch=before.leader_epoch,
            isr=interned(isr),
            controller_id=before.controller_id,
            controller_epoch=before.controller_epoch,
            version=before.version + 1,
        ),
    )


def _put_leaf(draft: Draft, tp: TopicPartition, leaf: Partition) -> int:
    draft.put_partition(tp, leaf)
    return leaf.version


def _require_leadership(
    draft: Draft, tp: TopicPartition, before: Partition, record: IsrChange
) -> None:
    if record.leader_epoch < before.leader_epoch:
        raise OperationRefused(
            ResultCode.FENCED_LEADER_EPOCH,
            f"leader epoch {record.leader_epoch} of {tp} is older than {before.leader_epoch}",
        )
    if record.leader_epoch > before.leader_epoch:
        raise OperationRefused(
            ResultCode.NEWER_LEADER_EPOCH,
            f"leader epoch {record.leader_epoch} of {tp} is newer than {before.leader_epoch}",
        )
    if record.leader != before.leader:
        raise OperationRefused(
            ResultCode.INVALID, f"broker {record.leader} does not lead {tp}: {before.leader} does"
        )
    broker = draft.brokers.get(record.leader)
    if broker is None or broker.epoch != record.leader_broker_epoch:
        raise OperationRefused(
            ResultCode.STALE_BROKER_EPOCH,
            f"broker {record.leader} is not registered at epoch {record.leader_broker_epoch}",
        )


def _require_eligible(
    draft: Draft, tp: TopicPartition, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> None:
    broker = draft.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        found = "not live" if broker is None else f"at epoch {broker.epoch}"
        raise OperationRefused(
            ResultCode.INELIGIBLE_REPLICA,
            f"broker {broker_id} cannot join the ISR of {tp}: it is {found}, not {broker_epoch}",
        )
