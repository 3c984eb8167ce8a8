"""The doors of a broker: its Kafka listeners and its two gRPC ports, and what is served there."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import grpc.aio

from broker.admin_reads import admin_reads
from broker.client_memory import ClientMemory
from broker.config.node import BROKER_SESSION_TIMEOUT_MS
from broker.config_description import ConfigReads
from broker.control.admin_service import (
    AdminService,
    ControllerDutyService,
    add_admin_to_server,
    add_controller_duty_to_server,
)
from broker.control.fencing import ControlFence
from broker.control.forwarding import ControllerForwarder
from broker.control.metadata_cache import MetadataCache
from broker.control.metadata_view import add_metadata_view_to_server
from broker.control.ports import ActiveController
from broker.control.service import BrokerControlService, add_broker_control_to_server
from broker.coordinator.commit_service import GroupOffsetsService
from broker.coordinator.outside_commits import OutsideCommits
from broker.coordinator.transactions_service import (
    TransactionsService,
    add_transactions_to_server,
)
from broker.coordinators import Coordinators
from broker.dynamic_config import LiveConfiguration
from broker.grpc_listener import GrpcListener
from broker.kafka.fetch_sessions import FetchSessions
from broker.kafka.internal_topics import GROUPS, InternalTopics
from broker.kafka.requests import RequestContext
from broker.kafka.services import FeaturesInForce, KafkaServices
from broker.listeners import open_listeners, taken
from broker.live_limits import LiveLimits
from broker.metadata_follower import MetadataFollower
from broker.metrics.clients import ClientFigures
from broker.quota.client_usage import ClientUsage
from broker.quota.config import QUOTA_WINDOW_NUM, QUOTA_WINDOW_SIZE_SECONDS
from broker.quota.windowed_rate import QuotaWindow
from broker.replication.fetch_service import add_replication_to_server
from broker.replication.manager import ReplicaManager
from broker.replication.range_read import add_range_read_to_server
from broker.replication.range_write import add_range_write_to_server
from broker.security.authorizer import Authorizer, caller_of
from broker.security.grpc_caller import caller
from broker.security.grpc_config import (
    GRPC_LISTENER,
    INTER_BROKER_LISTENER,
    grpc_endpoint,
    inter_broker_endpoint,
)
from broker.security.grpc_identity import Passwords
from broker.security.logins import Logins
from broker.security.token_access import describe_tokens, describing_with
from broker.security.token_keys import TokenKeys
from broker.security.token_login import TokenLogins
from broker.surroundings import Surroundings
from broker.transaction_admin import transaction_reads
from metadata_log.configuration import Configuration
from metadata_log.records import Listener
from metadata_log.types import ID_BYTES, BrokerEpoch, BrokerId, Endpoint
from quorate_proto.v1 import admin_pb2, groups_pb2_grpc
from quorum.metrics.endpoint import METRICS_LISTENER, MetricsEndpoint, metrics_listener
from quorum.metrics.family import Metrics

log = logging.getLogger(__name__)

STOP_GRACE_S: Final = 2.0
"""How long calls in flight may go on once the doors close."""

OnStop = Callable[[Callable[[], Awaitable[None]]], object]
"""Has something done when the broker stops: what came last, first."""


class Addresses(NamedTuple):
    """Where a broker is reached."""

    listeners: list[Listener]
    grpc: Endpoint
    inter_broker: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What those who come in get to; the parts of one broker."""

    broker_id: BrokerId
    broker_epoch: Callable[[], BrokerEpoch | None]
    config: Configuration
    live: LiveConfiguration
    limits: LiveLimits
    surroundings: Surroundings
    follower: MetadataFollower
    replicas: ReplicaManager
    cache: MetadataCache
    metrics: Metrics
    token_keys: TokenKeys
    authorizer: Authorizer
    coordinators: Coordinators
    controller: Callable[[], ActiveController | None]
    forwarder: ControllerForwarder

    async def open(self, on_stop: OnStop) -> Addresses:
        """Let clients and brokers in.

        Raises:
            ListenError: an address is taken, or certificates cannot be used.
        """
        surroundings = self.surroundings
        config_reads = ConfigReads(lambda: self.follower.image, self.live, self.authorizer)
        memory = ClientMemory.of(self.config)
        services = self._kafka_services(config_reads, memory)
        self.metrics.add(services.figures.samples)
        self.metrics.add(services.fetch_sessions.samples)
        kafka = surroundings.kafka_listener(services)
        brokers = surroundings.inter_broker_listener()
        logins = self._logins()
        passwords = Passwords(logins.password, lambda: self.follower.image.scram)
        clients = surroundings.client_listener(passwords)
        admin = self._admin_service(config_reads)
        self._serve_brokers(brokers.server, admin)
        self._serve_clients(clients.server, admin, services)
        inter_broker = _bind(
            brokers, INTER_BROKER_LISTENER.name, inter_broker_endpoint(self.config)
        )
        grpc_bound = _bind(clients, GRPC_LISTENER.name, grpc_endpoint(self.config))
        listeners = await open_listeners(kafka, self.config, logins, surroundings.random_bytes)
        on_stop(kafka.stop)
        await self._show_metrics(on_stop)
        for server in (brokers.server, clients.server):
            await server.start()
            on_stop(partial(server.stop, STOP_GRACE_S))
        return Addresses(listeners, grpc_bound, inter_broker)

    async def _show_metrics(self, on_stop: OnStop) -> None:
        listener = metrics_listener(self.config[METRICS_LISTENER])
        if listener is None:
            return
        endpoint = MetricsEndpoint(self.metrics.gathered)
        try:
            await endpoint.start(listener)
        except OSError as error:
            raise taken(METRICS_LISTENER.name, listener) from error
        on_stop(endpoint.stop)

    def _kafka_services(self, config_reads: ConfigReads, memory: ClientMemory) -> KafkaServices:
        return KafkaServices(
            config=self.live,
            broker_id=self.broker_id,
            cluster_id=self.surroundings.quorum.cluster_id,
            replicas=self.replicas,
            metadata=self.cache,
            forwarder=self.forwarder,
            producer_ids=self.coordinators.producer_ids,
            groups=self.coordinators.groups,
            transactions=self.coordinators.transactions,
            authorizer=self.authorizer,
            fetch_sessions=FetchSessions.of(self.config, self.surroundings.now_ms),
            features=self._features_in_force,
            describe_configs=config_reads.describe,
            describe_tokens=self._describe_tokens,
            image=lambda: self.follower.image,
            usage=self._usage(),
            figures=ClientFigures(memory),
            memory=memory,
            quorum_status=self.surroundings.quorum.status,
            wall_clock_ms=self.surroundings.wall_clock_ms,
        )

    def _serve_brokers(self, server: grpc.aio.Server, admin: AdminService) -> None:
        """What only brokers may ask for, and changes that they forward."""
        control = BrokerControlService(
            own_epoch=self.broker_epoch,
            replicas=self.replicas,
            cache=self.cache,
            images=self.follower,
            fence=ControlFence(),
        )
        add_broker_control_to_server(server, control)
        add_admin_to_server(server, admin)
        add_controller_duty_to_server(server, ControllerDutyService(self.controller))
        add_replication_to_server(server, self.replicas)
        transactions = TransactionsService(
            self.replicas, self.follower, self.coordinators.transactions
        )
        add_transactions_to_server(server, transactions)

    def _serve_clients(
        self, server: grpc.aio.Server, admin: AdminService, services: KafkaServices
    ) -> None:
        add_admin_to_server(server, admin)
        rights = self.authorizer.rights_of_caller
        add_metadata_view_to_server(server, self.surroundings.quorum, self.follower, rights)
        memory = services.memory.ranges
        add_range_read_to_server(
            server, self.replicas, self.cache, rights, self.limits.max_batch_bytes, memory
        )
        add_range_write_to_server(server, self.replicas, services.producer_ids, rights)
        groups_pb2_grpc.add_GroupOffsetsServicer_to_server(self._group_offsets(services), server)

    def _group_offsets(self, services: KafkaServices) -> GroupOffsetsService:
        topics = InternalTopics()

        async def why_missing() -> str | None:
            asker = caller()
            context = RequestContext(
                version=0,
                client_id="",
                client_host=asker.client_host,
                principal=asker.principal,
            )
            return await topics.why_missing(services, context, GROUPS)

        return GroupOffsetsService(
            OutsideCommits(self.coordinators.groups, self.surroundings.wall_clock_ms),
            self.cache,
            self.authorizer.rights_of_caller,
            why_missing,
        )

    def _admin_service(self, config_reads: ConfigReads) -> AdminService:
        return AdminService(
            cluster_id=lambda: self.surroundings.quorum.cluster_id,
            own_epoch=self.broker_epoch,
            images=self.follower,
            quorum=self.surroundings.quorum,
            controller=self.controller,
            min_insync_replicas=self.limits.min_insync_replicas,
            broker_alerts=self._alerts,
            authorizer=self.authorizer,
            reads={
                **admin_reads(
                    self.follower,
                    config_reads,
                    self._describe_tokens,
                    self.authorizer,
                    self.surroundings.wall_clock_ms,
                ),
                **transaction_reads(
                    self.coordinators.transactions,
                    self.replicas,
                    self.authorizer,
                    self.surroundings.wall_clock_ms,
                ),
            },
            metrics=self.metrics,
        )

    def _logins(self) -> Logins:
        return Logins(
            lambda: self.follower.image,
            pepper=self.surroundings.random_bytes(ID_BYTES),
            wall_clock_ms=self.surroundings.wall_clock_ms,
            find_token=TokenLogins(lambda: self.follower.image, self.token_keys).find,
        )

    def _usage(self) -> ClientUsage:
        window = QuotaWindow(self.config[QUOTA_WINDOW_NUM], self.config[QUOTA_WINDOW_SIZE_SECONDS])
        return ClientUsage(
            lambda: self.follower.image.client_quotas, window, self.surroundings.now_ms
        )

    def _alerts(self) -> list[str]:
        """Out of the quorum's sight a leader goes on leading, with its ISRs frozen (rule 6)."""
        silent_ms = self.surroundings.now_ms() - self.surroundings.quorum.last_keep_alive_ms
        if silent_ms < self.config[BROKER_SESSION_TIMEOUT_MS]:
            return []
        return [
            f"broker {self.broker_id} has not heard from the quorum for {silent_ms} ms: "
            "it goes on leading, and its ISRs are frozen until the quorum answers"
        ]

    def _features_in_force(self) -> FeaturesInForce:
        image = self.follower.image
        return FeaturesInForce(image.offset, dict(image.features))

    async def _describe_tokens(
        self, request: admin_pb2.DescribeDelegationTokensRequest
    ) -> admin_pb2.DescribeDelegationTokensResponse:
        rights = self.authorizer.rights_of(caller_of(request.context))
        keys = self.token_keys()
        return describe_tokens(self.follower.image, request, keys, describing_with(rights))


def _bind(listener: GrpcListener, key: str, wanted: Endpoint) -> Endpoint:
    try:
        bound = listener.bind(wanted)
    except RuntimeError as error:
        raise taken(key, wanted) from error
    log.info("%s on %s", key, bound)
    return bound
