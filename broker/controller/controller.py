"""The active controller: one object per tenure, from the claim to the resignation (E4, E6).

It decides with pure managers from the newest image, writes transactions, and publishes the applied
changes to brokers. Nothing is kept across tenures: a broker that becomes controller again starts
from the image.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from quorate.broker.changes.audit_log import KeepAuditEntries, keep_no_entries
from quorate.broker.changes.table import A, Change, Q
from quorate.broker.common.errors import CODE_OF_RESULT
from quorate.broker.config.controller import CONTROL_REQUEST_TIMEOUT_MS
from quorate.broker.config.dynamic_config import LiveConfiguration
from quorate.broker.config.node import BROKER_SESSION_TIMEOUT_MS
from quorate.broker.control.ports import ChangeExecutor, Sessions
from quorate.broker.controller.broker_changes import BrokerChanges
from quorate.broker.controller.broker_probes import BrokerProbes
from quorate.broker.controller.channels.control_request_queue import ChannelContext
from quorate.broker.controller.channels.control_requests import ControlRequestBuilder
from quorate.broker.controller.channels.control_transport import BrokerTransport
from quorate.broker.controller.channels.controller_channel_manager import ControllerChannelManager
from quorate.broker.controller.command_pipeline import CommandPipeline, DecisionWriter
from quorate.broker.controller.controller_record import ControllerRecord
from quorate.broker.controller.event_metrics import event_samples
from quorate.broker.controller.link_changes import LinkChanges
from quorate.broker.controller.link_reports import LinkReports
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.placement import NewIds
from quorate.broker.controller.pending_work import AllPendingWork
from quorate.broker.controller.requests.administration_requests import (
    AdministrationContext,
    AdministrationRequests,
)
from quorate.broker.controller.requests.feature_requests import FeatureRequests
from quorate.broker.controller.requests.leader_elections import LeaderElections
from quorate.broker.controller.requests.pipeline_requests import PipelineRequests
from quorate.broker.controller.requests.producer_id_requests import ProducerIdRequests
from quorate.broker.controller.requests.reassignments import Reassignments
from quorate.broker.controller.requests.token_requests import TokenRequests
from quorate.broker.controller.requests.topic_requests import TopicRequests
from quorate.broker.controller.tenure import (
    ControllerWriter,
    EventPriority,
    EventQueue,
    TenureGuard,
)
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings
from quorate.broker.security.token_secrets import SecretKeys
from quorate.common.metrics.family import Sample
from quorate.common.types import BrokerId, ControllerEpoch
from quorate.metadata_log.features import brokers_may_write
from quorate.metadata_log.handover import IneligibleController
from quorate.metadata_log.image import Changes, Image
from quorate.quorum.quorum_errors import QuorumError
from quorate_proto.v1 import admin_pb2, control_pb2, errors_pb2

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerDependencies:
    """The objects of its broker that a controller needs, the same in every tenure.

    ``draw`` returns ids and the start of placements; it is the only source of randomness.
    ``clock_ms`` is the wall clock, in milliseconds since the epoch. ``bridge`` carries out the
    changes that at inter_broker_protocol 1 every broker writes by itself (F6).
    """

    config: LiveConfiguration
    quorum: Sessions
    images: MetadataFollower
    transport: BrokerTransport
    draw: Callable[[], NewIds]
    clock_ms: Callable[[], int]
    token_keys: Callable[[], SecretKeys] = tuple
    audit_log: KeepAuditEntries = keep_no_entries
    bridge: ChangeExecutor | None = None

    def draw_key(self) -> bytes:
        """Return random bytes, as many as two ids have."""
        return self.draw().topic_id + self.draw().topic_id

    def draw_id(self) -> str:
        """Return a new id that was never used."""
        return self.draw().topic_id.hex()


class Controller:
    """The active controller in one tenure.

    ``on_end`` is called with the epoch when the tenure is found to have ended.
    """

    def __init__(
        self,
        tenure: ControllerTenure,
        dependencies: ControllerDependencies,
        *,
        record: ControllerRecord,
        on_end: Callable[[ControllerEpoch], None],
    ) -> None:
        config, images = dependencies.config, dependencies.images
        self._tenure = tenure
        self._images = images
        self._record = record
        self._bridge = dependencies.bridge
        self._is_silent = False
        self._guard = TenureGuard(
            tenure, session_timeout_ms=config[BROKER_SESSION_TIMEOUT_MS], on_end=on_end
        )
        self._events = EventQueue(on_fault=self._guard.end)
        self._writer = ControllerWriter(dependencies.quorum, images, self._guard)
        timeout_ms = config[CONTROL_REQUEST_TIMEOUT_MS]
        self._channels = ChannelContext(
            requests=ControlRequestBuilder(tenure, timeout_ms),
            transport=dependencies.transport,
            images=images,
            guard=self._guard,
            timeout_ms=timeout_ms,
            on_failed_elections=lambda broker, tips: self._brokers.elections_failed(broker, tips),
        )
        self._channel_manager = ControllerChannelManager(self._channels)
        links = LinkReports()
        self._probes = BrokerProbes(tenure, dependencies.transport, self._guard)
        self._brokers = BrokerChanges(
            tenure=tenure,
            config=config,
            images=images,
            writer=self._writer,
            events=self._events,
            channel_manager=self._channel_manager,
            links=links,
        )
        self._links = LinkChanges(
            tenure=tenure,
            config=config,
            images=images,
            writer=self._writer,
            events=self._events,
            reports=links,
            probes=self._probes,
            staying=self._brokers.staying,
            record=record,
        )
        self._pending = AllPendingWork(tenure, self._writer, self._channel_manager, self._events)
        self._pipeline = CommandPipeline(
            controller_epoch=tenure.controller_epoch,
            images=images,
            authorizer=Authorizer(images, AuthorizerSettings.of(config)),
            audit_log=dependencies.audit_log,
        )
        self._register_handlers(dependencies)

    def _register_handlers(self, dependencies: ControllerDependencies) -> None:
        """Create the objects that handle each change, and register them."""
        tenure, config = self._tenure, dependencies.config
        decisions = DecisionWriter(self._writer, self._events)
        self._topics = TopicRequests(
            tenure=tenure,
            config=config,
            writer=self._writer,
            events=self._events,
            channel_manager=self._channel_manager,
            pending=self._pending,
            draw=dependencies.draw,
        )
        self._elections = LeaderElections(
            tenure=tenure,
            config=config,
            writer=self._writer,
            events=self._events,
            channel_manager=self._channel_manager,
            brokers=self._brokers,
            reaches_all=self._probes.all_answer,
        )
        self._reassignments = Reassignments(
            tenure, self._writer, self._channel_manager, self._events, self._brokers
        )
        self._features = FeatureRequests(
            tenure=tenure,
            writer=self._writer,
            events=self._events,
            voters=dependencies.quorum,
            draw_key=dependencies.draw_key,
        )
        self._tokens = TokenRequests(
            AdministrationContext(
                config=config,
                clock_ms=dependencies.clock_ms,
                token_keys=dependencies.token_keys,
                draw_id=dependencies.draw_id,
            ),
            tenure=tenure,
            writer=self._writer,
            events=self._events,
            decisions=decisions,
        )
        for handlers in (
            self._topics,
            self._elections,
            self._reassignments,
            self._features,
            self._tokens,
            AdministrationRequests(tenure, decisions, config),
            PipelineRequests(tenure, decisions, dependencies.clock_ms),
            ProducerIdRequests(tenure, decisions),
        ):
            handlers.register(self._pipeline)

    @property
    def controller_epoch(self) -> ControllerEpoch:
        return self._tenure.controller_epoch

    @property
    def alerts(self) -> list[str]:
        """Return the alerts about unanswered control requests (C18), full disks, damaged logs, and
        broken links."""
        return [
            *sorted(self._channels.alerts.values()),
            *self._brokers.alerts(),
            *self._links.alerts(),
        ]

    def metrics(self) -> Iterable[Sample]:
        """Yield how busy the controller is, and how much of their quotas clients have used (Q9)."""
        yield from event_samples(self._events)
        yield from self._topics.metrics()

    # -- a tenure --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the tenure, in the order of C9.

        The claim is applied, so the image has every leaderAndISR. INIT goes to all brokers. Broker
        changes, leaderless partitions, and pending reassignments, additions, removals and deletions
        follow.
        """
        image = self._images.image
        log.info("broker %d is the controller of epoch %d", *self._tenure)
        self._guard.start()
        self._events.start()
        self._channel_manager.start(image)
        self._links.start()
        self._brokers.start()
        self._reassignments.start()
        self._events.put(EventPriority.BROKERS, self._take_up_pending)
        self._features.start()
        self._elections.start()
        self._tokens.start()
        self._images.subscribe(
            self._on_image,
            "topics",
            "brokers",
            "configs",
            "features",
            "additions",
            "removals",
            "deletions",
        )

    def _on_image(self, image: Image, changes: Changes) -> None:
        """Pass an applied transaction, whoever wrote it, to the objects that its changes
        concern."""
        if self._is_silent:
            return
        if changes.topics or changes.brokers or changes.features:
            self._channel_manager.on_image(changes)
        if changes.brokers or changes.configs:
            self._brokers.on_image(image, changes)
        if changes.configs:
            self._elections.configs_changed()
        if changes.topics and image.reassignments:
            self._reassignments.on_image(image, changes)
        if changes.additions or changes.removals or changes.deletions:
            self._pending.on_image(changes)

    def stop_publishing(self) -> None:
        """Send no more control requests, at once. The rest of ``close`` may have to wait."""
        self._is_silent = True
        self._images.unsubscribe(self._on_image)
        self._channel_manager.close()

    async def close(self) -> None:
        """Stop deciding and publishing, at once. Waiting requesters are sent to the new
        controller."""
        self._guard.close()
        self.stop_publishing()
        self._links.close()
        self._reassignments.close()
        self._pending.close()
        self._elections.close()
        self._tokens.close()
        await self._events.close()
        log.info("broker %d is no longer the controller of epoch %d", *self._tenure)

    def observe_controller_epoch(self, controller_epoch: ControllerEpoch) -> None:
        """Record that another node knows a controller of that epoch. A later epoch ends this tenure
        (E3)."""
        self._guard.observe_controller_epoch(controller_epoch)

    async def resign(self) -> None:
        """Resign, so that another broker becomes the active controller (E5)."""
        await self._record.resign(self._tenure.controller_epoch)

    async def hand_over(
        self, request: admin_pb2.MoveControllerRequest
    ) -> admin_pb2.MoveControllerResponse:
        """Make another broker the active controller (E5). If that is this broker, nothing
        happens."""
        to = BrokerId(request.broker_id)
        if to == self._tenure.controller_id:
            return admin_pb2.MoveControllerResponse(controller_epoch=self.controller_epoch)
        try:
            result = await self._record.hand_over(to)
        except IneligibleController as error:
            return admin_pb2.MoveControllerResponse(
                error_code=errors_pb2.BROKER_ID_NOT_REGISTERED, error_message=str(error)
            )
        except QuorumError as error:
            return admin_pb2.MoveControllerResponse(
                error_code=errors_pb2.REQUEST_TIMED_OUT,
                error_message=f"the metadata quorum did not answer: {error}",
            )
        return admin_pb2.MoveControllerResponse(
            error_code=CODE_OF_RESULT[result.code],
            error_message=result.detail,
            controller_epoch=self.controller_epoch + 1 if result.ok else 0,
        )

    async def _take_up_pending(self) -> None:
        self._pending.take_up_all()

    async def controlled_shutdown(
        self, request: control_pb2.ControlledShutdownRequest
    ) -> control_pb2.ControlledShutdownResponse:
        """Move the leaderships of a broker that wants to stop (scenario 11, B3)."""
        return await self._brokers.controlled_shutdown(request)

    async def report_replicas(
        self, request: control_pb2.ReportReplicasRequest
    ) -> control_pb2.ReportReplicasResponse:
        """Remove unusable replicas from their ISRs."""
        return await self._brokers.report_replicas(request)

    async def report_links(
        self, request: control_pb2.ReportLinksRequest
    ) -> control_pb2.ReportLinksResponse:
        """Move leadership away from brokers that the others do not reach."""
        return await self._links.report_links(request)

    # -- administration --------------------------------------------------------------------------

    async def perform(self, change: Change[Q, A], request: Q) -> A:
        """Carry out a change for any requester, over any wire protocol (E3, F2).

        At inter_broker_protocol 1 this broker is one of many that may write (F6).
        """
        if change.bridged and self._bridge is not None and brokers_may_write(self._images.image):
            return await self._bridge.perform(change, request)
        return await self._pipeline.run(change, request)
