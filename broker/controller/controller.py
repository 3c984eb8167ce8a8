"""The controller in office: one object per tenure, from the claim to the resignation (E4, E6).

It decides with pure managers from the newest image, writes transactions, and tells brokers what
came back applied. Nothing is kept across tenures: a broker that becomes controller again starts
from the image.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable

from broker.config.controller import CONTROL_REQUEST_TIMEOUT_MS
from broker.config.node import BROKER_SESSION_TIMEOUT_MS
from broker.control.changes import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_PIPELINE,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    REMOVE_PARTITIONS,
    UPDATE_FEATURES,
    A,
    Change,
    Q,
)
from broker.control.ports import Carrier, ControllerQuorum, Images
from broker.controller.admin_requests import AdminRequests
from broker.controller.administration import Administration, Means
from broker.controller.broker_changes import BrokerChanges
from broker.controller.control_requests import ControlRequests
from broker.controller.deletions import Deletions
from broker.controller.door import AuditTrail, Door, no_trail
from broker.controller.event_queue import EventQueue, Priority
from broker.controller.feature_levels import FeatureLevels
from broker.controller.implementations import Implementations
from broker.controller.lane import Correspondence
from broker.controller.leader_elections import LeaderElections
from broker.controller.managers.office import Office
from broker.controller.managers.topics import NewIds
from broker.controller.partition_counts import PartitionCounts
from broker.controller.pipeline_requests import PipelineRequests
from broker.controller.publisher import Publisher
from broker.controller.reassignment_agent import ReassignmentAgent
from broker.controller.rounds import Rounds
from broker.controller.transport import ControlTransport
from broker.controller.watchdog import Watchdog
from broker.controller.writer import Writer
from broker.dynamic_config import LiveConfiguration
from broker.errors import CODE_OF_RESULT
from broker.security.authorizer import Authorizer, AuthorizerSettings
from broker.security.token_keys import Keys
from metadata_log.draft import Changes
from metadata_log.features import brokers_may_write
from metadata_log.handover import CannotTakeOffice
from metadata_log.image import Image
from metadata_log.records import OperationResult
from metadata_log.types import BrokerId, ControllerEpoch
from quorate_proto.v1 import admin_pb2, control_pb2, errors_pb2
from quorum.errors import QuorumError
from quorum.metrics.family import Sample

log = logging.getLogger(__name__)

Resign = Callable[[ControllerEpoch], Awaitable[None]]
"""Gives up the office of that epoch, in the metadata log."""

HandOver = Callable[[BrokerId], Awaitable[OperationResult]]
"""Gives the office to a broker, in the metadata log; may raise ``CannotTakeOffice``."""

Deposed = Callable[[ControllerEpoch], None]
"""Told that the tenure of that epoch is over."""


class Controller:
    """The tenure of one controller.

    ``resign`` and ``deposed`` lead back to the election. ``draw`` gives ids and where placement
    begins: the only randomness there is. ``clock_ms``: wall clock, milliseconds since the epoch.
    """

    def __init__(
        self,
        office: Office,
        *,
        config: LiveConfiguration,
        quorum: ControllerQuorum,
        images: Images,
        transport: ControlTransport,
        draw: Callable[[], NewIds],
        clock_ms: Callable[[], int],
        token_keys: Callable[[], Keys],
        resign: Resign,
        hand_over: HandOver,
        deposed: Deposed,
        trail: AuditTrail = no_trail,
        bridge: Carrier | None = None,
    ) -> None:
        self._office = office
        self._config = config
        self._images = images
        self._resign = resign
        self._hand_over = hand_over
        self._deposed = deposed
        timeout_ms = config[CONTROL_REQUEST_TIMEOUT_MS]
        self._watchdog = Watchdog(
            limit_ms=config[BROKER_SESSION_TIMEOUT_MS],
            on_stall=lambda: deposed(office.controller_epoch),
        )
        self._correspondence = Correspondence(
            controller_epoch=office.controller_epoch,
            requests=ControlRequests(office, timeout_ms),
            transport=transport,
            image=lambda: images.image,
            timeout_ms=timeout_ms,
            on_deposed=lambda _: deposed(office.controller_epoch),
            may_act=self._watchdog.may_act,
        )
        self._events = EventQueue(on_fault=lambda: deposed(office.controller_epoch))
        self._publisher = Publisher(self._correspondence)
        self._writer = Writer(
            quorum,
            images,
            lambda: deposed(office.controller_epoch),
            may_act=self._watchdog.may_act,
        )
        self._brokers = BrokerChanges(
            office=office,
            config=config,
            images=images,
            writer=self._writer,
            events=self._events,
            publisher=self._publisher,
        )
        self._deletions = Deletions(office, self._writer, self._publisher, self._events)
        self._reassignments = ReassignmentAgent(
            office, self._writer, self._publisher, self._events, self._brokers.staying
        )
        self._administration = Administration(
            Means(
                config=config,
                clock_ms=clock_ms,
                token_keys=token_keys,
                draw_id=lambda: draw().topic_id.hex(),
            ),
            office=office,
            writer=self._writer,
            events=self._events,
        )
        self._admin = AdminRequests(
            office=office,
            config=config,
            writer=self._writer,
            events=self._events,
            publisher=self._publisher,
            deletions=self._deletions,
            draw=draw,
            quotas=self._administration.quotas,
        )
        self._features = FeatureLevels(
            office=office, writer=self._writer, events=self._events, voters=quorum
        )
        self._counts = PartitionCounts(
            office=office,
            writer=self._writer,
            events=self._events,
            publisher=self._publisher,
            draw=draw,
            quotas=self._administration.quotas,
        )
        self._elections = LeaderElections(
            office=office,
            config=config,
            writer=self._writer,
            events=self._events,
            publisher=self._publisher,
            candidates=self._brokers.staying,
        )
        self._pipelines = PipelineRequests(office, Rounds(self._writer, self._events), clock_ms)
        self._bridge = bridge
        self._door = Door(
            self._implementations(),
            controller_epoch=office.controller_epoch,
            trail=trail,
            clock_ms=clock_ms,
            authorizer=Authorizer(lambda: images.image.acls, AuthorizerSettings.of(config)),
            image=lambda: images.image,
        )

    @property
    def controller_epoch(self) -> ControllerEpoch:
        return self._office.controller_epoch

    @property
    def alerts(self) -> list[str]:
        """Control requests without an answer (C18), full disks, damaged logs."""
        return [*sorted(self._correspondence.alerts.values()), *self._brokers.alerts()]

    def metrics(self) -> Iterable[Sample]:
        """How busy it is, and what clients have it do (Q9)."""
        return self._administration.quotas.metrics()

    # -- a tenure --------------------------------------------------------------------------------

    def start(self) -> None:
        """Take office, in the order of C9: the claim is applied, so the image has every
        leaderAndISR; INIT to all; broker changes; leaderless partitions; pending reassignments,
        additions, removals and deletions.
        """
        image = self._images.image
        log.info("broker %d is the controller of epoch %d", *self._office)
        self._watchdog.start()
        self._events.start()
        self._publisher.start(image)
        self._brokers.look()
        self._reassignments.start()
        self._events.put(Priority.BROKERS, self._take_up_pending)
        self._features.start()
        self._elections.start()
        self._administration.tokens.start()

    def on_image(self, image: Image, changes: Changes) -> None:
        """A transaction was applied, whoever wrote it."""
        self._publisher.on_image(changes)
        self._brokers.on_image(image, changes)
        if changes.configs:
            self._elections.configs_changed()
        self._reassignments.on_image(image, changes)
        self._counts.on_image(changes)
        self._deletions.take_up(changes.deletions)

    def fall_silent(self) -> None:
        """Tell brokers nothing more, at once: the rest of ``close`` may have to wait."""
        self._publisher.close()

    async def close(self) -> None:
        """Stop deciding and telling, at once; whoever waits is told to ask the new controller."""
        self._watchdog.close()
        self.fall_silent()
        self._reassignments.close()
        self._counts.close()
        self._deletions.close()
        self._elections.close()
        self._administration.tokens.close()
        await self._events.close()
        log.info("broker %d is no longer the controller of epoch %d", *self._office)

    def meet(self, controller_epoch: ControllerEpoch) -> None:
        """Somebody knows of a controller of that epoch (E3)."""
        if controller_epoch > self.controller_epoch:
            self._deposed(self.controller_epoch)

    async def resign(self) -> None:
        """Give up the office; another broker takes it (E5)."""
        await self._resign(self._office.controller_epoch)

    async def hand_over(
        self, request: admin_pb2.MoveControllerRequest
    ) -> admin_pb2.MoveControllerResponse:
        """Give the office to another broker (E5); to itself: nothing to do."""
        to = BrokerId(request.broker_id)
        if to == self._office.controller_id:
            return admin_pb2.MoveControllerResponse(controller_epoch=self.controller_epoch)
        try:
            result = await self._hand_over(to)
        except CannotTakeOffice as error:
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
        self._counts.take_up()
        self._deletions.take_up(self._images.image.deletions)

    async def controlled_shutdown(
        self, request: control_pb2.ControlledShutdownRequest
    ) -> control_pb2.ControlledShutdownResponse:
        """Move the leaderships of a broker that wants to stop (scenario 11, B3)."""
        return await self._brokers.controlled_shutdown(request)

    async def report_replicas(
        self, request: control_pb2.ReportReplicasRequest
    ) -> control_pb2.ReportReplicasResponse:
        """Take replicas that are of no use out of their ISRs."""
        return await self._brokers.report_replicas(request)

    # -- administration --------------------------------------------------------------------------

    async def carry_out(self, change: Change[Q, A], request: Q) -> A:
        """The one door of every change, whoever asks (E3, F2).

        At inter_broker_protocol 1 this broker is one of many that may write (F6).
        """
        bridged = change.bridged and brokers_may_write(self._images.image)
        carrier = self._bridge if bridged and self._bridge is not None else self._door
        return await carrier.carry_out(change, request)

    def _implementations(self) -> Implementations:
        """Which part of the controller carries out which change."""
        found = Implementations()
        found.add(CREATE_TOPICS, self._admin.create_topics)
        found.add(DELETE_TOPICS, self._admin.delete_topics)
        found.add(ALLOCATE_PRODUCER_IDS, self._admin.allocate_producer_ids)
        found.add(CREATE_PARTITIONS, self._counts.create_partitions)
        found.add(REMOVE_PARTITIONS, self._counts.remove_partitions)
        found.add(ELECT_LEADERS, self._elections.elect_leaders)
        found.add(ALTER_PARTITION_REASSIGNMENTS, self._reassignments.alter)
        found.add(LIST_PARTITION_REASSIGNMENTS, self._reassignments.list)
        found.add(UPDATE_FEATURES, self._features.update)
        found.add(ALTER_PIPELINE, self._pipelines.alter)
        self._administration.add_to(found)
        return found
