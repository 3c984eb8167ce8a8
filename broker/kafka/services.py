"""What the Kafka listener needs of the rest of the broker, as narrow protocols.

The real ones are ``replication.manager``, ``control.metadata_cache`` and ``control.forwarding``;
tests bring fakes of the same surface.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from broker.client_memory import ClientMemory
from broker.control.changes import A, Change, Q
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.transaction_coordinator import TransactionCoordinator
from broker.kafka.fetch_sessions import FetchSessions
from broker.metrics.clients import ClientFigures
from broker.quota.client_usage import ClientUsage, unlimited
from broker.replication.api import (
    DeleteOutcome,
    DeleteWant,
    EpochEnd,
    FetchOutcome,
    FetchTerms,
    FetchWant,
    Isolation,
    LogSize,
    MarkerEntry,
    OffsetOutcome,
    ProduceEntry,
    ProduceOutcome,
)
from broker.replication.polling import Poll, Position
from broker.replication.producer_states import ProducerState
from broker.security.authorizer import Authorizer
from broker.told_metadata import ToldMetadata
from metadata_log.configuration import Values
from metadata_log.image import Image
from metadata_log.types import (
    BrokerId,
    TopicPartition,
)
from quorate_proto.v1 import admin_pb2
from quorate_proto.v1.quorum_pb2 import QuorumStatusResponse


class Replicas(Protocol):
    """The partitions of this broker.

    ``produce`` appends before its first await: requests of one connection are started in order and
    not waited for, so anything else would reorder a producer's batches.
    """

    async def produce(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> list[ProduceOutcome]:
        """As ``ReplicaManager.produce``; an outcome per entry."""

    async def write_markers(self, entries: Sequence[MarkerEntry], timeout_ms: int) -> list[int]:
        """A Kafka error code per entry."""

    async def producer_states(self, tp: TopicPartition) -> list[ProducerState]:
        """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION."""

    async def fetch(self, wants: Sequence[FetchWant], terms: FetchTerms) -> list[FetchOutcome]:
        """An outcome per want, in order."""

    async def poll(self, poll: Poll, terms: FetchTerms) -> dict[Position, FetchOutcome]:
        """An outcome per position that has news."""

    def list_offset(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        current_leader_epoch: int = -1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> OffsetOutcome:
        """As ``Consuming.list_offset``."""

    def offset_for_leader_epoch(
        self, tp: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEnd:
        """Where an epoch ends in the leader's log."""

    async def delete_records(
        self, wants: Sequence[DeleteWant], timeout_ms: int
    ) -> list[DeleteOutcome]:
        """An outcome per want, in order."""

    def log_sizes(self) -> Iterable[LogSize]:
        """Of every partition that this broker holds."""

    def storage_is_troubled(self) -> bool:
        """Whether the log folder is full, or a log in it cannot be read."""


class Forwarder(Protocol):
    """Changes, carried out by the controller: here, or one hop away (F2)."""

    async def carry_out(self, change: Change[Q, A], request: Q, *, proxied: bool = True) -> A:
        """``proxied`` False: by this broker, or NOT_CONTROLLER."""


class FeaturesInForce(NamedTuple):
    """Levels by feature, and how new they are: clients keep the newest."""

    metadata_offset: int = 0
    levels: Mapping[str, int] = MappingProxyType({})


class ProducerIdSource(Protocol):
    """``coordinator.producer_ids.ProducerIds``."""

    async def take(self) -> int:
        """An id that nobody else has. Raises KafkaError: none is to be had now."""


DescribeConfigs = Callable[
    [admin_pb2.DescribeConfigsRequest], Awaitable[admin_pb2.DescribeConfigsResponse]
]


async def no_quorum() -> QuorumStatusResponse:
    """Nobody knows one."""
    return QuorumStatusResponse()


async def no_configs(
    _request: admin_pb2.DescribeConfigsRequest,
) -> admin_pb2.DescribeConfigsResponse:
    """Nobody tells any."""
    return admin_pb2.DescribeConfigsResponse()


DescribeTokens = Callable[
    [admin_pb2.DescribeDelegationTokensRequest],
    Awaitable[admin_pb2.DescribeDelegationTokensResponse],
]
"""``security.token_access.describe_tokens``, of this broker's image and keys."""


async def no_tokens(
    _request: admin_pb2.DescribeDelegationTokensRequest,
) -> admin_pb2.DescribeDelegationTokensResponse:
    """There are none."""
    return admin_pb2.DescribeDelegationTokensResponse()


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaServices:
    """Collaborators of the listener. ``config``: of ``broker.config.spec``."""

    config: Values
    broker_id: BrokerId
    cluster_id: str
    replicas: Replicas
    metadata: ToldMetadata
    forwarder: Forwarder
    producer_ids: ProducerIdSource
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    authorizer: Authorizer
    fetch_sessions: FetchSessions
    features: Callable[[], FeaturesInForce] = FeaturesInForce
    describe_configs: DescribeConfigs = no_configs
    describe_tokens: DescribeTokens = no_tokens
    image: Callable[[], Image] = Image
    """The newest one that the watch brought: administrative state comes by it alone (F3)."""
    usage: ClientUsage = field(default_factory=unlimited)
    figures: ClientFigures = field(default_factory=ClientFigures)
    """What clients use of this broker, of all its listeners together."""
    memory: ClientMemory = field(default_factory=ClientMemory)
    quorum_status: Callable[[], Awaitable[QuorumStatusResponse]] = no_quorum
    wall_clock_ms: Callable[[], int] = lambda: 0
