"""One broker: the list of its stages, and the order in which they start and stop.

Start: the metrics listener first, then the session with the quorum, then the log, then the image,
then the listeners (Kafka, gRPC), and only then the registration: from that moment the controller
sends commands. Stop: the leaderships move away, then the listeners close, then the log, then the
session, and the metrics listener last.
"""

import asyncio
from contextlib import AsyncExitStack

from quorate.broker.assembly.controller_stage import ControllerStage, stand_for_controller
from quorate.broker.assembly.coordinator_stage import CoordinatorStage
from quorate.broker.assembly.listener_stage import open_listeners
from quorate.broker.assembly.membership import (
    adopt_assigned_replicas,
    follow_metadata,
    open_session,
    register,
    report_replicas,
)
from quorate.broker.assembly.metric_sources import add_metrics
from quorate.broker.assembly.metrics_stage import open_metrics
from quorate.broker.assembly.registry_stage import open_registry
from quorate.broker.assembly.replication_stage import ReplicationStage
from quorate.broker.assembly.services import BrokerServices
from quorate.broker.assembly.shared_parts import SharedParts
from quorate.broker.config.log import log_folders
from quorate.broker.config.node import CONTROLLED_SHUTDOWN_TIMEOUT_MS
from quorate.broker.control.readiness import STOPPING
from quorate.quorum.quorum_errors import MetadataUnreadable


class BrokerServer:
    """A broker that is up: everything in it runs. ``stop`` it once."""

    def __init__(
        self, shared: SharedParts, replication: ReplicationStage, cleanup: AsyncExitStack
    ) -> None:
        """Take over the stages that ``start`` has opened, and what closes them again."""
        self._shared = shared
        self._replication = replication
        self._cleanup = cleanup

    @classmethod
    async def start(cls, shared: SharedParts) -> "BrokerServer":
        """Come up and register; what was started is stopped again if a later step fails.

        Raises:
            QuorumUnavailable, DataFolderError, ListenError, RegistrationRefused: named causes.
        """
        async with AsyncExitStack() as cleanup:
            begin = shared.readiness.begin
            await open_metrics(shared, cleanup)
            begin("the broker waits for a session with the quorum")
            await open_session(shared, cleanup)
            begin("the broker opens its log")
            replication = await ReplicationStage.open(shared, cleanup)
            begin("the broker reads the metadata")
            await follow_metadata(shared, cleanup)
            controller = ControllerStage.open(shared, cleanup)
            coordinators = CoordinatorStage.open(
                shared, replication.replicas, controller.forwarder, cleanup
            )
            registry = open_registry(shared, replication.replicas, cleanup)
            add_metrics(shared, replication.replicas, coordinators)
            await adopt_assigned_replicas(shared, replication)
            services = BrokerServices(
                shared, replication.replicas, coordinators, controller.forwarder, registry
            )
            addresses = await open_listeners(shared, services, controller.audit_log, cleanup)
            begin("the broker waits to be registered")
            await register(shared, replication, addresses, cleanup)
            await stand_for_controller(shared, controller, cleanup)
            report_replicas(shared, replication, cleanup)
            begin("")
            return cls(shared, replication, cleanup.pop_all())

    async def stop(self) -> None:
        """Hand the leaderships over, finish what is in flight, close everything."""
        shared = self._shared
        shared.readiness.begin(STOPPING)
        if shared.identity.epoch is not None:
            self._replication.replicas.prepare_to_stop()
            await shared.controller_client.hand_over_leaderships(
                shared.config[CONTROLLED_SHUTDOWN_TIMEOUT_MS]
            )
        await self._cleanup.aclose()

    async def failed(self) -> str:
        """Return why the broker cannot go on, once it cannot: the disk of its log has failed (a
        full one is waited out), or an invariant of the metadata is broken here.

        The broker must be stopped then: others of the ISR lead what it leads.
        """
        follower = self._shared.images
        log_fails = asyncio.ensure_future(self._replication.log_events.has_failed.wait())
        metadata_fails = asyncio.ensure_future(follower.has_failed.wait())
        try:
            await asyncio.wait({log_fails, metadata_fails}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            log_fails.cancel()
            metadata_fails.cancel()
        if isinstance(follower.failure, MetadataUnreadable):
            return str(follower.failure)
        if follower.failure is not None:
            return f"{follower.failure}. Start this broker again; if that does not help, report it"
        folders = ", ".join(map(str, log_folders(self._shared.config)))
        return (
            f"cannot write log directory {folders}: see above. Repair the disk, then start this "
            "broker again"
        )
