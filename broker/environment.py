"""The environment of a broker: the quorum, sockets, disk, clocks and random numbers.

A broker takes all of it from here and nothing from anywhere else, so that a simulation runs the
same broker over a network, a disk and a clock of its own.
"""

import asyncio
import os
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import Final, Protocol

import grpc.aio

from quorate.broker.changes.audit_files import AuditLimits
from quorate.broker.changes.audit_log import AuditLog, KeepAuditEntries, keep_no_entries
from quorate.broker.config.controller import (
    AUDIT_LOG_FILE,
    AUDIT_LOG_RETENTION_DAYS,
    AUDIT_LOG_ROLL_BYTES,
    AUDIT_LOG_ROLL_DAYS,
)
from quorate.broker.config.grpc_listeners import REPLICATION_PORT
from quorate.broker.config.log import (
    LOG_FLUSH,
    LOG_RESERVE_BYTES,
    LOG_SEGMENT_BYTES,
    log_folders,
)
from quorate.broker.config.node import BROKER_ID, BROKER_SESSION_TIMEOUT_MS
from quorate.broker.config.producers import PRODUCER_ID_EXPIRATION_MS
from quorate.broker.config.spec import quorum_addresses
from quorate.broker.config.topics import MESSAGE_MAX_BYTES
from quorate.broker.control.ports import Quorum
from quorate.broker.kafka.server import KafkaServer
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.log.directories.log_directories import LogDirectories
from quorate.broker.log.directories.opening import open_log_directories
from quorate.broker.log.options import LogOptions
from quorate.broker.log.recovery.folder_identity import require_identity
from quorate.broker.log.writing.log_writer import LogManagerEvents
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.services.replication_listener import ReplicationListener
from quorate.broker.rpc.grpc_listener import (
    Certificates,
    GrpcListener,
    GrpcRefusals,
    client_listener,
    inter_broker_listener,
)
from quorate.broker.rpc.peer_channels import Peer, PeerChannels, connect, open_channel
from quorate.broker.rpc.peer_tls import PeerTls
from quorate.broker.security.client_guard import VerifiedPasswords
from quorate.broker.security.listener_security import OPEN_LISTENER, ListenerSecurity
from quorate.broker.security.listener_tls import ListenerTls
from quorate.broker.security.peer_guard import KnownController
from quorate.common.clock import monotonic_ms, wall_clock_ms
from quorate.common.configuration import Configuration
from quorate.common.files.data_folder import claimed_data_folder
from quorate.common.types import BrokerId, Endpoint
from quorate.quorum.client.quorum_client import QuorumClient


class KafkaListener(Protocol):
    """A server for Kafka clients; ``quorate.broker.kafka.server`` implements it."""

    async def start(
        self,
        listener: Endpoint,
        security: ListenerSecurity = OPEN_LISTENER,
        tls: ListenerTls | None = None,
    ) -> Endpoint:
        """Listen at one more address; return the one that is bound.

        Raises:
            OSError: the address cannot be used.
        """

    async def stop(self) -> None:
        """Answer what is in flight, and close."""


class BrokerEnvironment(Protocol):
    """Everything that a broker takes from outside. The simulator has an environment of its own."""

    @property
    def quorum(self) -> Quorum: ...

    def now_ms(self) -> int:
        """Return the monotonic clock in milliseconds."""

    def wall_clock_ms(self) -> int:
        """Return the milliseconds since the epoch."""

    def random_bytes(self, count: int) -> bytes: ...

    def open_channel(self, peer: Peer) -> grpc.aio.Channel:
        """Open a gRPC channel to a broker; the caller closes it."""

    async def connect(self, peer: Peer, port: int, protocol: asyncio.BaseProtocol) -> None:
        """Connect to another port of a broker, see ``PeerNetwork.connect``."""

    def replication_listener(self, table: PartitionTable) -> ReplicationListener | None:
        """Return the listener of framed streams, or None if followers fetch over gRPC alone."""

    def peer_channels(self) -> PeerChannels:
        """Return the pool of gRPC channels to brokers, which many share."""

    def inter_broker_listener(self, images: MetadataFollower) -> GrpcListener:
        """Return the gRPC listener for brokers. ``images`` show who is the controller."""

    def client_listener(self, passwords: VerifiedPasswords) -> GrpcListener:
        """Return the gRPC listener for clients."""

    def kafka_listener(self, services: KafkaServices) -> KafkaListener: ...

    def open_audit_log(self, cleanup: AsyncExitStack) -> KeepAuditEntries:
        """Return the audit log of the changes that this broker carries out; call it after
        ``open_store``.
        """

    async def open_store(
        self, cleanup: AsyncExitStack, events: LogManagerEvents, incarnation_id: bytes
    ) -> LogDirectories:
        """Open the log store, once the cluster is known; ``cleanup`` closes it again.

        The store reports to ``events``, and remembers the incarnation of this process.

        Raises:
            DataFolderError, KafkaError, OSError: the folder is another broker's, or unusable.
        """


