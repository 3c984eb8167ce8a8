"""The services that a broker offers at its listeners, each over the stages that it needs."""

import uuid
from typing import TYPE_CHECKING

import grpc.aio

from quorate.broker.admin.admin_reads import AdminReads
from quorate.broker.admin.admin_service import (
    AdminService,
    BrokerToControllerService,
    add_admin_to_server,
    add_controller_duty_to_server,
)
from quorate.broker.admin.metadata_view_service import add_metadata_view_to_server
from quorate.broker.admin.transaction_admin import TransactionAdmin
from quorate.broker.assembly.coordinator_stage import CoordinatorStage
from quorate.broker.assembly.shared_parts import SharedParts
from quorate.broker.config.client_keys import QUOTA_WINDOW_NUM, QUOTA_WINDOW_SIZE_SECONDS
from quorate.broker.config.listeners import MAX_CONNECTION_CREATION_RATE
from quorate.broker.config.node import BROKER_SESSION_TIMEOUT_MS
from quorate.broker.control.broker_control_service import (
    BrokerControlService,
    ControlFence,
    add_broker_control_to_server,
)
from quorate.broker.control.controller_forwarder import ControllerForwarder
from quorate.broker.coordinator.groups.external_commits import ExternalCommits
from quorate.broker.coordinator.groups.group_offsets_service import GroupOffsetsService
from quorate.broker.coordinator.share.share_states import ShareStatesService
from quorate.broker.coordinator.transactions.transactions_service import (
    TransactionsService,
    add_transactions_to_server,
)
from quorate.broker.kafka.admin.config_description import ConfigReads
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.groups.coordinator_topics import GROUPS, CoordinatorTopics
from quorate.broker.kafka.records.fetch_session_cache import FetchSessionCache
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.share.share_sessions import ShareSessionCache
from quorate.broker.metrics.client_metrics import ClientFigures
from quorate.broker.quota.client_memory import ClientMemory
from quorate.broker.quota.client_quota_manager import ClientQuotaManager
from quorate.broker.quota.connection_rates import ConnectionRates
from quorate.broker.quota.stream_pace import StreamPace
from quorate.broker.quota.windowed_rate import QuotaWindow
from quorate.broker.registry.registry_router import RegistryRouter
from quorate.broker.registry.registry_service import (
    SchemaRegistryService,
    add_registry_to_server,
)
from quorate.broker.registry.registry_shard import RegistryLeader
from quorate.broker.registry.schema_lookup import SchemaLookup
from quorate.broker.replication.commands.stray_partitions import names_of
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.replication.services.range_read_service import add_range_read_to_server
from quorate.broker.replication.services.range_write_service import add_range_write_to_server
from quorate.broker.replication.services.replication_listener import ReplicationListener
from quorate.broker.replication.services.replication_service import add_replication_to_server
from quorate.broker.rpc.health_service import add_health_to_server
from quorate.broker.security.grpc_caller import caller
from quorate.broker.security.token_access import TokenDescription
from quorate.broker.telemetry.client_telemetry import ClientTelemetry
from quorate.common.types import ID_BYTES
from quorate_proto.v1 import groups_pb2_grpc, share_states_pb2_grpc

if TYPE_CHECKING:
    from quorate.broker.http.http_routes import HttpRoute


