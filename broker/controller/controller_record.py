"""The /controller record of the metadata log: claimed, handed over and vacated (E3, E5)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from quorate.broker.control.ports import Sessions
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.types import BrokerId, ControllerEpoch
from quorate.metadata_log.handover import hand_over
from quorate.metadata_log.records import (
    ControllerClaim,
    ControllerEpochIs,
    ControllerRemoved,
    Operation,
    OperationResult,
)

log = logging.getLogger(__name__)

HOLD_BACK_MS: Final = 1_000
"""The time for which a broker that resigned or failed lets the others stand first, before it stands
again."""


CUT_OFF_RESIGNATION_INTERVAL_MS: Final = 60_000
"""The least time between two resignations of a broker because it is cut off, unless it has reached
all the others in between. If all are cut off from each other, the office would go round without an
end."""


class ControllerRecord:
    """Writes /controller on behalf of one broker. ``clock_ms`` is the wall clock."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        quorum: Sessions,
        images: MetadataFollower,
        clock_ms: Callable[[], int],
        hold_back_ms: int = HOLD_BACK_MS,
    ) -> None:
        self._broker_id = broker_id
        self._quorum = quorum
        self._images = images
        self._clock_ms = clock_ms
        self._hold_back_ms = hold_back_ms
        self._held_back_until_s = 0.0
        self._stays_until_s = 0.0

    def hold_back(self) -> None:
        """Let the other brokers stand first, for a while."""
        self._held_back_until_s = asyncio.get_running_loop().time() + self._hold_back_ms / 1000

    @property
    def held_back_s(self) -> float:
        """Return the seconds for which this broker still lets the others stand first, 0 or less if
        none."""
        return self._held_back_until_s - asyncio.get_running_loop().time()

    async def claim(self) -> None:
        """Claim the vacant /controller with the next controller epoch."""
        claim = ControllerClaim(
            broker_id=self._broker_id,
            session_id=self._quorum.session_id,
            timestamp_ms=self._clock_ms(),
            controller_epoch=ControllerEpoch(self._images.image.controller_epoch + 1),
        )
        result = await self._transacted(Operation(records=(claim,)))
        if not result.ok:
            log.info("not elected: %s", result.detail)

    async def release_controller(self, epoch: ControllerEpoch) -> None:
        """Remove this broker from /controller, unless a newer tenure has begun."""
        removed = ControllerRemoved(broker_id=self._broker_id)
        held = ControllerEpochIs(controller_epoch=epoch)
        await self._transacted(Operation(records=(removed,), conditions=(held,)))

    async def resign(self, epoch: ControllerEpoch) -> None:
        """Vacate /controller, and let the other brokers stand first (E5)."""
        self.hold_back()
        await self.release_controller(epoch)

    async def resign_as_cut_off(self, epoch: ControllerEpoch) -> bool:
        """Resign because the other brokers do not reach this one. Return whether it did.

        It does so once in a while only, or once for each cut.
        """
        if self.must_stay:
            return False
        now_s = asyncio.get_running_loop().time()
        self._stays_until_s = now_s + CUT_OFF_RESIGNATION_INTERVAL_MS / 1000
        await self.resign(epoch)
        return True

    @property
    def must_stay(self) -> bool:
        """Return whether this broker may not resign as cut off, because it did a short while
        ago."""
        return asyncio.get_running_loop().time() < self._stays_until_s

    def reached_all(self) -> None:
        """Note that this broker is the controller and reaches all the others: what cuts it off
        after this is another cut."""
        self._stays_until_s = 0.0

    async def hand_over(self, to: BrokerId) -> OperationResult:
        """Write another broker into /controller: it is the controller at once (E5).

        Raises:
            IneligibleController: that broker cannot be the controller.
        """
        return await self._transacted(hand_over(self._images.image, to, self._clock_ms()))

    async def _transacted(self, operation: Operation) -> OperationResult:
        """Write ``operation``; return its result once it is in the image."""
        result = await self._quorum.transact([operation])
        await self._images.wait_for(result.offset)
        return result.results[0]
