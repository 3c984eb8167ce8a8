"""Moves leadership when brokers join, leave or stop (scenario 11)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence, Set
from typing import Final, TypeVar

from quorate.broker.config.dynamic_config import LiveConfiguration, topics_of
from quorate.broker.config.topic_keys import TOPIC_UNCLEAN_LEADER_ELECTION
from quorate.broker.controller.broker_trouble_reports import BELIEVED_MS, BrokerTroubleReports
from quorate.broker.controller.channels.controller_channel_manager import (
    PUBLISH_TIMEOUT_MS,
    ControllerChannelManager,
)
from quorate.broker.controller.link_reports import LinkReports
from quorate.broker.controller.managers import broker_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.partition_change import OfflineReplicas
from quorate.broker.controller.tenure import EventPriority, EventQueue, TenureEnded, Writer
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.types import BrokerEpoch, BrokerId, TopicIdPartition
from quorate.metadata_log.image import Broker, Changes, EntityKey, Image
from quorate.metadata_log.records import Operation, OperationResult
from quorate.quorum.quorum_errors import QuorumError
from quorate_proto.v1 import control_pb2, errors_pb2

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

RETRY_INTERVAL_MS: Final = 100
"""The pause between two attempts to write while the quorum is unavailable."""

SHUTDOWN_ROUNDS_MAX: Final = 5
"""The attempts of one request to move leaderships that compete with ISR changes."""


class BrokerChanges:
    """Reacts to changes of brokers during one controller's tenure."""

    def __init__(
        self,
        *,
        tenure: ControllerTenure,
        config: LiveConfiguration,
        images: MetadataFollower,
        writer: Writer,
        events: EventQueue,
        channel_manager: ControllerChannelManager,
        links: LinkReports,
    ) -> None:
        self._tenure = tenure
        self._config = config
        self._images = images
        self._writer = writer
        self._events = events
        self._channel_manager = channel_manager
        self._leaving: dict[BrokerId, BrokerEpoch] = {}
        self._reported = BrokerTroubleReports()
        self._links = links
        self._due = False
        self._accepts_losses_from_ms = 0
        """Before that, no topic accepts a loss by itself: not all offline replicas are known."""

    def start(self) -> None:
        """Begin the tenure: decide all leadership again, by what is known of offline replicas now,
        and once more when every broker has had the time to report.

        Only those of members of ISRs can be presumed. Another replica that is offline would be
        elected where a topic accepts a loss, in vain, so no loss is accepted until then.
        """
        if self._reported.presume(self._images.image, _now_ms()):
            self._accepts_losses_from_ms = _now_ms() + BELIEVED_MS
            loop = asyncio.get_running_loop()
            loop.call_later(BELIEVED_MS / 1000, self.reconsider_leadership)
        self.reconsider_leadership()

    def on_image(self, image: Image, changes: Changes) -> None:
        if changes.brokers or (changes.configs and may_lead_now(image, changes.configs)):
            self.reconsider_leadership()

    def reconsider_leadership(self) -> None:
        """Decide leadership again, ahead of all other events: brokers joined or left, or may lead
        now."""
        if not self._due:
            self._due = True
            self._events.put(EventPriority.BROKERS, self._reconsider)

    def staying(self, image: Image) -> frozenset[BrokerId]:
        """Return the brokers that leadership may move to: those that do not want to stop, have no
        full disk, and are not cut off from the others."""
        unfit = {
            broker_id
            for broker_id, epoch in (*self._leaving.items(), *self._reported.full(_now_ms()))
            if broker_id in image.brokers and image.brokers[broker_id].epoch == epoch
        }
        cut_off = self._links.cut_off(image, self._tenure.controller_id, _now_ms())
        return broker_manager.liveness(image).steady - unfit - cut_off

    def offline(self, image: Image) -> OfflineReplicas:
        """Return the replicas of live brokers in log directories that have failed (KIP-858)."""
        return self._reported.offline(image, _now_ms())

    def alerts(self) -> list[str]:
        """Return the full disks and damaged logs that brokers report."""
        return self._reported.alerts(self._images.image, _now_ms())

    async def controlled_shutdown(
        self, request: control_pb2.ControlledShutdownRequest
    ) -> control_pb2.ControlledShutdownResponse:
        """Move the leaderships of a broker that wants to stop (scenario 11, B3)."""

        async def move() -> control_pb2.ControlledShutdownResponse:
            answer = await self._events.run(
                EventPriority.BROKERS, lambda: self._move_leaders(request)
            )
            await self._channel_manager.publish_and_wait(PUBLISH_TIMEOUT_MS)
            return answer

        what = f"broker {request.broker_id} has to wait with its stop"
        return await _answered(move, control_pb2.ControlledShutdownResponse, what)

    async def report_replicas(
        self, request: control_pb2.ReportReplicasRequest
    ) -> control_pb2.ReportReplicasResponse:
        """Remove replicas on full disks and damaged replicas from ISRs, and elect others where
        replicas are offline."""

        async def take_out() -> control_pb2.ReportReplicasResponse:
            answer = await self._events.run(EventPriority.BROKERS, lambda: self._take_out(request))
            self._channel_manager.publish()
            return answer

        what = f"replicas of broker {request.broker_id} have to wait"
        return await _answered(take_out, control_pb2.ReportReplicasResponse, what)

    async def _take_out(
        self, request: control_pb2.ReportReplicasRequest
    ) -> control_pb2.ReportReplicasResponse:
        code = broker_manager.checked_sender(self._images.image, request)
        if code != errors_pb2.NONE:
            return control_pb2.ReportReplicasResponse(error_code=code)
        sender = BrokerId(request.broker_id)
        before = self._reported.offline_at(sender)
        self._reported.record(request, _now_ms())
        offline = self._reported.offline_at(sender)
        if before - offline:
            self.reconsider_leadership()
        relying = broker_manager.relying_on(self._images.image, sender, offline)
        if relying:
            await self._decide_leadership(relying)
        settled: set[TopicIdPartition] = set()
        for _ in range(SHUTDOWN_ROUNDS_MAX):
            image = self._images.image
            operations = broker_manager.report_changes(
                image,
                self._tenure,
                request,
                self.staying(image),
                settled=settled,
                offline=self.offline(image),
            )
            if not operations:
                break
            what = "is full" if request.is_full else "has unfit replicas"
            log.warning("broker %d %s: %d ISRs go on without it", sender, what, len(operations))
            results = await self._writer.commit(operations)
            settled.update(_changed(operations, results))
        remaining = broker_manager.reported_replicas(self._images.image, request)
        return control_pb2.ReportReplicasResponse(remaining_partitions=len(remaining))

    def elections_failed(self, broker: Broker, tips: Sequence[TopicIdPartition]) -> None:
        """Elect others where ``broker`` answered that it cannot lead (C21)."""

        async def elect_others() -> None:
            await self._patiently(lambda: self._elect_others(broker, tips))

        self._events.put(EventPriority.BROKERS, elect_others)

    async def _elect_others(self, broker: Broker, tips: Sequence[TopicIdPartition]) -> None:
        for _ in range(SHUTDOWN_ROUNDS_MAX):
            image = self._images.image
            operations = broker_manager.failed_elections(
                image, self._tenure, broker, tips, self.staying(image), offline=self.offline(image)
            )
            if not operations:
                return
            log.warning(
                "broker %d cannot lead %d partitions: others are elected",
                broker.broker_id,
                len(operations),
            )
            await self._writer.commit(operations)

    async def _reconsider(self) -> None:
        self._due = False
        await self._patiently(self._settle)

    async def _patiently(self, decide_and_write: Callable[[], Awaitable[None]]) -> None:
        """Repeat the work until the quorum has answered, or the tenure has ended."""
        while True:
            try:
                await decide_and_write()
            except TenureEnded:
                return
            except QuorumError as error:
                log.warning("broker changes wait for the quorum: %s", error)
                await asyncio.sleep(RETRY_INTERVAL_MS / 1000)
            else:
                return

    async def _settle(self) -> None:
        """Decide all leadership, then admit the brokers that have joined."""
        image = await self._decide_leadership()
        await self._writer.commit(broker_manager.admissions(image, self._tenure))

    async def _decide_leadership(self, only: Collection[TopicIdPartition] | None = None) -> Image:
        """Decide until the image needs no more change, of these partitions or of all.

        Each round decides from a new image, so a change that lost against a leader's own ISR change
        is decided again. Return the image that needed none.
        """
        settled: set[TopicIdPartition] = set()
        seen = self._images.image.brokers
        while True:
            image = self._images.image
            if image.brokers != seen:
                settled, seen = set(), image.brokers
            operations = broker_manager.leadership_changes(
                image,
                self._tenure,
                broker_manager.liveness(image),
                unclean=self._unclean_allowed,
                settled=settled,
                offline=self.offline(image),
                only=only,
            )
            if not operations:
                return image
            log.info("leadership of %d partitions is decided anew", len(operations))
            results = await self._writer.commit(operations)
            settled.update(_changed(operations, results))

    def _unclean_allowed(self, topic: str) -> bool:
        if _now_ms() < self._accepts_losses_from_ms:
            return False
        return self._config.of_topic(topic, TOPIC_UNCLEAN_LEADER_ELECTION)

    async def _move_leaders(
        self, request: control_pb2.ControlledShutdownRequest
    ) -> control_pb2.ControlledShutdownResponse:
        code = broker_manager.checked_sender(self._images.image, request)
        if code != errors_pb2.NONE:
            return control_pb2.ControlledShutdownResponse(error_code=code)
        leaving = BrokerId(request.broker_id)
        self._leaving[leaving] = BrokerEpoch(request.broker_epoch)
        for _ in range(SHUTDOWN_ROUNDS_MAX):
            image = self._images.image
            operations = broker_manager.shutdown_changes(
                image, self._tenure, leaving, self.staying(image), offline=self.offline(image)
            )
            if not operations:
                break
            log.info("broker %d stops: %d ISRs go on without it", leaving, len(operations))
            await self._writer.commit(operations)
        image = self._images.image
        remaining = broker_manager.remaining_leaderships(
            image, leaving, self.staying(image), offline=self.offline(image)
        )
        return control_pb2.ControlledShutdownResponse(remaining_partitions=remaining)


