"""Rules of topics: creation, deletion, and changes of the number of partitions (C4, C5, C14)."""

import msgspec

from quorate.common.types import BrokerId, LeaderEpoch, MetadataOffset, TopicPartition
from quorate.metadata_log.draft import Draft, require_id, require_isr
from quorate.metadata_log.features import BROKER_HISTORY
from quorate.metadata_log.image import EntityKey
from quorate.metadata_log.partitions import (
    Partition,
    PartitionAddition,
    PartitionRemoval,
    RemovedPartitions,
    Topic,
    TopicDeletion,
    interned,
)
from quorate.metadata_log.records import (
    NewPartition,
    OperationRefused,
    PartitionAdditionPending,
    PartitionRemovalPending,
    PartitionsAdded,
    PartitionsRemoved,
    ResultCode,
    TopicCreated,
    TopicDeletionPending,
    TopicRemoved,
)


def topic_created(draft: Draft, offset: MetadataOffset, record: TopicCreated) -> int:
    draft.require_controller(record.controller_id, record.controller_epoch)
    require_id("topic id", record.topic_id)
    if draft.topics.get(record.name) is not None:
        raise OperationRefused(ResultCode.TOPIC_EXISTS, f"topic {record.name!r} exists")
    if draft.topic_names.get(record.topic_id) is not None:
        raise OperationRefused(ResultCode.INVALID, f"topic id {record.topic_id.hex()} is taken")
    if not record.partitions:
        raise OperationRefused(ResultCode.INVALID, f"topic {record.name!r} has no partitions")
    partitions = tuple(_first_leaf(record, new) for new in record.partitions)
    draft.topics.put(record.name, Topic(record.name, record.topic_id, partitions, offset))
    draft.topic_names.put(record.topic_id, record.name)
    return offset


def _first_leaf(record: TopicCreated, new: NewPartition) -> Partition:
    if not new.replicas or len(set(new.replicas)) != len(new.replicas):
        raise OperationRefused(
            ResultCode.INVALID, f"replicas {list(new.replicas)} of {record.name!r} are not distinct"
        )
    require_isr(new.leader, new.isr, new.replicas)
    return Partition(
        replicas=interned(new.replicas),
        leader=new.leader,
        leader_epoch=LeaderEpoch(0),
        isr=interned(new.isr),
        controller_id=record.controller_id,
        controller_epoch=record.controller_epoch,
    )


def topic_deletion_pending(
    draft: Draft, offset: MetadataOffset, record: TopicDeletionPending
) -> int:
    draft.require_topic(record.name, record.topic_id)
    if draft.deletions.get(record.name) is None:
        draft.deletions.put(record.name, TopicDeletion(record.topic_id, offset))
    return offset


def topic_removed(draft: Draft, offset: MetadataOffset, record: TopicRemoved) -> int:
    topic = draft.require_topic(record.name, record.topic_id)
    draft.drop_partitions(topic)
    draft.topics.remove(record.name)
    draft.topic_names.remove(record.topic_id)
    draft.deletions.remove(record.name)
    draft.reassignments.remove(record.name)
    draft.additions.remove(record.name)
    draft.removals.remove(record.name)
    draft.configs.remove(EntityKey(("topic", record.name)))
    if draft.metadata_version >= BROKER_HISTORY:
        draft.put_deleted_topics(draft.deleted_topics.with_topic(record.topic_id, offset))
    return offset


# A topic gains partitions, or loses its highest ones: each first as a pending record (C14).
#
# One change of a topic's number of partitions is pending at a time. What is pending is then
# carried out: a controller that failed in between, or two controllers, cannot alter it.


def partition_addition_pending(
    draft: Draft, offset: MetadataOffset, record: PartitionAdditionPending
) -> int:
    topic = draft.require_topic(record.topic, record.topic_id)
    _require_nothing_pending(draft, topic)
    if record.first_partition != len(topic.partitions) or not record.replicas:
        raise OperationRefused(
            ResultCode.INVALID,
            f"{len(record.replicas)} partitions from {record.first_partition} on do not follow "
            f"the {len(topic.partitions)} of topic {record.topic!r}",
        )
    for replicas in record.replicas:
        _require_distinct(topic, replicas)
    replicas_of_each = tuple(map(interned, record.replicas))
    draft.additions.put(
        record.topic,
        PartitionAddition(record.topic_id, record.first_partition, replicas_of_each, offset),
    )
    return offset


