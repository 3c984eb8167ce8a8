"""The first stage that holds data: the log manager and the replica manager."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from quorate.broker.assembly.shared_parts import SharedParts
from quorate.broker.config.dynamic_config import topics_of
from quorate.broker.config.producers import PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS
from quorate.broker.config.replication import (
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    REPLICA_FETCH_WAIT_MAX_MS,
)
from quorate.broker.config.retention import LOG_RETENTION_CHECK_INTERVAL_MS
from quorate.broker.coordinator.transactions.partition_verifier import PartitionVerifier
from quorate.broker.log.directories.log_directories import LogDirectories
from quorate.broker.log.writing.log_writer import LogManagerEvents
from quorate.broker.replication.hosting.replication_throttle import ReplicationThrottles
from quorate.broker.replication.log_directory_monitor import LogDirectoryMonitor
from quorate.broker.replication.manager import ReplicaManager, ReplicationOptions
from quorate.metadata_log.image import Changes, Image


@dataclass(frozen=True, slots=True)
class ReplicationStage:
    """The replicas of this broker, over an open log manager. None leads or follows yet (C10)."""

    store: LogDirectories
    replicas: ReplicaManager
    log_events: LogManagerEvents
    log_directory_monitor: LogDirectoryMonitor

    @classmethod
    async def open(cls, shared: SharedParts, cleanup: AsyncExitStack) -> "ReplicationStage":
        """Open the log manager and host its logs.

        Raises:
            DataFolderError, KafkaError, OSError: The folder belongs to another broker, or cannot be
                used.
        """
        log_events = LogManagerEvents()
        store = await shared.environment.open_store(
            cleanup, log_events, shared.identity.incarnation_id
        )
        replicas = _replica_manager(shared, store)
        log_directory_monitor = LogDirectoryMonitor(shared.identity, replicas, shared.images)
        log_events.subscribe(replicas)
        log_events.subscribe(log_directory_monitor)
        replicas.start()
        cleanup.push_async_callback(replicas.close)
        cleanup.push_async_callback(log_directory_monitor.close)
        return cls(store, replicas, log_events, log_directory_monitor)

    def configs_changed(self, image: Image, changes: Changes) -> None:
        """Have the partitions that this broker leads read their limits again. This is an observer
        of the image."""
        self.replicas.configs_changed(topics_of(changes.configs))


def _replica_manager(shared: SharedParts, store: LogDirectories) -> ReplicaManager:
    config = shared.config
    verifier = PartitionVerifier(
        identity=shared.identity,
        images=shared.images,
        channels=shared.channels,
        local=shared.transaction_coordinator,
    )
    return ReplicaManager(
        shared.identity,
        store,
        ReplicationOptions(
            fetch_wait_max_ms=config[REPLICA_FETCH_WAIT_MAX_MS],
            fetch_response_max_bytes=config[REPLICA_FETCH_RESPONSE_MAX_BYTES],
            producer_check_interval_ms=config[PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS],
            retention_check_interval_ms=config[LOG_RETENTION_CHECK_INTERVAL_MS],
        ),
        quorum=shared.quorum,
        metadata=shared.images,
        limits=shared.limits,
        throttles=ReplicationThrottles.configured(shared.live),
        clock=shared.environment,
        network=shared.environment,
        partition_count=shared.cache.partition_count,
        verifier=verifier,
    )
