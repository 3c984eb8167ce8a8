"""Reports brokers that are not heard over replication streams to the controller, for as long as
they are not.

The controller moves leadership away from a broker that the others do not hear
(``controller.link_changes``). It forgets a report after a while, and its successor does not have
it, so the report is repeated. The controller may be the broker that cannot be reached. Then it
resigns, and the next one must hear the report at once.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.common.errors import error_name
from quorate.broker.control.controller_client import ControllerClient
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.clock import Clock
from quorate.common.types import BrokerEpoch, BrokerId
from quorate_proto.v1 import control_pb2, errors_pb2

log = logging.getLogger(__name__)

CHECKS_PER_LIMIT: Final = 20
"""The checks in the time for which a broker may be silent."""

WAIT_STEP_MS: Final = 100
REPEAT_INTERVAL_MS: Final = 1_000
RETRY_INTERVAL_MS: Final = 400
TIMEOUT_MS: Final = 2_000


class LinkSource(Protocol):
    """Knows which brokers are not heard. ``replication.manager`` implements it.

    The room of the replicas lies above this one, so this is a protocol.
    """

    def silent_peers(self) -> Mapping[BrokerId, int]:
        """Return the brokers that are silent for too long, and when they began to be."""

    def silence_max_ms(self) -> int:
        """Return the time for which a broker may be silent."""


class LiveSince:
    """Remembers since when the image has the present registration of each broker, without side
    effects.

    A broker that has just registered has the whole time to be heard: what an earlier incarnation
    left unanswered says nothing of it.
    """

    def __init__(self) -> None:
        self._since: dict[BrokerId, tuple[BrokerEpoch, int]] = {}

    def observe(self, epochs: Mapping[BrokerId, BrokerEpoch], now_ms: int) -> None:
        """Note the registrations of the image."""
        self._since = {
            broker_id: self._since[broker_id]
            if broker_id in self._since and self._since[broker_id][0] == epoch
            else (epoch, now_ms)
            for broker_id, epoch in epochs.items()
        }

    def silent(
        self, silent: Mapping[BrokerId, int], now_ms: int, silence_max_ms: int
    ) -> list[control_pb2.SilentPeer]:
        """Return those of ``silent`` that were registered all the time."""
        found = []
        for broker_id, since_ms in silent.items():
            epoch, live_ms = self._since.get(broker_id, (BrokerEpoch(-1), now_ms))
            silent_ms = now_ms - max(since_ms, live_ms)
            if silent_ms > silence_max_ms:
                found.append(
                    control_pb2.SilentPeer(
                        broker_id=broker_id,
                        broker_epoch=epoch,
                        broken_ms=silent_ms - silence_max_ms,
                    )
                )
        return found


class LinkReporter:
    """Reports silent brokers whenever there are others than before, and repeats the report."""

    def __init__(
        self,
        identity: BrokerIdentity,
        *,
        images: MetadataFollower,
        controller: ControllerClient,
        links: LinkSource,
        clock: Clock,
    ) -> None:
        self._identity = identity
        self._images = images
        self._controller = controller
        self._links = links
        self._clock = clock
        self._live = LiveSince()
        self._told: frozenset[int] = frozenset()
        """The brokers that the last report named which a controller took."""
        self._asked: tuple[int, frozenset[int]] = (-1, frozenset())
        """The epoch of the controller that was asked last to take a report, and whom it named."""
        self._repeat_ms = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="link-reports")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._links.silence_max_ms() / CHECKS_PER_LIMIT / 1000)
            try:
                await self._check()
            except Exception:
                log.exception("a report of links failed; the next one follows")

    async def _check(self) -> None:
        """Report now if something is new, or if it is time to repeat it."""
        image, now_ms = self._images.image, self._clock.now_ms()
        self._live.observe({b: one.epoch for b, one in image.brokers.items()}, now_ms)
        silent = self._live.silent(self._links.silent_peers(), now_ms, self._links.silence_max_ms())
        names = frozenset(peer.broker_id for peer in silent)
        is_news = (image.controller_epoch, names) != self._asked
        epoch = self._identity.epoch
        if epoch is None or not (names or self._told):
            return
        if not is_news and now_ms < self._repeat_ms:
            return
        self._asked = (image.controller_epoch, names)
        request = control_pb2.ReportLinksRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=epoch,
            controller_epoch=image.controller_epoch,
            silent=silent,
        )
        was_told = await self._report(request)
        self._repeat_ms = now_ms + (REPEAT_INTERVAL_MS if was_told else RETRY_INTERVAL_MS)
        if was_told and names != self._told:
            heard = f"nothing is heard of brokers {sorted(names)}" if names else "all are heard"
            log.info("the controller knows that %s", heard)
        if was_told:
            self._told = names

    async def _report(self, request: control_pb2.ReportLinksRequest) -> bool:
        """Report, and return whether the controller took it. A new controller ends the wait."""
        asking = asyncio.create_task(self._controller.report_links(request, TIMEOUT_MS / 1000))
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=WAIT_STEP_MS / 1000)
                if self._images.image.controller_epoch != request.controller_epoch:
                    break
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        answer = None if asking.cancelled() else asking.result()
        if answer is None:
            return False
        if answer.error_code != errors_pb2.NONE:
            log.info("report of links: %s", error_name(answer.error_code))
            return False
        return True
