"""Moves leadership away from brokers that the others do not reach, or gives up the office if that
is the controller itself.

The quorum still hears such a broker, so its session does not end, and without this its partitions
would stand still. The pure decisions are in ``managers.reachability``.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from quorate.broker.config.dynamic_config import LiveConfiguration
from quorate.broker.config.topic_keys import TOPIC_MIN_INSYNC_REPLICAS
from quorate.broker.controller.broker_probes import BrokerProbes
from quorate.broker.controller.controller_record import ControllerRecord
from quorate.broker.controller.link_reports import SETTLE_ANEW_MS, LinkReports
from quorate.broker.controller.managers import broker_manager, reachability
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.partition_change import Brokers
from quorate.broker.controller.tenure import EventPriority, EventQueue, TenureEnded, Writer
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.types import BrokerId
from quorate.metadata_log.image import Image
from quorate.quorum.quorum_errors import QuorumError
from quorate_proto.v1 import control_pb2, errors_pb2

log = logging.getLogger(__name__)

CHECK_INTERVAL_MS: Final = 250
ROUNDS_MAX: Final = 5
"""The attempts of one check to move leaderships that compete with ISR changes."""


class LinkChanges:
    """Acts on reports of broken links during one controller's tenure.

    ``staying`` returns the brokers that leadership may move to. ``record`` gives up the office,
    and knows whether this broker gave it up for the same reason a short while ago.
    """

    def __init__(
        self,
        *,
        tenure: ControllerTenure,
        config: LiveConfiguration,
        images: MetadataFollower,
        writer: Writer,
        events: EventQueue,
        reports: LinkReports,
        probes: BrokerProbes,
        staying: Callable[[Image], Brokers],
        record: ControllerRecord,
    ) -> None:
        self._tenure = tenure
        self._config = config
        self._images = images
        self._writer = writer
        self._events = events
        self._reports = reports
        self._probes = probes
        self._staying = staying
        self._record = record
        self._began_ms = _now_ms()
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the tenure. A controller that must not resign finds out when it reaches all."""
        if self._record.must_stay:
            self._watch()

    def close(self) -> None:
        self._probes.close()
        if self._watching is not None:
            self._watching.cancel()

    def alerts(self) -> list[str]:
        """Return the links that are broken."""
        return self._reports.alerts(self._images.image, _now_ms())

    async def report_links(
        self, request: control_pb2.ReportLinksRequest
    ) -> control_pb2.ReportLinksResponse:
        """Take a report. Whatever follows from it is decided a little later, with other reports."""
        broker = self._images.image.brokers.get(BrokerId(request.broker_id))
        if broker is None or broker.epoch != request.broker_epoch:
            return control_pb2.ReportLinksResponse(error_code=errors_pb2.STALE_BROKER_EPOCH)
        self._reports.record(request, _now_ms())
        self._probes.reached.answer(broker, _now_ms())
        if request.silent:
            self._watch()
        return control_pb2.ReportLinksResponse()

    def _watch(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch_links(), name="link-changes")

    async def _watch_links(self) -> None:
        """Look at the links again and again, as long as a report of a broken one counts, or this
        controller must not resign."""
        was_broken = False
        while (is_broken := self._are_broken()) or self._record.must_stay:
            if is_broken and not was_broken:
                self._probes.begin()
            was_broken = is_broken
            self._probes.ask(self._images.image, _now_ms())
            await asyncio.sleep(CHECK_INTERVAL_MS / 1000)
            if not is_broken:
                self._look_whether_all_are_reached()
                continue
            try:
                await self._events.run(EventPriority.BROKERS, self._check)
            except TenureEnded:
                return
            except QuorumError as error:
                log.warning("cut links wait for the quorum: %s", error)

    def _are_broken(self) -> bool:
        return bool(self._reports.broken(self._images.image, _now_ms()))

    def _look_whether_all_are_reached(self) -> None:
        """Let this broker resign again if it reaches all the others, and none of them reports a
        broken link: it has had the time to."""
        image, now_ms = self._images.image, _now_ms()
        is_told = now_ms - self._began_ms >= SETTLE_ANEW_MS
        are_reached = self._probes.reached.are_all(image, self._tenure.controller_id, now_ms)
        if is_told and are_reached and not self._are_broken():
            self._record.reached_all()

    async def _check(self) -> None:
        image, now_ms = self._images.image, _now_ms()
        own = self._tenure.controller_id
        self._record_unreached(image, now_ms)
        if not self._reports.are_settled(image, now_ms):
            return
        cut = self._reports.cut_off(image, own, now_ms)
        undecided = self._probes.reached.undecided(image, own, now_ms)
        perhaps = frozenset(frozenset((own, one)) for one in undecided)
        if cut != self._reports.cut_off(image, own, now_ms, perhaps):
            return  # It depends on answers that are still to come.
        cut &= self._reports.with_broken_links_now(image, now_ms)
        if own in cut:
            if await self._record.resign_as_cut_off(self._tenure.controller_epoch):
                log.warning("the other brokers do not reach this controller: it resigns")
        elif cut:
            await self._move_leaderships(cut, now_ms)

    def _record_unreached(self, image: Image, now_ms: int) -> None:
        own = image.brokers.get(self._tenure.controller_id)
        if own is not None:
            for one in self._probes.reached.unreached(image, now_ms):
                self._reports.record_unreached(own.broker_id, own.epoch, one, now_ms)

    async def _move_leaderships(self, cut: Brokers, now_ms: int) -> None:
        for _ in range(ROUNDS_MAX):
            image = self._images.image
            operations = reachability.cut_off_changes(
                image,
                self._tenure,
                cut,
                self._staying(image) & broker_manager.liveness(image).steady,
                self._reports.broken(image, now_ms),
                lambda topic: self._config.of_topic(topic, TOPIC_MIN_INSYNC_REPLICAS),
            )
            if not operations:
                return
            log.warning(
                "brokers %s are cut off from the others: %d leaderships move",
                sorted(cut),
                len(operations),
            )
            await self._writer.commit(operations)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
