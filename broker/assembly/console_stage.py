"""The console of a broker, and what every broker serves for the consoles of others."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc.aio

from quorate.broker.assembly.services import BrokerServices
from quorate.broker.assembly.shared_parts import SharedParts
from quorate.broker.config.controller import AUDIT_LOG_FILE
from quorate.broker.config.http_listeners import (
    CONSOLE_ALLOWED_HOSTS,
    CONSOLE_LISTENER,
    http_address,
)
from quorate.broker.config.log import log_folders
from quorate.broker.console.asking.cluster_requests import ClusterRequests
from quorate.broker.console.asking.local_requests import LocalRequests
from quorate.broker.console.asking.offsets import LATEST, list_offsets
from quorate.broker.console.asking.own_reads import OwnReads
from quorate.broker.console.asking.peer_service import PeerService
from quorate.broker.console.asking.person import Person
from quorate.broker.console.figures.sampler import SampledParts, Sampler
from quorate.broker.console.health.health_index import HealthIndex
from quorate.broker.console.health.topic_health import summed
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher
from quorate.broker.security.listener_security import configured_listeners
from quorate.broker.security.principal import CLUSTER_ADMIN
from quorate.common.configuration import list_items
from quorate.common.types import Endpoint, TopicPartition
from quorate_proto.v1 import console_pb2_grpc

if TYPE_CHECKING:
    from quorate.broker.assembly.http_listeners import HttpListeners

CONSOLE: Final = "CONSOLE"
"""The name of the listener in contexts and logs."""

_ITSELF: Final = Person(CLUSTER_ADMIN, "")
"""The cluster itself, on whose behalf a broker asks for the ends of partitions."""


class ConsoleStage:
    """The parts of a broker that its console and those of others ask."""

    def __init__(self, shared: SharedParts, services: BrokerServices) -> None:
        """Create the parts. Figures are taken once the console is open."""
        self._shared = shared
        self._services = services
        listener = configured_listeners(shared.config)[0].name
        self.local = LocalRequests(RequestDispatcher(services.kafka, api_table()), listener)
        self.requests = ClusterRequests(shared.identity, shared.images, shared.channels, self.local)
        self.reads = OwnReads(shared.authorizer, self._audit_log(), self._alerts)

    def serve_brokers(self, server: grpc.aio.Server) -> None:
        """Serve the consoles of other brokers."""
        service = PeerService(self.local, self.reads)
        console_pb2_grpc.add_ConsolePeersServicer_to_server(service, server)

    def begin_sampling(self, cleanup: AsyncExitStack) -> HealthIndex:
        """Take figures from now on. Return the health of topics, which is among them."""
        shared, services = self._shared, self._services
        health = HealthIndex(shared.images, shared.turns, shared.limits.min_insync_replicas)
        cleanup.callback(health.close)

        async def troubles() -> tuple[int, int]:
            total = summed((await health.topics()).values())
            return total.offline, total.under_replicated

        sampler = Sampler(
            SampledParts(
                table=services.replicas.table,
                groups=services.coordinators.groups,
                clients=services.kafka.figures,
                turns=shared.turns,
                log_dir=log_folders(shared.config)[0],
                ends_of=self._ends_of,
                troubles=troubles,
                now_ms=shared.environment.now_ms,
                wall_clock_ms=shared.environment.wall_clock_ms,
            )
        )
        self.reads.sampler = sampler
        sampler.start()
        cleanup.push_async_callback(sampler.stop)
        return health

    async def _ends_of(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        ends, _ = await list_offsets(self.requests, _ITSELF, partitions, LATEST)
        return ends

    def _audit_log(self) -> Path | None:
        name = self._shared.config[AUDIT_LOG_FILE]
        return log_folders(self._shared.config)[0] / name if name else None

    def _alerts(self) -> list[str]:
        controller = self._shared.active_controller.active
        of_controller = [] if controller is None else controller.alerts
        return [*of_controller, *self._services.alerts()]


async def open_console(
    shared: SharedParts,
    stage: ConsoleStage,
    http: "HttpListeners",
    cleanup: AsyncExitStack,
) -> Endpoint | None:
    """Open the console, if it is configured. Return its address.

    Raises:
        ListenError: the address is taken, or certificates cannot be used.
    """
    address = http_address(CONSOLE_LISTENER, shared.config)
    if address is None:
        return None
    # Here, so that a broker without a console does not load its pages.
    from quorate.broker.admin.metadata_history import MetadataHistory
    from quorate.broker.console.actions.form_tokens import FormTokens
    from quorate.broker.console.asking.cluster_figures import ClusterFigures
    from quorate.broker.console.console_parts import ConsoleParts
    from quorate.broker.console.routes import ConsoleRoutes, refusal_as_page

    environment = shared.environment
    parts = ConsoleParts(
        requests=stage.requests,
        figures=ClusterFigures(stage.requests, stage.reads),
        images=shared.images,
        health=stage.begin_sampling(cleanup),
        authorizer=shared.authorizer,
        quorum=shared.quorum,
        history=MetadataHistory(shared.quorum, shared.images),
        turns=shared.turns,
        wall_clock_ms=environment.wall_clock_ms,
        random_bytes=environment.random_bytes,
        is_encrypted=address.has_tls,
    )
    tokens = FormTokens(environment.random_bytes(32), lambda: environment.wall_clock_ms() / 1_000)
    hosts = [*list_items(shared.config[CONSOLE_ALLOWED_HOSTS]), address.endpoint.host]
    routes = ConsoleRoutes(parts, tokens, hosts)
    bound = await http.open(CONSOLE_LISTENER, CONSOLE, routes.routes(), show=refusal_as_page)
    cleanup.callback(routes.live.stop)
    return bound
