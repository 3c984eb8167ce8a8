"""The immutable image: everything the cluster knows after one metadata offset.

Immutable does not mean copied. Tables are persistent hash maps, a topic is a tuple of partition
leaves, and leaves share their replica and ISR tuples: 200,000 partitions take tens of megabytes and
applying a change costs what changed. Leaves are outside the cyclic garbage collector.
"""

import functools
from typing import NamedTuple, NewType

import immutables
import msgspec

from metadata_log.acls import Acls
from metadata_log.client_quotas import QuotaEntity
from metadata_log.records import (
    BrokerRegistration,
    PipelineRun,
    PipelineTopic,
    QuorumVoter,
    ScramCredential,
    SessionOpened,
    TransactionResult,
)
from metadata_log.types import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
    SessionId,
    TopicId,
    TopicIdPartition,
    TopicPartition,
)

EntityKey = NewType("EntityKey", tuple[str, str])
"""(entity type, entity name) of a configured entity; name "" is the type's default."""


class ScramKey(NamedTuple):
    """Of a SCRAM credential: a user has at most one per mechanism (Kafka's number)."""

    user: str
    mechanism: int


@functools.lru_cache(maxsize=65_536)
def interned(members: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """The one shared copy of a replica list: few distinct ones exist in any cluster."""
    return members


class Partition(msgspec.Struct, frozen=True, gc=False):
    """/brokers/topics/T/P/leaderAndISR together with the partition's assigned replicas."""

    replicas: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    version: int = 0

    @property
    def preferred_leader(self) -> BrokerId:
        return self.replicas[0]

    @property
    def offline(self) -> bool:
        return self.leader == NO_BROKER

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


class PastRemoval(NamedTuple):
    """Partitions from this number on were removed at this metadata offset."""

    first_partition: int
    offset: MetadataOffset


class Topic(msgspec.Struct, frozen=True, gc=False):
    """/brokers/topics/T. ``version``: metadata offset of its creation, or of the last change of its
    number of partitions.

    A partition that is removed may be added again, under the same topic id and number. So that
    nothing of the old one is taken for the new one's (C14), leadership of what is added begins at
    ``leader_epoch_floor``, above every epoch of what was removed; and ``removals`` says up to when
    a broker may have been given the old one: numbers and offsets both grow, so that only removals
    that no later one covers are in it.
    """

    name: str
    topic_id: TopicId
    partitions: tuple[Partition, ...]
    version: MetadataOffset
    leader_epoch_floor: LeaderEpoch = LeaderEpoch(0)
    removals: tuple[PastRemoval, ...] = ()

    def removed_at(self, number: int) -> MetadataOffset:
        """When a partition of this number was last removed; 0: never."""
        covering = [one.offset for one in self.removals if one.first_partition <= number]
        return covering[-1] if covering else MetadataOffset(0)


class Broker(msgspec.Struct, frozen=True, gc=False):
    """/brokers/ids/N: a live broker. Its epoch is the metadata offset of its registration.

    A new incarnation is not ``admitted`` until a controller has dealt with its arrival: what the
    one before it led has a new leader epoch, and a log that may be lost has left every ISR (B3,
    rule 8). That it is not admitted is how a bounce is noticed, whoever is the controller.
    """

    registration: BrokerRegistration
    epoch: BrokerEpoch
    admitted: bool = False

    @property
    def broker_id(self) -> BrokerId:
        return self.registration.broker_id

    @property
    def kafka(self) -> Endpoint:
        return self.registration.kafka

    @property
    def grpc(self) -> Endpoint:
        """Of clients."""
        return self.registration.grpc

    @property
    def inter_broker(self) -> Endpoint:
        """Of brokers and the controller."""
        return self.registration.inter_broker or self.registration.grpc


class Controller(msgspec.Struct, frozen=True, gc=False):
    """/controller: its holder and the session it lives on."""

    broker_id: BrokerId
    session_id: SessionId
    timestamp_ms: int
    version: MetadataOffset


class TopicDeletion(msgspec.Struct, frozen=True, gc=False):
    """/admin/delete_topics/T."""

    topic_id: TopicId
    version: MetadataOffset


class PartitionAddition(msgspec.Struct, frozen=True, gc=False):
    """/admin/partitions_add/T/P for all its new partitions: what AR they are to have (C14)."""

    topic_id: TopicId
    first_partition: int
    replicas: tuple[tuple[BrokerId, ...], ...]
    version: MetadataOffset


class PartitionRemoval(msgspec.Struct, frozen=True, gc=False):
    """/admin/partitions_remove/T/P for all that go: ``first_partition`` and above (C14)."""

    topic_id: TopicId
    first_partition: int
    version: MetadataOffset


class Reassignment(msgspec.Struct, frozen=True, gc=False):
    """/admin/partitions_reassigned/T/P: the partition's replicas are on their way (C11).

    Its AR meanwhile holds those of ``original`` and of ``target``.
    """

    target: tuple[BrokerId, ...]
    original: tuple[BrokerId, ...]
    version: MetadataOffset

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        """Replicas that are there for the target alone."""
        return tuple(one for one in self.target if one not in self.original)

    @property
    def removing(self) -> tuple[BrokerId, ...]:
        """Replicas that go once the target is in sync."""
        return tuple(one for one in self.original if one not in self.target)


class DelegationToken(msgspec.Struct, frozen=True, gc=False):
    """/tokens/ID: who comes with it, who may renew it, and until when (KIP-48)."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    version: MetadataOffset

    def expired(self, now_ms: int) -> bool:
        return min(self.expiry_ms, self.max_ms) < now_ms


class Pipeline(msgspec.Struct, frozen=True, gc=False):
    """/pipelines/NAME: the offsets done, and the run that may move them.

    ``run_epoch``: metadata offset at which that run began, so that no run ever has another's.
    """

    run_epoch: int
    sink: str
    topics: tuple[PipelineTopic, ...]
    run: PipelineRun
    rewound: bool
    version: MetadataOffset


class VoterSet(msgspec.Struct, frozen=True, gc=False):
    """/quorum/voters: who has a vote in the metadata quorum, and who is on the way to one.

    ``version`` is the metadata offset of its last change. 0: none was committed yet, and the
    quorum consists of the voters in the configuration files.
    """

    voters: tuple[QuorumVoter, ...] = ()
    version: int = 0

    def voter(self, voter_id: int) -> QuorumVoter | None:
        """The member with this id, observers included."""
        return next((voter for voter in self.voters if voter.voter_id == voter_id), None)


class ClientResults(msgspec.Struct, frozen=True):
    """Results kept for a client's retries, from its low-water mark on."""

    low_water: int
    by_sequence: "immutables.Map[int, TransactionResult]"


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's metadata after ``offset``."""

    offset: MetadataOffset = MetadataOffset(0)
    controller: Controller | None = None
    controller_epoch: ControllerEpoch = ControllerEpoch(0)
    next_producer_id: int = 0
    voter_set: VoterSet = VoterSet()
    administered: MetadataOffset = MetadataOffset(0)
    """/administration: the last change of a kind that brokers may write at inter_broker_protocol 1:
    there it is what two of them compare and set (F6)."""
    restored_offset: MetadataOffset = MetadataOffset(0)
    """Where this history begins if the quorum was restored from a backup; 0: it never was. What
    happened after the backup is not in it, and was numbered below this (rule 7)."""
    sessions: "immutables.Map[SessionId, SessionOpened]" = immutables.Map()
    silences: "immutables.Map[SessionId, int]" = immutables.Map()
    """Quarters of its timeout for which a session had been silent when that was last noted."""
    brokers: "immutables.Map[BrokerId, Broker]" = immutables.Map()
    topics: "immutables.Map[str, Topic]" = immutables.Map()
    topic_names: "immutables.Map[TopicId, str]" = immutables.Map()
    deletions: "immutables.Map[str, TopicDeletion]" = immutables.Map()
    reassignments: "immutables.Map[str, immutables.Map[int, Reassignment]]" = immutables.Map()
    """Pending ones, by topic and partition number; no topic without any is in it."""
    additions: "immutables.Map[str, PartitionAddition]" = immutables.Map()
    removals: "immutables.Map[str, PartitionRemoval]" = immutables.Map()
    acls: Acls = immutables.Map()
    configs: "immutables.Map[EntityKey, immutables.Map[str, str]]" = immutables.Map()
    features: "immutables.Map[str, int]" = immutables.Map()
    client_quotas: "immutables.Map[QuotaEntity, immutables.Map[str, float]]" = immutables.Map()
    scram: "immutables.Map[ScramKey, ScramCredential]" = immutables.Map()
    tokens: "immutables.Map[str, DelegationToken]" = immutables.Map()
    """Delegation tokens by id, ended ones until the controller has removed them."""
    pipelines: "immutables.Map[str, Pipeline]" = immutables.Map()
    results: "immutables.Map[SessionId, ClientResults]" = immutables.Map()

    @property
    def controller_id(self) -> BrokerId:
        return NO_BROKER if self.controller is None else self.controller.broker_id

    @property
    def max_broker_epoch(self) -> BrokerEpoch:
        """Newest registration in this image: what control requests made from it carry (B1)."""
        return max((broker.epoch for broker in self.brokers.values()), default=BrokerEpoch(-1))

    def topic_by_id(self, topic_id: TopicId) -> Topic | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, tp: TopicPartition) -> Partition | None:
        """The partition, or None if the topic or that number does not exist."""
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def partition_by_id(self, tip: TopicIdPartition) -> Partition | None:
        """As ``partition``, for a topic id."""
        name = self.topic_names.get(tip.topic_id)
        return None if name is None else self.partition(TopicPartition(name, tip.partition))

    def kept(self, topic: Topic) -> int:
        """How many of the topic's partitions stay: nobody decides about, or tells of, the others.

        They are the first ones; 0 while the topic is being deleted.
        """
        if topic.name in self.deletions:
            return 0
        removal = self.removals.get(topic.name)
        return len(topic.partitions) if removal is None else removal.first_partition

    def reassignment(self, tp: TopicPartition) -> Reassignment | None:
        """The pending reassignment of a partition, None if there is none."""
        pending = self.reassignments.get(tp.topic)
        return None if pending is None else pending.get(tp.partition)

    def config(self, entity_type: str, entity_name: str) -> "immutables.Map[str, str]":
        """Keys set on exactly this entity: defaults are not mixed in."""
        return self.configs.get(EntityKey((entity_type, entity_name)), immutables.Map())
