"""Stands for controller, serves, and steps down (E1 to E5).

/controller is held by whoever the metadata log says holds it. A broker that finds it empty claims
it with the next controller epoch; the first claim applied wins, and all others see it in the same
place. A broker that finds *itself* named there takes office, whether it claimed or was handed the
office; one that no longer finds itself there has lost it, at once and before it stands again.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from broker.control.ports import Carrier, Images, Sessions
from broker.controller.controller import Controller
from broker.controller.door import AuditTrail, no_trail
from broker.controller.managers.office import Office
from broker.controller.managers.placement import PlacementStart
from broker.controller.managers.topics import NewIds
from broker.controller.transport import ControlTransport
from broker.dynamic_config import LiveConfiguration
from broker.security.token_keys import Keys
from metadata_log.draft import Changes
from metadata_log.handover import hand_over
from metadata_log.image import Image
from metadata_log.records import (
    ControllerClaim,
    ControllerEpochIs,
    ControllerRemoved,
    Operation,
    OperationResult,
)
from metadata_log.types import ID_BYTES, BrokerId, ControllerEpoch, SessionId, TopicId
from quorum.errors import QuorumError

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 100
"""Between two attempts to reach the quorum."""

HOLD_BACK_MS: Final = 1_000
"""Who resigned or failed lets the others go first for this long, then stands again."""


class Step(Enum):
    """What a broker does about the office."""

    WAIT = "another broker holds it, or this one may not stand"
    CLAIM = "it is vacant"
    SERVE = "it is this broker's"
    LEAVE = "it is this broker's no longer"
    VACATE = "it bears this broker's name, but the tenure is over"


class Candidate(NamedTuple):
    """Who stands: a claim lives as long as the session (rule 9)."""

    broker_id: BrokerId
    session_id: SessionId


def next_step(
    image: Image,
    me: Candidate,
    *,
    serving: ControllerEpoch | None,
    over: ControllerEpoch,
) -> Step:
    """What ``me`` does now.

    ``serving``: the epoch it is in office with, None if it is not. ``over``: the newest epoch in
    which it was in office and which it must not resume.
    """
    holder = image.controller
    is_mine = holder is not None and (holder.broker_id, holder.session_id) == me
    if serving is not None:
        return Step.SERVE if is_mine and image.controller_epoch == serving else Step.LEAVE
    if is_mine:
        return Step.SERVE if image.controller_epoch > over else Step.VACATE
    if holder is not None and holder.broker_id >= 0:
        return Step.WAIT
    registered = image.brokers.get(me.broker_id)
    if registered is None or registered.registration.session_id != me.session_id:
        return Step.WAIT
    return Step.CLAIM


def draw_ids(random_bytes: Callable[[int], bytes]) -> NewIds:
    """Ids and placement of a new topic."""
    first_broker, stride = (int.from_bytes(random_bytes(2)) for _ in range(2))
    return NewIds(TopicId(random_bytes(ID_BYTES)), PlacementStart(first_broker, stride))


class ControllerElector:
    """Runs next to every broker; ``active`` is the controller while this broker is in office."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        config: LiveConfiguration,
        quorum: Sessions,
        images: Images,
        transport: ControlTransport,
        draw: Callable[[], NewIds],
        clock_ms: Callable[[], int],
        token_keys: Callable[[], Keys] = tuple,
        hold_back_ms: int = HOLD_BACK_MS,
        trail: AuditTrail = no_trail,
        bridge: Carrier | None = None,
    ) -> None:
        self.active: Controller | None = None
        self._broker_id = broker_id
        self._config = config
        self._quorum = quorum
        self._images = images
        self._transport = transport
        self._draw = draw
        self._clock_ms = clock_ms
        self._token_keys = token_keys
        self._hold_back_ms = hold_back_ms
        self._trail = trail
        self._bridge = bridge
        self._held_back_until_s = 0.0
        self._over = ControllerEpoch(0)
        self._leaving: list[Controller] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Stand, from now on; the broker should be registered."""
        self._images.subscribe(self._on_image)
        self._quorum.on_session_lost(self._on_session_lost)
        self._wake.set()
        self._task = asyncio.create_task(self._run(), name="controller-elector")

    async def close(self) -> None:
        """Leave office and stand no more. /controller itself goes with the session."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._leave()
        await self._close_the_past()

    # -- what may end a tenure -------------------------------------------------------------------

    def _on_image(self, image: Image, changes: Changes) -> None:
        if self._task is None:
            return
        if self.active is not None:
            if self._next_step() is Step.LEAVE:
                self._leave()
            else:
                self.active.on_image(image, changes)
        if changes.controller or changes.brokers:
            self._wake.set()

    def _on_session_lost(self) -> None:
        self._leave()
        self._wake.set()

    def _on_deposed(self, epoch: ControllerEpoch) -> None:
        """A broker or the quorum knows of a newer controller (E3)."""
        if self.active is not None and self.active.controller_epoch == epoch:
            log.warning("controller epoch %d of broker %d is over", epoch, self._broker_id)
            self._hold_back()
            self._leave()
            self._wake.set()

    def _leave(self) -> None:
        """Out of office, at once; what belongs to the tenure is closed before the next (E4)."""
        if self.active is not None:
            self._over = self.active.controller_epoch
            self.active.fall_silent()
            self._leaving.append(self.active)
            self.active = None

    async def _resign(self, epoch: ControllerEpoch) -> None:
        """Vacate /controller, and let the others go first (E5)."""
        self._hold_back()
        await self._vacate(epoch)

    def _hold_back(self) -> None:
        self._held_back_until_s = asyncio.get_running_loop().time() + self._hold_back_ms / 1000

    # -- standing --------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._close_the_past()
            try:
                await self._take(self._next_step())
            except QuorumError as error:
                log.info("the quorum does not answer: %s", error)
                await asyncio.sleep(RETRY_INTERVAL_MS / 1000)
                self._wake.set()
            except Exception:  # an elector that ended here would never stand again
                log.exception("could not %s", self._next_step().name.lower())
                await asyncio.sleep(HOLD_BACK_MS / 1000)
                self._wake.set()

    async def _take(self, step: Step) -> None:
        match step:
            case Step.CLAIM:
                await self._claim()
            case Step.SERVE if self.active is None:
                self._serve()
            case Step.VACATE:
                await self._vacate(self._over)
            case _:
                pass

    def _next_step(self) -> Step:
        serving = None if self.active is None else self.active.controller_epoch
        me = Candidate(self._broker_id, self._quorum.session_id)
        return next_step(self._images.image, me, serving=serving, over=self._over)

    async def _claim(self) -> None:
        pause_s = self._held_back_until_s - asyncio.get_running_loop().time()
        if pause_s > 0:
            asyncio.get_running_loop().call_later(pause_s, self._wake.set)
            return
        claim = ControllerClaim(
            broker_id=self._broker_id,
            session_id=self._quorum.session_id,
            timestamp_ms=self._clock_ms(),
            controller_epoch=ControllerEpoch(self._images.image.controller_epoch + 1),
        )
        result = await self._transacted(Operation(records=(claim,)))
        if not result.ok:
            log.info("not elected: %s", result.detail)
        self._wake.set()

    async def _vacate(self, epoch: ControllerEpoch) -> None:
        """Take this broker's name off /controller, unless a newer tenure has begun."""
        removed = ControllerRemoved(broker_id=self._broker_id)
        held = ControllerEpochIs(controller_epoch=epoch)
        await self._transacted(Operation(records=(removed,), conditions=(held,)))

    async def _hand_over(self, to: BrokerId) -> OperationResult:
        """Write another broker into /controller: it takes office at once (E5)."""
        return await self._transacted(hand_over(self._images.image, to, self._clock_ms()))

    async def _transacted(self, operation: Operation) -> OperationResult:
        """Its result, once it is in the image."""
        result = await self._quorum.transact([operation])
        await self._images.wait_for(result.offset)
        return result.results[0]

    def _serve(self) -> None:
        office = Office(self._broker_id, self._images.image.controller_epoch)
        self.active = Controller(
            office,
            config=self._config,
            quorum=self._quorum,
            images=self._images,
            transport=self._transport,
            draw=self._draw,
            clock_ms=self._clock_ms,
            token_keys=self._token_keys,
            resign=self._resign,
            hand_over=self._hand_over,
            deposed=self._on_deposed,
            trail=self._trail,
            bridge=self._bridge,
        )
        self.active.start()

    async def _close_the_past(self) -> None:
        while self._leaving:
            await self._leaving.pop().close()
