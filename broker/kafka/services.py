"""The parts of a broker that the handlers of Kafka's APIs work with."""

from collections.abc import Callable
from dataclasses import dataclass, field

from quorate.broker.control.controller_forwarder import ControllerForwarder
from quorate.broker.control.ports import QuorumView
from quorate.broker.coordinator.groups.group_coordinator import GroupCoordinator
from quorate.broker.coordinator.groups.share_group_parts import GroupConfiguration
from quorate.broker.coordinator.share.share_leader import ShareLeader
from quorate.broker.coordinator.share.share_states import ShareStates
from quorate.broker.coordinator.transactions.producer_ids import ProducerIds
from quorate.broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from quorate.broker.kafka.admin.config_description import ConfigReads
from quorate.broker.kafka.records.fetch_session_cache import FetchSessionCache
from quorate.broker.kafka.share.share_sessions import ShareSessionCache
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.metrics.client_metrics import ClientFigures
from quorate.broker.quota.client_memory import ClientMemory
from quorate.broker.quota.client_quota_manager import ClientQuotaManager, unlimited
from quorate.broker.quota.connection_rates import ConnectionRates, unlimited_rates
from quorate.broker.quota.work_turns import WorkTurns
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.security.authorizer import Authorizer
from quorate.broker.security.token_access import TokenDescription
from quorate.broker.telemetry.client_telemetry import ClientTelemetry
from quorate.common.configuration import Values
from quorate.common.types import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaServices:
    """The objects that a handler of the Kafka listener may call."""

    config: Values
    """The broker's configuration, by the keys of ``quorate.broker.config.spec``."""
    broker_id: BrokerId
    cluster_id: str
    replicas: ReplicaManager
    """The partitions of this broker.

    ``produce`` appends before its first await. The requests of one connection are started in order
    without waiting for each other, so an await before the append would reorder a producer's
    batches.
    """
    metadata: MetadataCache
    """The cluster as clients see it. Leadership reaches clients by this cache alone (C19)."""
    forwarder: ControllerForwarder
    """Forwards changes to the controller, which is on this broker or one hop away (F2)."""
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    authorizer: Authorizer
    fetch_sessions: FetchSessionCache
    share_states: ShareStates
    """The share coordinators of the cluster."""
    share_leader: ShareLeader
    """The share-partitions of the partitions that this broker leads (KIP-932)."""
    share_sessions: ShareSessionCache
    group_config: GroupConfiguration
    """The configuration of groups."""
    images: MetadataFollower
    """Holds the newest metadata image. Administrative state reaches a broker by it alone (F3)."""
    configs: ConfigReads
    tokens: TokenDescription
    quorum: QuorumView
    telemetry: ClientTelemetry
    """What clients push of their own metrics (KIP-714)."""
    quotas: ClientQuotaManager = field(default_factory=unlimited)
    connection_rates: ConnectionRates = field(default_factory=unlimited_rates)
    figures: ClientFigures = field(default_factory=ClientFigures)
    """The metrics of the clients of all listeners together."""
    memory: ClientMemory = field(default_factory=ClientMemory)
    turns: WorkTurns = field(default_factory=WorkTurns)
    """The turns of requests with many items, over all listeners."""
    wall_clock_ms: Callable[[], int] = lambda: 0
