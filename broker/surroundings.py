"""Everything by which a broker touches the world: the quorum, sockets, disk, clock and chance.

``node.BrokerNode`` takes all of it from here and nothing from anywhere else, so that a simulation
runs the same broker over a network, a disk and a clock of its own.
"""

import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import grpc.aio

from broker.audit_log import AuditLog
from broker.clock import monotonic_ms
from broker.config.controller import AUDIT_LOG_FILE
from broker.config.log import LOG_DIR, LOG_FLUSH, LOG_RESERVE_BYTES, LOG_SEGMENT_BYTES
from broker.config.node import BROKER_ID, BROKER_SESSION_TIMEOUT_MS
from broker.config.producers import PRODUCER_ID_EXPIRATION_MS
from broker.config.spec import quorum_addresses
from broker.config.topics import MESSAGE_MAX_BYTES
from broker.control.ports import QuorumView, Sessions
from broker.controller.door import AuditTrail, no_trail
from broker.grpc_listener import (
    Certificates,
    GrpcListener,
    client_listener,
    inter_broker_listener,
)
from broker.grpc_refusals import GrpcRefusals
from broker.kafka.server import KafkaServer
from broker.kafka.services import KafkaServices
from broker.log.options import LogOptions
from broker.log.store import LogStore, OnFailed, OnFlushed
from broker.peers import Peer, PeerChannels, open_channel
from broker.security.door import OPEN_DOOR, Door
from broker.security.grpc_identity import Passwords
from broker.security.tls import ListenerTls
from metadata_log.configuration import Configuration
from metadata_log.types import BrokerId, Endpoint, MetadataOffset
from quorum.client import QuorumClient, WatchEvent
from quorum.data_folder import claimed_data_folder


class Quorum(Sessions, QuorumView, Protocol):
    """A client of the quorum with a session; ``quorum.client.QuorumClient`` is the real one."""

    last_keep_alive_ms: int
    """When the last answered keep-alive was sent, on the clock of ``Surroundings.now_ms``."""

    session_timeout_ms: int
    """The quorum ends the session when it has heard nothing for so long."""

    async def start(self, *, deadline_ms: int | None = None) -> None:
        """Open a session.

        Raises:
            QuorumUnavailable: not within ``deadline_ms``.
        """

    async def close(self) -> None:
        """End the session."""

    def watch(self, from_offset: MetadataOffset) -> AsyncIterator[WatchEvent]:
        """Events from ``from_offset`` on, in order, reconnecting by itself."""


class KafkaListener(Protocol):
    """Where Kafka clients come in; ``broker.kafka.server`` is the real one."""

    async def start(
        self, listener: Endpoint, door: Door = OPEN_DOOR, tls: ListenerTls | None = None
    ) -> Endpoint:
        """Listen, at one more place; returns where.

        Raises:
            OSError: the address cannot be used.
        """

    async def stop(self) -> None:
        """Answer what is in flight, and close."""


class Surroundings(Protocol):
    """What a broker finds around it."""

    @property
    def quorum(self) -> Quorum: ...

    def now_ms(self) -> int:
        """A monotonic clock."""

    def wall_clock_ms(self) -> int:
        """Milliseconds since the epoch."""

    def random_bytes(self, count: int) -> bytes: ...

    def open_channel(self, peer: Peer) -> grpc.aio.Channel:
        """A gRPC channel to a broker, of the caller's own."""

    def peer_channels(self) -> PeerChannels:
        """gRPC channels to brokers that many share."""

    def inter_broker_listener(self) -> GrpcListener:
        """For brokers."""

    def client_listener(self, passwords: Passwords) -> GrpcListener:
        """For clients over gRPC."""

    def kafka_listener(self, services: KafkaServices) -> KafkaListener: ...

    def audit_trail(self, cleanup: AsyncExitStack) -> AuditTrail:
        """Where the changes that this broker carries out are told; after ``open_store``."""

    async def open_store(
        self, cleanup: AsyncExitStack, on_flushed: OnFlushed, on_failed: OnFailed
    ) -> LogStore:
        """Open the log store, once the cluster is known; ``cleanup`` closes it again.

        Raises:
            DataFolderError, KafkaError, OSError: the folder is another broker's, or unusable.
        """


class ProcessSurroundings:
    """Those of a real process."""

    def __init__(
        self, config: Configuration, certificates: Certificates, refusals: GrpcRefusals
    ) -> None:
        """``refusals``: told who is refused at the gRPC listeners."""
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

    def now_ms(self) -> int:
        return monotonic_ms()

    def wall_clock_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def open_channel(self, peer: Peer) -> grpc.aio.Channel:
        return open_channel(peer, None if self._cluster is None else self._cluster.current)

    def peer_channels(self) -> PeerChannels:
        return PeerChannels(security=self._cluster)

    def inter_broker_listener(self) -> GrpcListener:
        return inter_broker_listener(self._cluster, self._refusals)

    def client_listener(self, passwords: Passwords) -> GrpcListener:
        return client_listener(self._config, self._clients, passwords, self._refusals)

    def kafka_listener(self, services: KafkaServices) -> KafkaListener:
        return KafkaServer(services)

    def audit_trail(self, cleanup: AsyncExitStack) -> AuditTrail:
        name = self._config[AUDIT_LOG_FILE]
        if not name:
            return no_trail
        audit_log = AuditLog(Path(self._config[LOG_DIR]) / name)
        cleanup.push_async_callback(audit_log.close)
        return audit_log.keep

    async def open_store(
        self, cleanup: AsyncExitStack, on_flushed: OnFlushed, on_failed: OnFailed
    ) -> LogStore:
        config = self._config
        folder = Path(config[LOG_DIR])
        cluster_id = self.quorum.cluster_id
        cleanup.enter_context(claimed_data_folder(folder, "broker", self._broker_id, cluster_id))
        options = LogOptions(
            flush="os" if config[LOG_FLUSH] == "os" else "sync",
            segment_bytes=config[LOG_SEGMENT_BYTES],
            max_batch_bytes=config[MESSAGE_MAX_BYTES],
            reserve_bytes=config[LOG_RESERVE_BYTES],
            producer_expiration_ms=config[PRODUCER_ID_EXPIRATION_MS],
        )
        store = await LogStore.open(folder, options, on_flushed, on_failed)
        cleanup.push_async_callback(store.close)
        return store
