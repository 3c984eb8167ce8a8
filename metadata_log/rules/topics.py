"""Topics come, are marked for deletion and go (C4, C5)."""

from metadata_log.draft import Draft
from metadata_log.image import EntityKey, Partition, Topic, TopicDeletion, interned
from metadata_log.records import (
    NewPartition,
    ResultCode,
    TopicCreated,
    TopicDeletionPending,
    TopicRemoved,
)
from metadata_log.rules.requirements import (
    Refused,
    require_controller,
    require_id,
    require_isr,
    require_topic,
)
from metadata_log.types import LeaderEpoch, MetadataOffset


def topic_created(draft: Draft, offset: MetadataOffset, record: TopicCreated) -> int:
    require_controller(draft, record.controller_id, record.controller_epoch)
    require_id("topic id", record.topic_id)
    if draft.topics.get(record.name) is not None:
        raise Refused(ResultCode.TOPIC_EXISTS, f"topic {record.name!r} exists")
    if draft.topic_names.get(record.topic_id) is not None:
        raise Refused(ResultCode.INVALID, f"topic id {record.topic_id.hex()} is taken")
    if not record.partitions:
        raise Refused(ResultCode.INVALID, f"topic {record.name!r} has no partitions")
    partitions = tuple(_first_leaf(record, new) for new in record.partitions)
    draft.topics.put(record.name, Topic(record.name, record.topic_id, partitions, offset))
    draft.topic_names.put(record.topic_id, record.name)
    return offset


def _first_leaf(record: TopicCreated, new: NewPartition) -> Partition:
    if not new.replicas or len(set(new.replicas)) != len(new.replicas):
        raise Refused(
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
    require_topic(draft, record.name, record.topic_id)
    if draft.deletions.get(record.name) is None:
        draft.deletions.put(record.name, TopicDeletion(record.topic_id, offset))
    return offset


def topic_removed(draft: Draft, offset: MetadataOffset, record: TopicRemoved) -> int:
    topic = require_topic(draft, record.name, record.topic_id)
    draft.drop_partitions(topic)
    draft.topics.remove(record.name)
    draft.topic_names.remove(record.topic_id)
    draft.deletions.remove(record.name)
    draft.reassignments.remove(record.name)
    draft.additions.remove(record.name)
    draft.removals.remove(record.name)
    draft.configs.remove(EntityKey(("topic", record.name)))
    return offset