def partitions_added(draft: Draft, offset: MetadataOffset, record: PartitionsAdded) -> int:
    draft.require_controller(record.controller_id, record.controller_epoch)
    topic = draft.require_topic(record.topic, record.topic_id)
    pending = draft.additions.get(record.topic)
    named = record.first_partition, tuple(new.replicas for new in record.partitions)
    if pending is None or named != (pending.first_partition, pending.replicas):
        raise OperationRefused(
            ResultCode.CONDITION_FAILED,
            f"these {len(record.partitions)} partitions of topic {record.topic!r} from "
            f"{record.first_partition} on are not pending",
        )
    added = tuple(_added_leaf(topic, record, new) for new in record.partitions)
    draft.topics.put(
        record.topic,
        msgspec.structs.replace(topic, partitions=(*topic.partitions, *added), version=offset),
    )
    draft.additions.remove(record.topic)
    return offset


def _added_leaf(topic: Topic, record: PartitionsAdded, new: NewPartition) -> Partition:
    require_isr(new.leader, new.isr, new.replicas)
    return Partition(
        replicas=interned(new.replicas),
        leader=new.leader,
        leader_epoch=topic.leader_epoch_floor,
        isr=interned(new.isr),
        controller_id=record.controller_id,
        controller_epoch=record.controller_epoch,
    )


def partition_removal_pending(
    draft: Draft, offset: MetadataOffset, record: PartitionRemovalPending
) -> int:
    topic = draft.require_topic(record.topic, record.topic_id)
    _require_nothing_pending(draft, topic)
    first, count = record.first_partition, len(topic.partitions)
    if not 0 < first < count:
        raise OperationRefused(
            ResultCode.INVALID,
            f"partitions from {first} on are not some of the highest of the {count} of topic "
            f"{record.topic!r}",
        )
    for number in range(first, count):
        tp = TopicPartition(record.topic, number)
        if draft.reassignment(tp) is not None:
            raise OperationRefused(
                ResultCode.CONDITION_FAILED, f"a reassignment of {tp} is pending"
            )
    draft.removals.put(record.topic, PartitionRemoval(record.topic_id, first, offset))
    return offset


def partitions_removed(draft: Draft, offset: MetadataOffset, record: PartitionsRemoved) -> int:
    topic = draft.require_topic(record.topic, record.topic_id)
    pending = draft.removals.get(record.topic)
    if pending is None or pending.first_partition != record.first_partition:
        raise OperationRefused(
            ResultCode.CONDITION_FAILED,
            f"no removal of topic {record.topic!r} from partition {record.first_partition} on "
            "is pending",
        )
    cut = _without(draft, topic, record.first_partition, offset)
    draft.drop_partitions(topic, record.first_partition)
    draft.topics.put(record.topic, cut)
    draft.removals.remove(record.topic)
    return offset


def _without(draft: Draft, topic: Topic, first: int, offset: MetadataOffset) -> Topic:
    """Return the topic without partitions from ``first`` on, with what it must remember of them."""
    leaves = [
        draft.partition(TopicPartition(topic.name, number))
        for number in range(first, len(topic.partitions))
    ]
    newest = max(leaf.leader_epoch for leaf in leaves if leaf is not None)
    uncovered = (one for one in topic.removals if one.first_partition < first)
    return msgspec.structs.replace(
        topic,
        partitions=topic.partitions[:first],
        version=offset,
        leader_epoch_floor=LeaderEpoch(max(topic.leader_epoch_floor, newest + 1)),
        removals=(*uncovered, RemovedPartitions(first, offset)),
    )


def _require_nothing_pending(draft: Draft, topic: Topic) -> None:
    for what, pending in (
        ("its deletion", draft.deletions),
        ("an addition of partitions", draft.additions),
        ("a removal of partitions", draft.removals),
    ):
        if pending.get(topic.name) is not None:
            raise OperationRefused(
                ResultCode.CONDITION_FAILED, f"{what} is pending for topic {topic.name!r}"
            )


def _require_distinct(topic: Topic, replicas: tuple[BrokerId, ...]) -> None:
    if not replicas or len(set(replicas)) != len(replicas):
        raise OperationRefused(
            ResultCode.INVALID, f"replicas {list(replicas)} of {topic.name!r} are not distinct"
        )
