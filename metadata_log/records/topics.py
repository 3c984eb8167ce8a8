"""Records of topics and partitions."""

from quorate.common.types import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Int32,
    Int64,
    LeaderEpoch,
    TopicId,
)
from quorate.metadata_log.records.value import MetadataValue


class NewPartition(MetadataValue, frozen=True, gc=False, kw_only=True):
    """One partition's replicas and leadership, inside a ``TopicCreated``."""

    replicas: tuple[BrokerId, ...]  # Assigned replicas (AR); the first is preferred.
    leader: BrokerId  # First leader, -1 if none of AR is live.
    isr: tuple[BrokerId, ...]  # First ISR.


class TopicCreated(MetadataValue, frozen=True, gc=False, kw_only=True, tag=6):
    """/brokers/topics/T with all its partitions, and their first leaderAndISR (C4)."""

    name: str
    topic_id: TopicId  # 16 bytes, never used again.
    partitions: tuple[NewPartition, ...]  # Partition 0, 1, 2, ...
    controller_id: BrokerId  # The controller that decided.
    controller_epoch: ControllerEpoch


class TopicRemoved(MetadataValue, frozen=True, gc=False, kw_only=True, tag=7):
    """Removes a topic, its configuration and its pending deletion (C5)."""

    name: str
    topic_id: TopicId  # Must be the id of the topic of that name.


class TopicDeletionPending(MetadataValue, frozen=True, gc=False, kw_only=True, tag=8):
    """/admin/delete_topics/T: a deletion that was accepted and is being carried out."""

    name: str
    topic_id: TopicId  # Must be the id of the topic of that name.


class PartitionChange(MetadataValue, frozen=True, gc=False, kw_only=True, tag=9):
    """The controller's write of a leaderAndISR (C1, C2): leader, ISR, or both."""

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    partition: Int32
    expected_version: Int64  # Compare-and-set: the record's version before the change.
    leader: BrokerId  # New leader, -1 for none.
    leader_epoch: LeaderEpoch  # It is never below the old leader epoch.
    isr: tuple[BrokerId, ...]
    controller_id: BrokerId  # Who decided.
    controller_epoch: ControllerEpoch  # In which epoch.


class IsrMember(MetadataValue, frozen=True, gc=False, kw_only=True):
    """A member of an ISR proposed by the leader, with the incarnation the leader saw."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch = BrokerEpoch(-1)  # -1 for members already in the ISR.


class IsrChange(MetadataValue, frozen=True, gc=False, kw_only=True, tag=10):
    """The leader's write of its partition's ISR (C1, C13). It can change nothing else."""

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    partition: Int32
    expected_version: Int64  # Compare-and-set: the record's version before the change.
    leader: BrokerId  # The writer; must be the record's leader.
    leader_broker_epoch: BrokerEpoch  # The writer's incarnation; must be its registration.
    leader_epoch: LeaderEpoch  # Must be the record's leader epoch.
    isr: tuple[IsrMember, ...]  # Contains the leader; additions must be live in that epoch.


class PartitionReassignment(MetadataValue, frozen=True, gc=False, kw_only=True, tag=17):
    """One step of moving a partition's replicas (C11).

    The assigned replicas (AR), leaderAndISR and the pending record /admin/partitions_reassigned/T/P
    change together, by compare-and-set on leaderAndISR. While it is pending, AR consists of
    ``original`` and ``target``.
    """

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    partition: Int32
    expected_version: Int64  # Compare-and-set: leaderAndISR's version before the step.
    replicas: tuple[BrokerId, ...]  # AR from now on; the first is preferred.
    leader: BrokerId  # In the new AR, -1 for none.
    leader_epoch: LeaderEpoch  # Above the old one.
    isr: tuple[BrokerId, ...]  # Of the old ISR, what is in the new AR: nobody is admitted here.
    target: tuple[BrokerId, ...]  # Where it is going; empty: it ends, and is pending no longer.
    original: tuple[BrokerId, ...]  # AR before it began, for who cancels it; empty at the end.
    controller_id: BrokerId  # Who decided.
    controller_epoch: ControllerEpoch  # In which epoch.


class PartitionAdditionPending(MetadataValue, frozen=True, gc=False, kw_only=True, tag=20):
    """/admin/partitions_add/T/P: an addition of partitions that was accepted (C14)."""

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    first_partition: Int32  # Number of the first new one: as many as the topic has.
    replicas: tuple[tuple[BrokerId, ...], ...]  # AR of each new one; the first is preferred.


class PartitionsAdded(MetadataValue, frozen=True, gc=False, kw_only=True, tag=21):
    """The pending partitions become part of the topic, with their first leaderAndISR (C14).

    Their first leader epoch is the topic's floor, above that of every partition that was removed.
    """

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    first_partition: Int32  # As it is pending.
    partitions: tuple[NewPartition, ...]  # Replicas as they are pending.
    controller_id: BrokerId  # The controller that decided.
    controller_epoch: ControllerEpoch


class PartitionRemovalPending(MetadataValue, frozen=True, gc=False, kw_only=True, tag=22):
    """/admin/partitions_remove/T/P: the topic's highest partitions are to be removed (C14)."""

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    first_partition: Int32  # This one and all above; never 0.


class PartitionsRemoved(MetadataValue, frozen=True, gc=False, kw_only=True, tag=23):
    """The partitions whose removal is pending leave the topic (C14)."""

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    first_partition: Int32  # As it is pending.