class BrokerServices:
    """The services of one broker. They are complete before the listeners open."""

    def __init__(
        self,
        shared: SharedParts,
        replicas: ReplicaManager,
        coordinators: CoordinatorStage,
        forwarder: ControllerForwarder,
        registry: RegistryLeader,
    ) -> None:
        """Create the services and add their metrics to those of the broker."""
        self._shared = shared
        self._registry = registry
        self.replicas = replicas
        self.coordinators = coordinators
        self._configs = ConfigReads(shared.images, shared.live, shared.authorizer)
        self._tokens = TokenDescription(shared.images, shared.token_keys, shared.authorizer)
        self.kafka = self._kafka_services(forwarder)
        self._admin = self._admin_service()
        self._router = RegistryRouter(self.kafka, shared.channels, registry)
        replicas.schemas.ask = SchemaLookup(self._router).has
        shared.metrics.add(self.kafka.figures.samples)
        shared.metrics.add(self.kafka.fetch_sessions.samples)
        shared.metrics.add(self.kafka.telemetry.samples)
        shared.metrics.add(self.kafka.quotas.totals.samples)
        shared.metrics.add(self.kafka.share_sessions.samples)

    def serve_brokers(self, server: grpc.aio.Server, followers: ReplicationListener | None) -> None:
        """Serve the requests that only brokers may send, and the changes that they forward.

        ``followers`` is the listener of framed streams, if there is one.
        """
        shared = self._shared
        control = BrokerControlService(
            identity=shared.identity,
            replicas=self.replicas,
            cache=shared.cache,
            images=shared.images,
            fence=ControlFence(),
        )
        add_broker_control_to_server(server, control)
        add_admin_to_server(server, self._admin)
        add_controller_duty_to_server(server, BrokerToControllerService(shared.active_controller))
        add_replication_to_server(server, self.replicas, followers)
        transactions = TransactionsService(
            self.replicas, shared.images, self.coordinators.transactions
        )
        add_transactions_to_server(server, transactions)
        share_states_pb2_grpc.add_ShareStatesServicer_to_server(
            ShareStatesService(
                self.coordinators.share_states, self.replicas, self.coordinators.dead_letter_log
            ),
            server,
        )
        registry = SchemaRegistryService(self._registry, shared.authorizer)
        add_registry_to_server(server, registry)

    def registry_routes(self) -> "list[HttpRoute]":
        """Return the routes of the schema registry over HTTP, which load what serves HTTP."""
        from quorate.broker.registry.registry_routes import registry_routes

        return registry_routes(self._router)

    def replication_listener(self) -> ReplicationListener | None:
        """Return the listener of framed streams, not started, or None if there is none."""
        return self._shared.environment.replication_listener(self.replicas.table)

    def serve_clients(self, server: grpc.aio.Server) -> None:
        """Serve the requests of clients over gRPC."""
        shared = self._shared
        add_health_to_server(server, shared.readiness.why_unready)
        add_admin_to_server(server, self._admin)
        rights = shared.authorizer.rights_of_caller
        add_metadata_view_to_server(server, shared.quorum, shared.images, rights)
        add_range_read_to_server(
            server,
            self.replicas,
            shared.cache,
            rights,
            shared.limits.max_batch_bytes,
            self.kafka.memory.ranges,
            self._read_pace,
        )
        add_range_write_to_server(
            server, self.replicas, self.kafka.producer_ids, rights, self._write_pace
        )
        groups_pb2_grpc.add_GroupOffsetsServicer_to_server(self._group_offsets(), server)

    def _read_pace(self) -> StreamPace:
        """Return the pace of what the caller reads over gRPC. It says no client id."""
        quotas, user = self.kafka.quotas, caller().principal.name
        return StreamPace(lambda: quotas.limits_of(user, "").fetched, quotas.now_ms)

    def _write_pace(self) -> StreamPace:
        """Return the pace of what the caller writes over gRPC."""
        quotas, user = self.kafka.quotas, caller().principal.name
        return StreamPace(lambda: quotas.limits_of(user, "").produced, quotas.now_ms)

    def _kafka_services(self, forwarder: ControllerForwarder) -> KafkaServices:
        shared, coordinators = self._shared, self.coordinators
        environment = shared.environment
        memory = ClientMemory.of(shared.config)
        window = QuotaWindow(
            shared.config[QUOTA_WINDOW_NUM], shared.config[QUOTA_WINDOW_SIZE_SECONDS]
        )
        quotas = ClientQuotaManager(window, environment.now_ms, shared.images.image.client_quotas)
        shared.images.subscribe(quotas.on_image, "client_quotas")
        rates = ConnectionRates(
            window, environment.now_ms, lambda: int(shared.live[MAX_CONNECTION_CREATION_RATE])
        )
        rates.set_quotas(shared.images.image.client_quotas)
        shared.images.subscribe(rates.on_image, "client_quotas")
        return KafkaServices(
            config=shared.live,
            broker_id=shared.identity.broker_id,
            cluster_id=shared.quorum.cluster_id,
            replicas=self.replicas,
            metadata=shared.cache,
            forwarder=forwarder,
            producer_ids=coordinators.producer_ids,
            groups=coordinators.groups,
            transactions=coordinators.transactions,
            authorizer=shared.authorizer,
            fetch_sessions=FetchSessionCache.of(shared.config, environment.now_ms),
            share_states=coordinators.states,
            share_leader=coordinators.share_leader,
            share_sessions=ShareSessionCache.of(shared.config, coordinators.share_leader),
            group_config=shared.live,
            images=shared.images,
            configs=self._configs,
            tokens=self._tokens,
            quorum=shared.quorum,
            telemetry=self._telemetry(),
            quotas=quotas,
            connection_rates=rates,
            figures=ClientFigures(memory, rates),
            memory=memory,
            turns=shared.turns,
            wall_clock_ms=environment.wall_clock_ms,
        )

    def _telemetry(self) -> ClientTelemetry:
        shared, environment = self._shared, self._shared.environment
        telemetry = ClientTelemetry(
            environment.now_ms,
            lambda: uuid.UUID(bytes=environment.random_bytes(ID_BYTES), version=4),
        )
        telemetry.set_subscriptions(shared.images.image)
        shared.images.subscribe(telemetry.on_image, "configs")
        return telemetry

    def _admin_service(self) -> AdminService:
        shared = self._shared
        wall_clock_ms = shared.environment.wall_clock_ms
        return AdminService(
            identity=shared.identity,
            images=shared.images,
            quorum=shared.quorum,
            controller=shared.active_controller,
            min_insync_replicas=shared.limits.min_insync_replicas,
            broker_alerts=self.alerts,
            authorizer=shared.authorizer,
            reads={
                **AdminReads(
                    shared.images,
                    self._configs,
                    self._tokens,
                    shared.authorizer,
                    wall_clock_ms,
                    self.kafka.turns,
                ).methods(),
                **TransactionAdmin(
                    self.coordinators.transactions,
                    self.replicas,
                    shared.authorizer,
                    wall_clock_ms,
                ).methods(),
            },
            metrics=shared.metrics,
        )

    def _group_offsets(self) -> GroupOffsetsService:
        topics = CoordinatorTopics()

        async def create_if_missing() -> str | None:
            asker = caller()
            context = RequestContext(
                version=0,
                client_id="",
                client_host=asker.client_host,
                principal=asker.principal,
            )
            return await topics.create_if_missing(self.kafka, context, GROUPS)

        return GroupOffsetsService(
            ExternalCommits(self.coordinators.groups, self._shared.environment.wall_clock_ms),
            self._shared.cache,
            self._shared.authorizer.rights_of_caller,
            create_if_missing,
        )

    def alerts(self) -> list[str]:
        """Return what an operator should look at on this broker."""
        return [*self._silence_of_the_quorum(), *self._stray_logs()]

    def _stray_logs(self) -> list[str]:
        """Return an alert while there are logs here that the quorum does not know (rule 7)."""
        strays = self.replicas.strays()
        if not strays:
            return []
        return [
            f"broker {self._shared.identity.broker_id} keeps {len(strays)} logs that the quorum "
            f"does not know ({names_of(strays)}): look at them with `quorate log strays list`"
        ]

    def _silence_of_the_quorum(self) -> list[str]:
        """Return an alert while the quorum is silent. A leader continues to lead then, with frozen
        ISRs (rule 6)."""
        shared = self._shared
        silent_ms = shared.environment.now_ms() - shared.quorum.last_keep_alive_ms
        if silent_ms < shared.config[BROKER_SESSION_TIMEOUT_MS]:
            return []
        return [
            f"broker {shared.identity.broker_id} has not heard from the quorum for {silent_ms} ms: "
            "it goes on leading, and its ISRs are frozen until the quorum answers"
        ]
