"""Elects the controller: stands as a candidate, becomes the active controller, and resigns (E1 to
E5).

The metadata log determines who holds /controller. A broker that finds it vacant claims it with the
next controller epoch. The first claim that is applied wins, and all brokers see the same winner. A
broker that finds *itself* there becomes the active controller, whether it claimed the role or was
handed it. A broker that no longer finds itself there has lost the role at once, before it stands
again.
"""

import asyncio
import logging
from enum import Enum
from typing import Final, NamedTuple

from quorate.broker.control.active_controller import ActiveControllerSlot
from quorate.broker.controller.controller import Controller, ControllerDependencies
from quorate.broker.controller.controller_record import HOLD_BACK_MS, ControllerRecord
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.common.types import BrokerId, ControllerEpoch, SessionId
from quorate.metadata_log.image import Changes, Image
from quorate.quorum.quorum_errors import QuorumError

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 100
"""The pause between two attempts to reach the quorum."""


class ElectionStep(Enum):
    """The next step of a broker in the election of the controller."""

    WAIT = "another broker holds it, or this one may not stand"
    CLAIM = "it is vacant"
    SERVE = "it is this broker's"
    LEAVE = "it is this broker's no longer"
    VACATE = "it bears this broker's name, but the tenure is over"


class ControllerCandidate(NamedTuple):
    """A broker that stands for controller. Its claim lives as long as the session (rule 9)."""

    broker_id: BrokerId
    session_id: SessionId


def next_step(
    image: Image,
    me: ControllerCandidate,
    *,
    serving: ControllerEpoch | None,
    over: ControllerEpoch,
) -> ElectionStep:
    """Return the next step of ``me``.

    ``serving`` is the epoch in which it is the active controller, or None if it is not. ``over`` is
    the newest epoch in which it was the active controller and which it must not resume.
    """
    holder = image.controller
    is_mine = holder is not None and (holder.broker_id, holder.session_id) == me
    if serving is not None:
        serves = is_mine and image.controller_epoch == serving
        return ElectionStep.SERVE if serves else ElectionStep.LEAVE
    if is_mine:
        resumes = image.controller_epoch <= over
        return ElectionStep.VACATE if resumes else ElectionStep.SERVE
    if holder is not None and holder.broker_id >= 0:
        return ElectionStep.WAIT
    registered = image.brokers.get(me.broker_id)
    if registered is None or registered.registration.session_id != me.session_id:
        return ElectionStep.WAIT
    return ElectionStep.CLAIM


class ControllerElector:
    """Runs in every broker. ``active`` is the controller while this broker is the active one, else
    None."""

    def __init__(
        self,
        broker_id: BrokerId,
        dependencies: ControllerDependencies,
        *,
        slot: ActiveControllerSlot,
        hold_back_ms: int = HOLD_BACK_MS,
    ) -> None:
        self.active: Controller | None = None
        self._broker_id = broker_id
        self._slot = slot
        self._dependencies = dependencies
        self._quorum = dependencies.quorum
        self._images = dependencies.images
        self._record = ControllerRecord(
            broker_id,
            quorum=dependencies.quorum,
            images=dependencies.images,
            clock_ms=dependencies.clock_ms,
            hold_back_ms=hold_back_ms,
        )
        self._over = ControllerEpoch(0)
        self._leaving: list[Controller] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Stand for controller from now on. The broker should be registered."""
        self._images.subscribe(self._on_image, "controller", "brokers")
        self._quorum.on_session_lost(self._on_session_lost)
        self._wake.set()
        self._task = asyncio.create_task(self._run(), name="controller-elector")

    async def close(self) -> None:
        """End the tenure and stand no more. /controller itself is vacated with the session."""
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
        if changes.controller and self._next_step() is ElectionStep.LEAVE:
            self._leave()
        self._wake.set()

    def _on_session_lost(self) -> None:
        self._leave()
        self._wake.set()

    def _on_deposed(self, epoch: ControllerEpoch) -> None:
        """End the tenure of ``epoch``, because a broker or the quorum knows a newer controller
        (E3)."""
        if self.active is not None and self.active.controller_epoch == epoch:
            log.warning("controller epoch %d of broker %d is over", epoch, self._broker_id)
            self._record.hold_back()
            self._leave()
            self._wake.set()

    def _leave(self) -> None:
        """End the tenure at once. Its objects are closed before the next tenure begins (E4)."""
        if self.active is not None:
            self._over = self.active.controller_epoch
            self.active.stop_publishing()
            self._leaving.append(self.active)
            self.active = None
            self._slot.empty()

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
            except Exception:  # if this task ended, the broker would never stand again
                log.exception("could not %s", self._next_step().name.lower())
                await asyncio.sleep(HOLD_BACK_MS / 1000)
                self._wake.set()

    async def _take(self, step: ElectionStep) -> None:
        match step:
            case ElectionStep.CLAIM:
                await self._claim()
            case ElectionStep.SERVE if self.active is None:
                self._serve()
            case ElectionStep.VACATE:
                await self._record.release_controller(self._over)
            case _:
                pass

    def _next_step(self) -> ElectionStep:
        serving = None if self.active is None else self.active.controller_epoch
        me = ControllerCandidate(self._broker_id, self._quorum.session_id)
        return next_step(self._images.image, me, serving=serving, over=self._over)

    async def _claim(self) -> None:
        pause_s = self._record.held_back_s
        if pause_s > 0:
            asyncio.get_running_loop().call_later(pause_s, self._wake.set)
            return
        await self._record.claim()
        self._wake.set()

    def _serve(self) -> None:
        self.active = Controller(
            ControllerTenure(self._broker_id, self._images.image.controller_epoch),
            self._dependencies,
            record=self._record,
            on_end=self._on_deposed,
        )
        self._slot.fill(self.active)
        self.active.start()

    async def _close_the_past(self) -> None:
        while self._leaving:
            await self._leaving.pop().close()
