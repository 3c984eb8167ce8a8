"""Brokers that come, go and stop: where leadership moves to for that (scenario 11)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from typing import Final, TypeVar

from broker.control.ports import Images
from broker.controller.admin_requests import PUBLISH_TIMEOUT_MS
from broker.controller.event_queue import EventQueue, LeftOffice, Priority
from broker.controller.managers import brokers as broker_manager
from broker.controller.managers.office import Office
from broker.controller.publisher import Publisher
from broker.controller.reported_troubles import ReportedTroubles
from broker.controller.writer import Writer
from broker.dynamic_config import LiveConfiguration, topics_of
from broker.topic_config import TOPIC_UNCLEAN_LEADER_ELECTION
from metadata_log.draft import Changes
from metadata_log.image import EntityKey, Image
from metadata_log.records import Operation, OperationResult
from metadata_log.types import BrokerEpoch, BrokerId, TopicIdPartition
from quorate_proto.v1 import control_pb2, errors_pb2
from quorum.errors import QuorumError

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

RETRY_INTERVAL_MS: Final = 100
"""Between two attempts to write while the quorum is away."""

SHUTDOWN_ROUNDS_MAX: Final = 5
"""Attempts of one request to move leaderships that ISR changes get in the way of."""


class BrokerChanges:
    """The brokers of one controller's tenure."""

    def __init__(
        self,
        *,
        office: Office,
        config: LiveConfiguration,
        images: Images,
        writer: Writer,
        events: EventQueue,
        publisher: Publisher,
    ) -> None:
        self._office = office
        self._config = config
        self._images = images
        self._writer = writer
        self._events = events
        self._publisher = publisher
        self._leaving: dict[BrokerId, BrokerEpoch] = {}
        self._reported = ReportedTroubles()
        self._due = False

    def on_image(self, image: Image, changes: Changes) -> None:
        if changes.brokers or (changes.configs and may_lead_now(image, changes.configs)):
            self.look()

    def look(self) -> None:
        """Brokers came or went, or may lead now where they might not: look, ahead of all else."""
        if not self._due:
            self._due = True
            self._events.put(Priority.BROKERS, self._look)

    def staying(self, image: Image) -> frozenset[BrokerId]:
        """Brokers that leaderships may move to: not those that want to stop, or are full."""
        unfit = {
            broker_id
            for broker_id, epoch in (*self._leaving.items(), *self._reported.full(_now_ms()))
            if broker_id in image.brokers and image.brokers[broker_id].epoch == epoch
        }
        return broker_manager.liveness(image).steady - unfit

    def alerts(self) -> list[str]:
        """Full disks and damaged logs, as brokers report them."""
        return self._reported.alerts(self._images.image, _now_ms())

    async def controlled_shutdown(
        self, request: control_pb2.ControlledShutdownRequest
    ) -> control_pb2.ControlledShutdownResponse:
        """Move the leaderships of a broker that wants to stop (scenario 11, B3)."""

        async def move() -> control_pb2.ControlledShutdownResponse:
            answer = await self._events.run(Priority.BROKERS, lambda: self._move_leaders(request))
            self._publisher.publish()
            await self._publisher.drained(PUBLISH_TIMEOUT_MS)
            return answer

        what = f"broker {request.broker_id} has to wait with its stop"
        return await _answered(move, control_pb2.ControlledShutdownResponse, what)

    async def report_replicas(
        self, request: control_pb2.ReportReplicasRequest
    ) -> control_pb2.ReportReplicasResponse:
        """Take replicas out of ISRs that rely on what they cannot do: full disks, damaged logs."""

        async def take_out() -> control_pb2.ReportReplicasResponse:
            answer = await self._events.run(Priority.BROKERS, lambda: self._take_out(request))
            self._publisher.publish()
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
        self._reported.record(request, _now_ms())
        settled: set[TopicIdPartition] = set()
        for _ in range(SHUTDOWN_ROUNDS_MAX):
            image = self._images.image
            operations = broker_manager.report_changes(
                image, self._office, request, self.staying(image), settled=settled
            )
            if not operations:
                break
            what = "is full" if request.is_full else "has damaged logs"
            log.warning("broker %d %s: %d ISRs go on without it", sender, what, len(operations))
            results = await self._writer.commit(operations)
            settled.update(_changed(operations, results))
        remaining = broker_manager.reported_replicas(self._images.image, request)
        return control_pb2.ReportReplicasResponse(remaining_partitions=len(remaining))

    async def _look(self) -> None:
        self._due = False
        while True:
            try:
                await self._settle()
            except LeftOffice:
                return
            except QuorumError as error:
                log.warning("broker changes wait for the quorum: %s", error)
                await asyncio.sleep(RETRY_INTERVAL_MS / 1000)
            else:
                return

    async def _settle(self) -> None:
        """Decide until the image needs no more change, then admit who has arrived.

        Each round decides from a fresh image, so a change that lost against a leader's own ISR
        change is simply decided again.
        """
        settled: set[TopicIdPartition] = set()
        seen = self._images.image.brokers
        while True:
            image = self._images.image
            if image.brokers != seen:
                settled, seen = set(), image.brokers
            operations = broker_manager.leadership_changes(
                image,
                self._office,
                broker_manager.liveness(image),
                unclean=self._unclean_allowed,
                settled=settled,
            )
            if not operations:
                break
            log.info("leadership of %d partitions is decided anew", len(operations))
            results = await self._writer.commit(operations)
            settled.update(_changed(operations, results))
        await self._writer.commit(broker_manager.admissions(image, self._office))

    def _unclean_allowed(self, topic: str) -> bool:
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
                image, self._office, leaving, self.staying(image)
            )
            if not operations:
                break
            log.info("broker %d stops: %d leaderships move", leaving, len(operations))
            await self._writer.commit(operations)
        image = self._images.image
        staying = self.staying(image)
        remaining = broker_manager.remaining_leaderships(image, leaving, staying)
        return control_pb2.ControlledShutdownResponse(remaining_partitions=remaining)


async def _answered(
    attempt: Callable[[], Awaitable[Answer]], refusal: Callable[..., Answer], what: str
) -> Answer:
    """What came of ``attempt``; in the end of a tenure or without a quorum, a code to retry on.

    ``what`` waits, as the log is told.
    """
    try:
        return await attempt()
    except LeftOffice:
        return refusal(error_code=errors_pb2.NOT_CONTROLLER)
    except QuorumError as error:
        log.warning("%s: %s", what, error)
        return refusal(error_code=errors_pb2.REQUEST_TIMED_OUT)


def _changed(
    operations: Sequence[Operation], results: Sequence[OperationResult]
) -> Iterator[TopicIdPartition]:
    """The partitions of the operations that were carried out."""
    for operation, result in zip(operations, results, strict=True):
        if result.ok:
            yield broker_manager.changed_partition(operation)


def may_lead_now(image: Image, configs: Set[EntityKey]) -> bool:
    """Whether changed configurations may give a partition a leader: to look costs what exists.

    They decide upon unclean elections, and those are for partitions without a leader.
    """
    topics = topics_of(configs)
    if topics is None:
        return True
    found = (image.topics.get(name) for name in topics)
    return any(one.offline for topic in found if topic is not None for one in topic.partitions)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