async def _answered(
    attempt: Callable[[], Awaitable[Answer]], refusal: Callable[..., Answer], what: str
) -> Answer:
    """Return the result of ``attempt``, or an error code on which the sender retries.

    It is the error code at the end of a tenure or without a quorum. ``what`` says in the log what
    has to wait.
    """
    try:
        return await attempt()
    except TenureEnded:
        return refusal(error_code=errors_pb2.NOT_CONTROLLER)
    except QuorumError as error:
        log.warning("%s: %s", what, error)
        return refusal(error_code=errors_pb2.REQUEST_TIMED_OUT)


def _changed(
    operations: Sequence[Operation], results: Sequence[OperationResult]
) -> Iterator[TopicIdPartition]:
    """Yield the partitions of the operations that were applied."""
    for operation, result in zip(operations, results, strict=True):
        if result.ok:
            yield broker_manager.changed_partition(operation)


def may_lead_now(image: Image, configs: Set[EntityKey]) -> bool:
    """Return whether changed configurations may give a partition a leader.

    The configurations allow unclean elections, which only matter for partitions without a leader.
    Examining all partitions takes time in proportion to their number.
    """
    topics = topics_of(configs)
    if topics is None:
        return True
    found = (image.topics.get(name) for name in topics)
    return any(one.offline for topic in found if topic is not None for one in topic.partitions)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
