"""One broker, put together: what is started after what, and stopped before what.

Start: the quorum first (who am I, which cluster), then the log, then the image, then the doors
(Kafka, gRPC), and only then the registration: from that moment the controller sends commands.
Stop: the leaderships move away, then the doors close, then the log, and the session last.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import grpc.aio

from broker.admin_reads import admin_reads
from broker.config.node import (
    BROKER_ID,
    BROKER_RACK,
    BROKER_SESSION_TIMEOUT_MS,
    CONTROLLED_SHUTDOWN_TIMEOUT_MS,
    INTER_BROKER_PROTOCOL_VERSION,
    QUORUM_CONNECT_TIMEOUT_MS,
)
from broker.config.replication import (
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    REPLICA_FETCH_WAIT_MAX_MS,
)
from broker.config_description import ConfigReads
from broker.control.admin_service import (
    AdminService,
    ControllerDutyService,
    add_admin_to_server,
    add_controller_duty_to_server,
)
from broker.control.controlled_shutdown import request_controlled_shutdown
from broker.control.fencing import ControlFence
from broker.control.forwarding import ControllerForwarder
from broker.control.metadata_cache import MetadataCache
from broker.control.metadata_view import add_metadata_view_to_server
from broker.control.ports import ActiveController
from broker.control.registration import BrokerRegistrar
from broker.control.service import BrokerControlService, add_broker_control_to_server
from broker.controller.administration import Means
from broker.controller.bridge import Bridge
from broker.controller.election import ControllerElector, draw_ids
from broker.controller.transport import GrpcControlTransport
from broker.coordinator.producer_ids import ProducerIds
from broker.dynamic_config import LiveConfiguration, topics_of
from broker.grpc_listener import GrpcListener
from broker.kafka.services import FeaturesInForce, KafkaServices
from broker.listeners import open_listeners, taken
from broker.live_limits import LiveLimits
from broker.log.store import LogStore
from broker.metadata_follower import MetadataFollower
from broker.metrics import Metric, Metrics
from broker.quota.client_usage import ClientUsage
from broker.quota.config import QUOTA_WINDOW_NUM, QUOTA_WINDOW_SIZE_SECONDS
from broker.quota.windowed_rate import QuotaWindow
from broker.replication.fetch_service import add_replication_to_server
from broker.replication.manager import ReplicaManager, ReplicationOptions
from broker.replication.range_read import add_range_read_to_server
from broker.replication.strays import may_be_deleted
from broker.security.authorizer import Authorizer, AuthorizerSettings, caller_of
from broker.security.grpc_config import (
    GRPC_LISTENER,
    INTER_BROKER_LISTENER,
    grpc_endpoint,
    inter_broker_endpoint,
)
from broker.security.grpc_identity import Passwords
from broker.security.logins import Logins
from broker.security.token_access import describe_tokens, describing_with
from broker.security.token_config import (
    DELEGATION_TOKEN_SECRET_KEY,
    DELEGATION_TOKEN_SECRET_KEY_FILE,
)
from broker.security.token_keys import TokenKeys
from broker.security.token_login import TokenLogins
from broker.surroundings import Surroundings
from broker.throttle_config import throttles
from metadata_log.configuration import Configuration
from metadata_log.draft import Changes
from metadata_log.image import Image
from metadata_log.types import ID_BYTES, BrokerEpoch, BrokerId, Endpoint, TopicIdPartition
from quorate_proto.v1 import admin_pb2

log = logging.getLogger(__name__)

UNREGISTERED: Final = BrokerEpoch(-1)
"""Sent in replica fetches while this broker has no epoch: no leader admits it to an ISR then."""

STOP_GRACE_S: Final = 2.0
"""How long calls in flight may go on once the doors close."""


class BrokerNode:
    """Everything one broker process runs. ``start`` once, ``stop`` once."""

    def __init__(self, config: Configuration, surroundings: Surroundings) -> None:
        self._config = config
        self._surroundings = surroundings
        self._broker_id = BrokerId(config[BROKER_ID])
        self._incarnation_id = surroundings.random_bytes(ID_BYTES)
        self._cleanup = AsyncExitStack()
        self._log_failed = asyncio.Event()
        self._registrar: BrokerRegistrar | None = None
        self._elector: ControllerElector | None = None
        self._quorum = surroundings.quorum
        self._follower = MetadataFollower(self._quorum)
        self._channels = surroundings.peer_channels()
        self._cache = MetadataCache()
        self._metrics = Metrics()
        self._metrics.add(self._controller_metrics)
        self._live = LiveConfiguration(lambda: self._follower.image, config, self._broker_id)
        self._limits = LiveLimits(self._live)
        self._token_keys = TokenKeys(
            config[DELEGATION_TOKEN_SECRET_KEY], config[DELEGATION_TOKEN_SECRET_KEY_FILE]
        )
        self._authorizer = Authorizer(
            lambda: self._follower.image.acls, AuthorizerSettings.of(config)
        )
        self._config_reads = ConfigReads(lambda: self._follower.image, self._live, self._authorizer)
        self._replicas = self._replica_manager()

    async def start(self) -> None:
        """Come up and register; what was started is stopped again if a later step fails.

        Raises:
            QuorumUnavailable, DataFolderError, ListenError, RegistrationRefused: named causes.
        """
        try:
            await self._start()
        except BaseException:
            await self._cleanup.aclose()
            raise

    async def stop(self) -> None:
        """Hand the leaderships over, finish what is in flight, close everything."""
        if self._broker_epoch() is not None:
            self._replicas.prepare_to_stop()
            await request_controlled_shutdown(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch,
                images=self._follower,
                channels=self._channels,
                local=self._active_controller,
                timeout_ms=self._config[CONTROLLED_SHUTDOWN_TIMEOUT_MS],
            )
        await self._cleanup.aclose()

    async def log_failed(self) -> None:
        """Return once the log can be written no more.

        The broker is to be stopped then: others of the ISR lead what it leads, and it comes back
        when there is room.
        """
        await self._log_failed.wait()

    # -- starting --------------------------------------------------------------------------------

    async def _start(self) -> None:
        on_stop = self._cleanup.push_async_callback
        await self._quorum.start(deadline_ms=self._config[QUORUM_CONNECT_TIMEOUT_MS])
        on_stop(self._quorum.close)
        replicas = self._replicas
        store = await self._surroundings.open_store(
            self._cleanup, replicas.on_flushed, self._on_log_failed
        )
        await self._replicas.start(store)
        on_stop(self._replicas.close)
        on_stop(self._channels.close)
        await self._follower.start()
        on_stop(self._follower.close)
        self._follower.subscribe(self._on_configs)
        image = await self._follower.wait_for(await self._quorum.read_offset())
        await self._replicas.adopt_image(image, log_may_be_lost=store.log_may_be_lost)
        if store.log_may_be_lost:
            self._follower.subscribe(lambda image, _: self._note_admission(image, store))
        await self._open_doors(on_stop, log_may_be_lost=store.log_may_be_lost)

    async def _open_doors(
        self, on_stop: Callable[[Callable[[], Awaitable[None]]], object], *, log_may_be_lost: bool
    ) -> None:
        """Listen, register under the addresses listened on, and stand for controller."""
        trail = self._surroundings.audit_trail(self._cleanup)
        bridge = Bridge(
            self._broker_id,
            broker_epoch=self._broker_epoch,
            quorum=self._quorum,
            images=self._follower,
            means=Means(
                config=self._live,
                clock_ms=self._surroundings.wall_clock_ms,
                token_keys=self._token_keys,
                draw_id=lambda: self._surroundings.random_bytes(ID_BYTES).hex(),
            ),
            trail=trail,
        )
        bridge.start()
        on_stop(bridge.close)
        forwarder = ControllerForwarder(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            images=self._follower,
            channels=self._channels,
            local=self._active_controller,
            bridge=bridge,
            clock_ms=self._surroundings.now_ms,
        )
        kafka = self._surroundings.kafka_listener(
            KafkaServices(
                config=self._live,
                broker_id=self._broker_id,
                cluster_id=self._quorum.cluster_id,
                replicas=self._replicas,
                metadata=self._cache,
                forwarder=forwarder,
                producer_ids=ProducerIds(forwarder),
                authorizer=self._authorizer,
                features=self._features_in_force,
                describe_configs=self._config_reads.describe,
                describe_tokens=self._describe_tokens,
                image=lambda: self._follower.image,
                usage=self._usage(),
                quorum_status=self._quorum.status,
                wall_clock_ms=self._surroundings.wall_clock_ms,
            )
        )
        brokers = self._surroundings.inter_broker_listener()
        logins = self._logins()
        passwords = Passwords(logins.password, lambda: self._follower.image.scram)
        clients = self._surroundings.client_listener(passwords)
        admin = self._admin_service()
        self._serve_brokers(brokers.server, admin)
        self._serve_clients(clients.server, admin)
        brokers_endpoint = _bind(
            brokers, INTER_BROKER_LISTENER.name, inter_broker_endpoint(self._config)
        )
        clients_endpoint = _bind(clients, GRPC_LISTENER.name, grpc_endpoint(self._config))
        listeners = await open_listeners(
            kafka, self._config, logins, self._surroundings.random_bytes
        )
        on_stop(kafka.stop)
        for server in (brokers.server, clients.server):
            await server.start()
            on_stop(partial(server.stop, STOP_GRACE_S))
        self._registrar = BrokerRegistrar(
            self._quorum,
            broker_id=self._broker_id,
            incarnation_id=self._incarnation_id,
            listeners=listeners,
            grpc=clients_endpoint,
            inter_broker=brokers_endpoint,
            rack=self._config[BROKER_RACK],
            images=self._follower,
            log_may_be_lost=log_may_be_lost,
            inter_broker_protocol_max=self._config[INTER_BROKER_PROTOCOL_VERSION],
        )
        self._elector = ControllerElector(
            broker_id=self._broker_id,
            config=self._live,
            quorum=self._quorum,
            images=self._follower,
            transport=GrpcControlTransport(self._channels),
            draw=partial(draw_ids, self._surroundings.random_bytes),
            clock_ms=self._surroundings.wall_clock_ms,
            token_keys=self._token_keys,
            trail=trail,
            bridge=bridge,
        )
        await self._registrar.start()
        on_stop(self._registrar.close)
        await self._elector.start()
        on_stop(self._elector.close)

    def _serve_brokers(self, server: grpc.aio.Server, admin: AdminService) -> None:
        """What only brokers may ask for, and changes that they forward."""
        control = BrokerControlService(
            own_epoch=self._broker_epoch,
            replicas=self._replicas,
            cache=self._cache,
            images=self._follower,
            fence=ControlFence(),
        )
        add_broker_control_to_server(server, control)
        add_admin_to_server(server, admin)
        add_controller_duty_to_server(server, ControllerDutyService(self._active_controller))
        add_replication_to_server(server, self._replicas)

    def _serve_clients(self, server: grpc.aio.Server, admin: AdminService) -> None:
        add_admin_to_server(server, admin)
        add_metadata_view_to_server(server, self._quorum, self._authorizer.rights_of_caller)
        add_range_read_to_server(
            server, self._replicas, self._cache, self._authorizer.rights_of_caller
        )

    def _admin_service(self) -> AdminService:
        return AdminService(
            cluster_id=lambda: self._quorum.cluster_id,
            own_epoch=self._broker_epoch,
            images=self._follower,
            quorum=self._quorum,
            controller=self._active_controller,
            min_insync_replicas=self._limits.min_insync_replicas,
            broker_alerts=self._alerts,
            authorizer=self._authorizer,
            reads=admin_reads(
                self._follower, self._config_reads, self._describe_tokens, self._authorizer
            ),
            metrics=self._metrics,
        )

    def _logins(self) -> Logins:
        return Logins(
            lambda: self._follower.image,
            pepper=self._surroundings.random_bytes(ID_BYTES),
            wall_clock_ms=self._surroundings.wall_clock_ms,
            find_token=TokenLogins(lambda: self._follower.image, self._token_keys).find,
        )

    # -- what the parts ask of one another -------------------------------------------------------

    def _replica_manager(self) -> ReplicaManager:
        config = self._config
        return ReplicaManager(
            self._broker_id,
            ReplicationOptions(
                fetch_wait_max_ms=config[REPLICA_FETCH_WAIT_MAX_MS],
                fetch_response_max_bytes=config[REPLICA_FETCH_RESPONSE_MAX_BYTES],
            ),
            quorum=self._quorum,
            metadata=self._follower,
            broker_epoch=lambda: self._broker_epoch() or UNREGISTERED,
            limits=self._limits,
            confirm_unassigned=self._confirm_unassigned,
            now_ms=self._surroundings.now_ms,
            open_channel=self._surroundings.open_channel,
            throttles=throttles(self._live),
        )

    def _controller_metrics(self) -> Iterable[Metric]:
        controller = self._active_controller()
        return () if controller is None else controller.metrics()

    def _usage(self) -> ClientUsage:
        window = QuotaWindow(
            self._config[QUOTA_WINDOW_NUM], self._config[QUOTA_WINDOW_SIZE_SECONDS]
        )
        return ClientUsage(
            lambda: self._follower.image.client_quotas, window, self._surroundings.now_ms
        )

    def _broker_epoch(self) -> BrokerEpoch | None:
        return None if self._registrar is None else self._registrar.broker_epoch

    def _active_controller(self) -> ActiveController | None:
        return None if self._elector is None else self._elector.active

    def _alerts(self) -> list[str]:
        """Out of the quorum's sight a leader goes on leading, with its ISRs frozen (rule 6)."""
        silent_ms = self._surroundings.now_ms() - self._quorum.last_keep_alive_ms
        if silent_ms < self._config[BROKER_SESSION_TIMEOUT_MS]:
            return []
        return [
            f"broker {self._broker_id} has not heard from the quorum for {silent_ms} ms: "
            "it goes on leading, and its ISRs are frozen until the quorum answers"
        ]

    def _features_in_force(self) -> FeaturesInForce:
        image = self._follower.image
        return FeaturesInForce(image.offset, dict(image.features))

    def _on_log_failed(self, error: Exception) -> None:
        self._replicas.on_log_failed(error)
        self._log_failed.set()

    def _on_configs(self, image: Image, changes: Changes) -> None:
        if changes.configs:
            self._replicas.configs_changed(topics_of(changes.configs))

    async def _describe_tokens(
        self, request: admin_pb2.DescribeDelegationTokensRequest
    ) -> admin_pb2.DescribeDelegationTokensResponse:
        rights = self._authorizer.rights_of(caller_of(request.context))
        keys = self._token_keys()
        return describe_tokens(self._follower.image, request, keys, describing_with(rights))

    def _note_admission(self, image: Image, store: LogStore) -> None:
        """Once a controller has taken this incarnation out of every ISR, its loss is dealt with."""
        mine = image.brokers.get(self._broker_id)
        if mine is None or not mine.admitted:
            return
        if mine.registration.incarnation_id == self._incarnation_id:
            store.loss_handled()

    async def _confirm_unassigned(
        self, tips: Sequence[TopicIdPartition]
    ) -> frozenset[TopicIdPartition]:
        """Those that the quorum, asked now, has taken from this broker (rule 7)."""
        image = await self._follower.wait_for(await self._quorum.read_offset())
        return frozenset(
            tip
            for tip in tips
            if (hosted := self._replicas.table.get(tip)) is not None
            and may_be_deleted(image, self._broker_id, tip, assigned_at=hosted.log.assigned_at)
        )


def _bind(listener: GrpcListener, key: str, wanted: Endpoint) -> Endpoint:
    try:
        bound = listener.bind(wanted)
    except RuntimeError as error:
        raise taken(key, wanted) from error
    log.info("%s on %s", key, bound)
    return bound
