"""Whether the controller reaches the other brokers, which it asks while links are reported broken.

Reports come from replication streams, and not every two brokers have one between them. So a
controller that is itself cut off may hear of one broken link alone, its own to the only leader, and
take that leader for the broker that is cut off. An answer to a probe shows that a link works,
whatever the answer is: an earlier version does not know the request and says so.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from quorate.broker.controller.channels.control_transport import NoControlResponse, ProbeTransport
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.tenure import TenureGuard
from quorate.broker.rpc.peer_channels import Peer
from quorate.common.types import BrokerEpoch, BrokerId, ControllerEpoch
from quorate.metadata_log.image import Broker, Image

log = logging.getLogger(__name__)

PROBE_TIMEOUT_MS: Final = 2_000
"""A broker that has not answered for so long is not reached. A link that is slow by half a second
each way answers in time."""

PROBE_INTERVAL_MS: Final = 500
ANSWER_HOLDS_MS: Final = PROBE_INTERVAL_MS + PROBE_TIMEOUT_MS

PAUSE_MS: Final = PROBE_TIMEOUT_MS // 2
"""More than this between two looks shows that this process itself stood still. What it has not
heard meanwhile proves nothing about others."""


class Unreached(NamedTuple):
    """A broker that does not answer."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    since_ms: int
    """The time of the first probe that it has not answered."""


class ReachedBrokers:
    """Remembers who was asked, and who answered. It has no side effects; times are those of a
    monotonic clock."""

    def __init__(self) -> None:
        self._asked: dict[tuple[BrokerId, BrokerEpoch], int] = {}
        """The time of the first probe that is not answered."""
        self._answered: dict[tuple[BrokerId, BrokerEpoch], int] = {}
        self._looked_ms: int | None = None

    def look(self, now_ms: int) -> None:
        """Note that the process runs. After a pause every broker has the whole time again."""
        if self._looked_ms is not None and now_ms - self._looked_ms > PAUSE_MS:
            self._asked = dict.fromkeys(self._asked, now_ms)
        self._looked_ms = now_ms

    def is_due(self, broker: Broker, now_ms: int) -> bool:
        """Return whether it is time to ask a broker again."""
        return now_ms - self._answered.get(_key(broker), -ANSWER_HOLDS_MS) >= PROBE_INTERVAL_MS

    def ask(self, broker: Broker, now_ms: int) -> None:
        """Note that a broker owes an answer."""
        self._asked.setdefault(_key(broker), now_ms)

    def answer(self, broker: Broker, now_ms: int) -> None:
        """Note an answer of a broker."""
        self._asked.pop(_key(broker), None)
        self._answered[_key(broker)] = now_ms

    def unreached(self, image: Image, now_ms: int) -> list[Unreached]:
        """Return the live brokers that have not answered for too long."""
        return [
            Unreached(broker.broker_id, broker.epoch, self._asked[_key(broker)])
            for broker in image.brokers.values()
            if now_ms - self._asked.get(_key(broker), now_ms) >= PROBE_TIMEOUT_MS
        ]

    def undecided(self, image: Image, own: BrokerId, now_ms: int) -> Iterator[BrokerId]:
        """Yield the live brokers of which it is not known yet whether they are reached."""
        unreached = {one.broker_id for one in self.unreached(image, now_ms)}
        for broker in image.brokers.values():
            if broker.broker_id == own or broker.broker_id in unreached:
                continue
            answered_ms = self._answered.get(_key(broker))
            if answered_ms is None or now_ms - answered_ms > ANSWER_HOLDS_MS:
                yield broker.broker_id

    def are_all(self, image: Image, own: BrokerId, now_ms: int) -> bool:
        """Return whether every other live broker has answered a short while ago."""
        return not self.unreached(image, now_ms) and not any(self.undecided(image, own, now_ms))


class BrokerProbes:
    """Asks the other brokers during one controller's tenure."""

    def __init__(
        self, tenure: ControllerTenure, transport: ProbeTransport, guard: TenureGuard
    ) -> None:
        self._tenure = tenure
        self._transport = transport
        self._guard = guard
        self._asking: dict[BrokerId, asyncio.Task[None]] = {}
        self.reached = ReachedBrokers()

    def begin(self) -> None:
        """Begin anew: what was found in earlier trouble says nothing of this one."""
        self.close()
        self.reached = ReachedBrokers()

    def close(self) -> None:
        """Stop waiting for answers."""
        for task in self._asking.values():
            task.cancel()
        self._asking.clear()

    def ask(self, image: Image, now_ms: int) -> None:
        """Ask every live broker whose turn it is."""
        self.reached.look(now_ms)
        for broker in image.brokers.values():
            asking = self._asking.get(broker.broker_id)
            if broker.broker_id == self._tenure.controller_id or not (
                (asking is None or asking.done()) and self.reached.is_due(broker, now_ms)
            ):
                continue
            self.reached.ask(broker, now_ms)
            name = f"probe-of-{broker.broker_id}"
            self._asking[broker.broker_id] = asyncio.create_task(self._ask(broker), name=name)

    async def all_answer(self, image: Image) -> bool:
        """Ask every other live broker once, whether or not links are reported broken, and return
        whether all of them answer."""
        own = self._tenure.controller_id
        others = [one for one in image.brokers.values() if one.broker_id != own]
        return all(await asyncio.gather(*map(self._is_reached, others)))

    async def _ask(self, broker: Broker) -> None:
        if await self._is_reached(broker):
            self.reached.answer(broker, int(asyncio.get_running_loop().time() * 1000))

    async def _is_reached(self, broker: Broker) -> bool:
        try:
            epoch = await self._transport.probe(Peer.of(broker), self._tenure, PROBE_TIMEOUT_MS)
        except NoControlResponse as error:
            log.info("broker %d does not answer a probe: %s", broker.broker_id, error)
            return False
        self._guard.observe_controller_epoch(ControllerEpoch(epoch))
        return True


def _key(broker: Broker) -> tuple[BrokerId, BrokerEpoch]:
    return broker.broker_id, broker.epoch
