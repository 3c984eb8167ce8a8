"""The immutable image: all metadata of the cluster after one metadata offset.

Immutable does not mean copied. Tables are persistent hash maps, a topic is a tuple of partition
leaves, and leaves share their replica and ISR tuples: 200,000 partitions take tens of megabytes,
and applying a change costs as much as it changes. Leaves are outside the cyclic garbage collector.
"""

from typing import Final, NamedTuple, NewType

import immutables
import msgspec

from quorate.common.types import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    MetadataOffset,
    SessionId,
    TopicId,
    TopicPartition,
)
from quorate.metadata_log.acls import AclPattern, Acls
from quorate.metadata_log.client_quotas import ClientQuotaEntity
from quorate.metadata_log.deleted_topics import DeletedTopics
from quorate.metadata_log.partitions import (
    Partition,
    PartitionAddition,
    PartitionRemoval,
    Reassignment,
    Topic,
    TopicDeletion,
)
from quorate.metadata_log.records import (
    BrokerRegistration,
    LostReplica,
    PipelineRun,
    PipelineTopicOffsets,
    QuorumVoter,
    ScramCredential,
    SessionOpened,
    TransactionResult,
)

EntityKey = NewType("EntityKey", tuple[str, str])
"""The (entity type, entity name) of a configured entity. The name "" is the default of its type."""


INTER_BROKER_PROTOCOL: Final = "inter_broker_protocol"
METADATA_VERSION: Final = "metadata_version"
TRANSACTION_VERSION: Final = "transaction.version"
"""Kafka's feature, under Kafka's name: clients look for it (KIP-890)."""

LEAST_LEVEL: Final = 1
"""The lowest level of a feature of Quorate, and the one in force while none was ever written."""


class ScramKey(NamedTuple):
    """The key of a SCRAM credential: a user has at most one per mechanism (Kafka's number)."""

    user: str
    mechanism: int


class Broker(msgspec.Struct, frozen=True, gc=False):
    """/brokers/ids/N: a live broker. Its epoch is the metadata offset of its registration.

    A new incarnation is not ``admitted`` until a controller has handled its arrival: what the
    former incarnation led has a new leader epoch, and a log that may be lost has left every ISR
    (B3, rule 8). Every controller notices a bounced broker by this flag.
    """

    registration: BrokerRegistration
    epoch: BrokerEpoch
    admitted: bool = False
    lost: tuple[LostReplica, ...] = ()
    """The replicas that leave their ISRs before the broker is admitted (rule 8)."""

    @property
    def broker_id(self) -> BrokerId:
        return self.registration.broker_id

    @property
    def kafka(self) -> Endpoint:
        return self.registration.kafka

    @property
    def grpc(self) -> Endpoint:
        """The endpoint for clients of the gRPC services."""
        return self.registration.grpc

    @property
    def inter_broker(self) -> Endpoint:
        """The endpoint for other brokers and the controller."""
        return self.registration.inter_broker or self.registration.grpc


class BrokerHistory(msgspec.Struct, frozen=True, gc=False):
    """The memory of a broker id beyond its session: the incarnation that was registered last, and
    how far its log folder was.

    A folder that does not know that incarnation, or has a lower mark, is an old copy.
    """

    incarnation_id: bytes
    epoch: BrokerEpoch
    mark: int = 0


class ControllerState(msgspec.Struct, frozen=True, gc=False):
    """/controller: the active controller and the session that it lives on."""

    broker_id: BrokerId
    session_id: SessionId
    timestamp_ms: int
    version: MetadataOffset


