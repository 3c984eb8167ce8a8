"""The decision which replicas of this broker are lost, made when it comes up (rule 8).

A replica in an ISR is relied upon for all that is committed. If its log is absent, or ends below
what its own checkpoint promises, it must be out of the ISR before anybody is told to lead.

A new partition has no log yet and is not lost. The two are told apart by the folder's own durable
record of the metadata offset up to which every partition assigned to this broker had a log: what
was created at or before that offset had one. Where a topic has grown since, a partition whose
leadership or ISR has changed since it was created is not new either.
"""

from collections.abc import Iterator, Mapping, Set
from enum import Enum
from typing import NamedTuple, Protocol

from quorate.common.types import BrokerId, TopicIdPartition
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Partition, Topic


class StoredPromise(Protocol):
    """The part of a stored log that tells whether it is whole. ``StoredLog`` implements it."""

    assigned_at: int
    lacks_committed: bool


class Loss(Enum):
    """The reason why a replica is lost."""

    DECLARED = "it was found to be lost by an earlier start, and no controller has dealt with it"
    ABSENT = "its log is not in the folder, which had it"
    DOUBTFUL = "its log directory may have lost batches"
    SHORT = "its log ends below its own checkpointed high watermark"


class AssignedReplica(NamedTuple):
    """A partition that the image assigns to this broker, and that stays."""

    tip: TopicIdPartition
    topic: Topic
    leaf: Partition


def assigned_replicas(image: Image, broker_id: BrokerId) -> Iterator[AssignedReplica]:
    """Yield what ``image`` assigns to a broker, without what is being deleted or removed."""
    for topic in image.topics.values():
        yield from assigned_in(image, topic, broker_id)


def assigned_in(image: Image, topic: Topic, broker_id: BrokerId) -> Iterator[AssignedReplica]:
    """Yield what ``image`` assigns to a broker of one topic."""
    for number, leaf in enumerate(topic.partitions[: image.kept(topic)]):
        if broker_id in leaf.replicas:
            yield AssignedReplica(TopicIdPartition(topic.topic_id, number), topic, leaf)


def has_log(replica: AssignedReplica, logs: Mapping[TopicIdPartition, StoredPromise]) -> bool:
    """Return whether the partition has a log. That of an earlier one of its number is another's."""
    found = logs.get(replica.tip)
    return found is not None and found.assigned_at >= replica.topic.removed_at(
        replica.tip.partition
    )


def lost_replicas(
    image: Image,
    broker_id: BrokerId,
    logs: Mapping[TopicIdPartition, StoredPromise],
    *,
    hosted_through: int,
    declared: frozenset[TopicIdPartition] = frozenset(),
    doubtful: Set[TopicIdPartition] = frozenset(),
) -> dict[TopicIdPartition, Loss]:
    """Return the replicas that the ISR must not rely on, and what is wrong with each.

    ``hosted_through`` is the metadata offset up to which the folder had a log for everything that
    was assigned. ``declared`` are those that an earlier start found, and ``doubtful`` those in one
    of several folders that may have lost batches. In a restored history a topic may be back that
    was deleted after the backup: a record from before says nothing about it.
    """
    is_comparable = hosted_through > 0 and hosted_through >= image.restored_offset
    lost: dict[TopicIdPartition, Loss] = {}
    for replica in assigned_replicas(image, broker_id):
        tip = replica.tip
        if broker_id not in replica.leaf.isr:
            continue
        if tip in declared:
            lost[tip] = Loss.DECLARED
        elif not has_log(replica, logs):
            if is_comparable and not _may_be_new(replica, hosted_through):
                lost[tip] = Loss.ABSENT
        elif tip in doubtful:
            lost[tip] = Loss.DOUBTFUL
        elif logs[tip].lacks_committed:
            lost[tip] = Loss.SHORT
    return lost


def withheld_replicas(
    image: Image,
    broker_id: BrokerId,
    logs: Mapping[TopicIdPartition, StoredPromise],
    *,
    hosted_through: int,
) -> frozenset[TopicIdPartition]:
    """Return the replicas that are in a folder which is not there, as far as can be told.

    These are all without a log that are not surely new. They get no log in another folder: the one
    that they have comes back with its folder. ``hosted_through`` is as for ``lost_replicas``.
    """
    since = max(hosted_through, image.restored_offset)
    return frozenset(
        replica.tip
        for replica in assigned_replicas(image, broker_id)
        if not has_log(replica, logs) and not _may_be_new(replica, since)
    )


def _may_be_new(replica: AssignedReplica, hosted_through: int) -> bool:
    """Return whether the partition may have been created after ``hosted_through``.

    The image has no offset of a partition's creation, and that of its topic moves when the topic
    grows. But a new partition is as it was created: no change of its leadership or ISR is counted,
    and it is in the leader epoch that its topic gives to new ones.
    """
    leaf = replica.leaf
    return (
        replica.topic.version > hosted_through
        and leaf.version == 0
        and leaf.leader_epoch == replica.topic.leader_epoch_floor
    )
