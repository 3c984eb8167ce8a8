"""Whether this broker serves: what ``/readyz`` and the gRPC health service answer.

A broker is ready while it is registered under the epoch that it knows, the controller has admitted
it, and its image has all metadata that the quorum has committed. A broker that cannot reach the
quorum stays ready as long as it holds a registration: it goes on leading (rule 6), and if all
brokers became unready together, a load balancer would cut off a cluster that still serves.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.control.ports import QuorumView
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.invariants import BrokenInvariant
from quorate.metadata_log.image import Image
from quorate.quorum.quorum_errors import MetadataUnreadable, QuorumError

QUORUM_TIMEOUT_S: Final = 1.0
CATCH_UP_TIMEOUT_S: Final = 1.0
KEPT_MS: Final = 500
"""A result counts for this long, so that many probes cost the quorum no more than a few."""

STARTING: Final = "the broker starts"
STOPPING: Final = "the broker stops"


class Readiness:
    """The readiness of one broker process. The stages of its start and stop say where it is."""

    def __init__(
        self,
        identity: BrokerIdentity,
        quorum: QuorumView,
        images: MetadataFollower,
        now_ms: Callable[[], int],
    ) -> None:
        self._identity = identity
        self._quorum = quorum
        self._images = images
        self._now_ms = now_ms
        self._phase = STARTING
        self._checking = asyncio.Lock()
        self._result = ""
        self._result_until_ms = 0

    def begin(self, phase: str) -> None:
        """Say what the broker does now, instead of serving: ``STOPPING``, or a step of its start.
        An empty phase means that it is up."""
        self._phase = phase

    async def why_unready(self) -> str:
        """Return why this broker does not serve now; empty if it does."""
        if self._phase:
            return self._phase
        async with self._checking:
            if self._now_ms() >= self._result_until_ms:
                self._result = await self._why_not_in_sync()
                self._result_until_ms = self._now_ms() + KEPT_MS
            return self._phase or self._result

    async def _why_not_in_sync(self) -> str:
        try:
            why = await self._why_behind()
        except (BrokenInvariant, MetadataUnreadable) as failure:
            return f"the metadata cannot be followed any more: {failure}"
        return why or why_not_a_member(self._images.image, self._identity)

    async def _why_behind(self) -> str:
        """Return why the image is too old. A quorum that does not answer is no reason."""
        images = self._images
        try:
            async with asyncio.timeout(QUORUM_TIMEOUT_S):
                committed = await self._quorum.read_offset()
        except (QuorumError, TimeoutError):
            committed = images.applied_offset
        try:
            async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
                await images.wait_for(committed)
        except TimeoutError:
            return f"its metadata is at offset {images.applied_offset}, the quorum's at {committed}"
        return ""


def why_not_a_member(image: Image, identity: BrokerIdentity) -> str:
    """Return why the cluster does not count this process as a broker; empty if it does."""
    if identity.epoch is None:
        return "the broker lost its session with the quorum, and registers again"
    registered = image.brokers.get(identity.broker_id)
    if registered is None or registered.epoch != identity.epoch:
        return f"the metadata has no registration of this broker with epoch {identity.epoch}"
    if not registered.admitted:
        return "the controller has not admitted the broker yet"
    return ""
