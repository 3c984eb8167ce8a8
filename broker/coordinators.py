"""The coordinators of one broker, put together: of consumer groups, and of transactions."""

from uuid import UUID

from broker.control.metadata_cache import MetadataCache
from broker.coordinator.group_coordinator import GroupCoordinator, GroupSettings
from broker.coordinator.led_partition import told_of_leaderships
from broker.coordinator.marker_sender import MarkerSender
from broker.coordinator.producer_ids import BlockSource, ProducerIds
from broker.coordinator.shard_basis import ShardClock
from broker.coordinator.sure_leadership import MaySpeak
from broker.coordinator.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.coordinator.transaction_coordinator import (
    APPEND_TIMEOUT_MS,
    TransactionCoordinator,
    TransactionSettings,
)
from broker.replication.manager import ReplicaManager
from broker.surroundings import Surroundings
from metadata_log.configuration import Values
from metadata_log.types import ID_BYTES


class Coordinators:
    """Told by ``replicas`` of what this broker leads. ``start`` once, ``close`` once."""

    def __init__(
        self,
        config: Values,
        surroundings: Surroundings,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        markers: MarkerSender,
        id_blocks: BlockSource,
        may_speak: MaySpeak,
    ) -> None:
        self.producer_ids = ProducerIds(id_blocks)
        self.groups = GroupCoordinator(
            GroupSettings.of(config),
            ShardClock(surroundings.now_ms, surroundings.wall_clock_ms),
            metadata.partition_count,
            lambda: str(UUID(bytes=surroundings.random_bytes(ID_BYTES))),
        )
        self.transactions = TransactionCoordinator(
            TransactionSettings.of(config),
            partition_count=metadata.partition_count,
            markers=markers,
            new_producer_id=self.producer_ids.take,
            wall_ms=surroundings.wall_clock_ms,
        )
        self.markers = markers
        replicas.table.on_leadership[OFFSETS_TOPIC] = told_of_leaderships(
            self.groups,
            replicas.produce,
            surroundings.wall_clock_ms,
            may_speak,
            append_timeout_ms=self.groups.settings.commit_timeout_ms,
            on_transaction_end=self.groups.end_transaction,
            verify=replicas.verify_transaction,
        )
        replicas.table.on_leadership[TRANSACTIONS_TOPIC] = told_of_leaderships(
            self.transactions,
            replicas.produce,
            surroundings.wall_clock_ms,
            may_speak,
            append_timeout_ms=APPEND_TIMEOUT_MS,
        )

        metadata.on_gone = self.groups.partitions_gone

    def start(self) -> None:
        self.groups.start()
        self.transactions.start()

    async def close(self) -> None:
        """Whoever waits looks for other coordinators."""
        await self.transactions.close()
        self.markers.close()
        await self.groups.close()