class DelegationTokenState(msgspec.Struct, frozen=True, gc=False):
    """/tokens/ID: the owner of a token, who may renew it, and until when it is valid (KIP-48)."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    version: MetadataOffset

    def expired(self, now_ms: int) -> bool:
        return min(self.expiry_ms, self.max_ms) < now_ms


class PipelineState(msgspec.Struct, frozen=True, gc=False):
    """/pipelines/NAME: the offsets that a pipeline has done, and the run that may move them.

    ``run_epoch`` is the metadata offset at which that run began, so every run has its own.
    """

    run_epoch: int
    sink: str
    topics: tuple[PipelineTopicOffsets, ...]
    run: PipelineRun
    rewound: bool
    version: MetadataOffset


class VoterSet(msgspec.Struct, frozen=True, gc=False):
    """/quorum/voters: the members of the metadata quorum that have a vote, and those that will get
    one.

    ``version`` is the metadata offset of its last change. At 0 none was committed yet, and the
    quorum consists of the voters in the configuration files.
    """

    voters: tuple[QuorumVoter, ...] = ()
    version: int = 0

    def voter(self, voter_id: int) -> QuorumVoter | None:
        """Return the member with this id, which may be an observer, or None."""
        return next((voter for voter in self.voters if voter.voter_id == voter_id), None)


class ClientResults(msgspec.Struct, frozen=True):
    """The results kept for a client's retries, from its low-water mark on."""

    low_water: int
    by_sequence: "immutables.Map[int, TransactionResult]"


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's metadata after ``offset``."""

    offset: MetadataOffset = MetadataOffset(0)
    controller: ControllerState | None = None
    controller_epoch: ControllerEpoch = ControllerEpoch(0)
    next_producer_id: int = 0
    voter_set: VoterSet = VoterSet()
    administered: MetadataOffset = MetadataOffset(0)
    """/administration: the offset of the last change of a kind that brokers may write at
    inter_broker_protocol 1. There two brokers compare and set it (F6).
    """
    restored_offset: MetadataOffset = MetadataOffset(0)
    """The offset at which this history begins if the quorum was restored from a backup, or 0 if it
    never was. What happened after the backup is missing here, and had offsets below this one (rule
    7).
    """
    sessions: "immutables.Map[SessionId, SessionOpened]" = immutables.Map()
    silences: "immutables.Map[SessionId, int]" = immutables.Map()
    """The number of quarters of its timeout for which a session had been silent when it was last
    noted."""
    brokers: "immutables.Map[BrokerId, Broker]" = immutables.Map()
    histories: "immutables.Map[BrokerId, BrokerHistory]" = immutables.Map()
    """The histories by broker id, also of brokers that are away."""
    deleted_topics: DeletedTopics = DeletedTopics()
    topics: "immutables.Map[str, Topic]" = immutables.Map()
    topic_names: "immutables.Map[TopicId, str]" = immutables.Map()
    deletions: "immutables.Map[str, TopicDeletion]" = immutables.Map()
    reassignments: "immutables.Map[str, immutables.Map[int, Reassignment]]" = immutables.Map()
    """Pending reassignments by topic and partition number. A topic without any is not in it."""
    additions: "immutables.Map[str, PartitionAddition]" = immutables.Map()
    removals: "immutables.Map[str, PartitionRemoval]" = immutables.Map()
    acls: Acls = immutables.Map()
    configs: "immutables.Map[EntityKey, immutables.Map[str, str]]" = immutables.Map()
    features: "immutables.Map[str, int]" = immutables.Map()
    client_quotas: "immutables.Map[ClientQuotaEntity, immutables.Map[str, float]]" = (
        immutables.Map()
    )
    scram: "immutables.Map[ScramKey, ScramCredential]" = immutables.Map()
    scram_decoy_key: bytes = b""
    """The key for the credentials of users who do not exist. It is empty until the controller has
    written one, which it does from metadata_version 6 on.
    """
    tokens: "immutables.Map[str, DelegationTokenState]" = immutables.Map()
    """Delegation tokens by id. Expired tokens stay until the controller removes them."""
    pipelines: "immutables.Map[str, PipelineState]" = immutables.Map()
    results: "immutables.Map[SessionId, ClientResults]" = immutables.Map()

    @property
    def controller_id(self) -> BrokerId:
        return NO_BROKER if self.controller is None else self.controller.broker_id

    @property
    def metadata_version(self) -> int:
        """The level in force: records introduced up to this level may be written."""
        return self.features.get(METADATA_VERSION) or LEAST_LEVEL

    @property
    def transaction_version(self) -> int:
        """The level of transactions: 0 until one is written."""
        return self.features.get(TRANSACTION_VERSION) or 0

    @property
    def inter_broker_protocol(self) -> int:
        """The level at which brokers speak to one another.

        Until the first controller has written it, this is the highest level that all live brokers
        understand.
        """
        return self.features.get(INTER_BROKER_PROTOCOL) or min(
            (broker.registration.inter_broker_protocol_max for broker in self.brokers.values()),
            default=LEAST_LEVEL,
        )

    @property
    def max_broker_epoch(self) -> BrokerEpoch:
        """The newest registration in this image. Control requests made from the image carry it
        (B1).
        """
        return max((broker.epoch for broker in self.brokers.values()), default=BrokerEpoch(-1))

    def topic_by_id(self, topic_id: TopicId) -> Topic | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, tp: TopicPartition) -> Partition | None:
        """Return the partition, or None if the topic or that number does not exist."""
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def kept(self, topic: Topic) -> int:
        """Return how many of the topic's partitions stay; they are the first ones.

        The others are being removed: nothing is decided about them, and brokers are not told of
        them. The number is 0 while the topic is being deleted.
        """
        if topic.name in self.deletions:
            return 0
        removal = self.removals.get(topic.name)
        return len(topic.partitions) if removal is None else removal.first_partition

    def reassignment(self, tp: TopicPartition) -> Reassignment | None:
        """Return the pending reassignment of a partition, or None if there is none."""
        pending = self.reassignments.get(tp.topic)
        return None if pending is None else pending.get(tp.partition)

    def config(self, entity_type: str, entity_name: str) -> "immutables.Map[str, str]":
        """Return the keys set on exactly this entity. Defaults are not mixed in."""
        return self.configs.get(EntityKey((entity_type, entity_name)), immutables.Map())


class Changes(NamedTuple):
    """The differences between two successive images, by key."""

    controller: bool = False
    brokers: frozenset[BrokerId] = frozenset()
    topics: frozenset[str] = frozenset()
    deletions: frozenset[str] = frozenset()
    reassignments: frozenset[str] = frozenset()
    additions: frozenset[str] = frozenset()
    removals: frozenset[str] = frozenset()
    configs: frozenset[EntityKey] = frozenset()
    acls: frozenset[AclPattern] = frozenset()
    features: frozenset[str] = frozenset()
    client_quotas: frozenset[ClientQuotaEntity] = frozenset()
    scram: frozenset[ScramKey] = frozenset()
    tokens: frozenset[str] = frozenset()
    pipelines: frozenset[str] = frozenset()
    sessions: frozenset[SessionId] = frozenset()