CUT_OFF_AFTER_MS: Final = 2_000
UNANSWERED_MS: Final = 1_000


def has_lost_sight_of_the_quorum(silent_ms: float, keep_alive_interval_ms: float) -> bool:
    """Return whether a broker knows too little of the quorum to judge what others know of it.

    A keep-alive has been due for ``UNANSWERED_MS`` then, and the last one that was answered was
    sent ``CUT_OFF_AFTER_MS`` ago at least.
    """
    return silent_ms > max(CUT_OFF_AFTER_MS, keep_alive_interval_ms + UNANSWERED_MS)


class ProcessEnvironment:
    """The environment of a real broker process.

    Clocks and random numbers are the functions themselves: they are called for every request.
    """

    now_ms = staticmethod(monotonic_ms)
    wall_clock_ms = staticmethod(wall_clock_ms)
    random_bytes = staticmethod(os.urandom)

    def __init__(
        self, config: Configuration, certificates: Certificates, refusals: GrpcRefusals
    ) -> None:
        """``refusals`` counts who is refused at the gRPC listeners."""
        self._config = config
        self._refusals = refusals
        self._cluster, self._clients = certificates
        self._broker_id = BrokerId(config[BROKER_ID])
        self.quorum = QuorumClient(
            quorum_addresses(config),
            description=f"broker {self._broker_id}",
            session_timeout_ms=config[BROKER_SESSION_TIMEOUT_MS],
            security=self._cluster,
        )

    def open_channel(self, peer: Peer) -> grpc.aio.Channel:
        return open_channel(peer, None if self._cluster is None else self._cluster.current)

    async def connect(self, peer: Peer, port: int, protocol: asyncio.BaseProtocol) -> None:
        security = None if self._cluster is None else self._cluster.current
        await connect(peer, port, protocol, security)

    def replication_listener(self, table: PartitionTable) -> ReplicationListener | None:
        if self._config[REPLICATION_PORT] < 0:
            return None
        tls = None if self._cluster is None else PeerTls(self._cluster)
        return ReplicationListener(table, tls, self._refusals.inter_broker)

    def peer_channels(self) -> PeerChannels:
        return PeerChannels(security=self._cluster)

    def inter_broker_listener(self, images: MetadataFollower) -> GrpcListener:
        return inter_broker_listener(
            self._cluster, self._refusals, KnownController(images, self._is_cut_off)
        )

    def _is_cut_off(self) -> bool:
        silent_ms = self.now_ms() - self.quorum.last_keep_alive_ms
        return has_lost_sight_of_the_quorum(silent_ms, self.quorum.keep_alive_interval_ms)

    def client_listener(self, passwords: VerifiedPasswords) -> GrpcListener:
        return client_listener(self._config, self._clients, passwords, self._refusals)

    def kafka_listener(self, services: KafkaServices) -> KafkaListener:
        return KafkaServer(services)

    def open_audit_log(self, cleanup: AsyncExitStack) -> KeepAuditEntries:
        name = self._config[AUDIT_LOG_FILE]
        if not name:
            return keep_no_entries
        audit_log = AuditLog(
            log_folders(self._config)[0] / name,
            AuditLimits(
                self._config[AUDIT_LOG_ROLL_BYTES],
                self._config[AUDIT_LOG_ROLL_DAYS],
                self._config[AUDIT_LOG_RETENTION_DAYS],
            ),
        )
        cleanup.push_async_callback(audit_log.close)
        return audit_log.keep

    async def open_store(
        self, cleanup: AsyncExitStack, events: LogManagerEvents, incarnation_id: bytes
    ) -> LogDirectories:
        config = self._config
        cluster_id = self.quorum.cluster_id

        def claim(folder: Path) -> AbstractContextManager[bytes]:
            owner = ("broker", self._broker_id, cluster_id)
            return claimed_data_folder(folder, *owner, require_identity)

        options = LogOptions(
            flush="os" if config[LOG_FLUSH] == "os" else "sync",
            segment_bytes=config[LOG_SEGMENT_BYTES],
            max_batch_bytes=config[MESSAGE_MAX_BYTES],
            reserve_bytes=config[LOG_RESERVE_BYTES],
            producer_expiration_ms=config[PRODUCER_ID_EXPIRATION_MS],
            incarnation_id=incarnation_id,
        )
        folders = log_folders(config)
        store = await open_log_directories(folders, claim, options, events, cleanup)
        cleanup.push_async_callback(store.close)
        return store
