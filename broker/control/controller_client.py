"""Requests of a broker to the active controller, in this process or at another broker."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import grpc.aio

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.common.errors import error_name
from quorate.broker.control.active_controller import ActiveController, ActiveControllerSlot
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate_proto.v1 import control_pb2, control_pb2_grpc, errors_pb2

if TYPE_CHECKING:
    from quorate_proto.v1.control_pb2_grpc import ControllerDutyAsyncStub

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 100
"""The pause between two requests for a controlled shutdown."""

A = TypeVar("A")


class ControllerClient:
    """A broker's client of the service ControllerDuty, which the active controller answers."""

    def __init__(
        self,
        identity: BrokerIdentity,
        *,
        images: MetadataFollower,
        channels: PeerChannels,
        local: ActiveControllerSlot,
    ) -> None:
        self._identity = identity
        self._images = images
        self._channels = channels
        self._local = local
        self._said = ""

    async def report_replicas(
        self, request: control_pb2.ReportReplicasRequest, timeout_s: float
    ) -> control_pb2.ReportReplicasResponse | None:
        """Report replicas that no ISR should rely on; return None if no controller answers."""
        return await self._ask(
            lambda controller: controller.report_replicas(request),
            lambda stub: stub.ReportReplicas(request),
            timeout_s,
        )

    async def report_links(
        self, request: control_pb2.ReportLinksRequest, timeout_s: float
    ) -> control_pb2.ReportLinksResponse | None:
        """Report links that are broken; return None if no controller answers."""
        return await self._ask(
            lambda controller: controller.report_links(request),
            lambda stub: stub.ReportLinks(request),
            timeout_s,
        )

    async def hand_over_leaderships(self, timeout_ms: int) -> None:
        """Have the controller move the leaderships of this broker, which is stopping (scenario 11).

        Repeat until no leadership is left that could move, or ``timeout_ms`` is up. Never raises.
        Return at once if there is no broker to move to. Stopping without this is safe, only slower
        for clients, because the controller then learns of it from the end of the session.
        """
        broker_id = self._identity.broker_id
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        while (left_s := deadline_s - asyncio.get_running_loop().time()) > 0:
            image, epoch = self._images.image, self._identity.epoch
            if epoch is None or set(image.brokers) <= {broker_id}:
                return
            request = control_pb2.ControlledShutdownRequest(
                broker_id=broker_id,
                broker_epoch=epoch,
                controller_epoch=image.controller_epoch,
            )
            answer = await self._controlled_shutdown(request, left_s)
            if answer is not None and answer.error_code == errors_pb2.NONE:
                if answer.remaining_partitions == 0:
                    log.info("broker %d leads nothing any more and stops", broker_id)
                    return
                log.info("broker %d still leads %d", broker_id, answer.remaining_partitions)
            elif answer is not None:
                log.info("controlled shutdown: %s", error_name(answer.error_code))
            await asyncio.sleep(RETRY_INTERVAL_MS / 1000)
        log.warning("broker %d stops without having handed over all it leads", broker_id)

    async def _controlled_shutdown(
        self, request: control_pb2.ControlledShutdownRequest, timeout_s: float
    ) -> control_pb2.ControlledShutdownResponse | None:
        return await self._ask(
            lambda controller: controller.controlled_shutdown(request),
            lambda stub: stub.ControlledShutdown(request, timeout=timeout_s),
            timeout_s,
        )

    async def _ask(
        self,
        here: Callable[[ActiveController], Awaitable[A]],
        there: Callable[["ControllerDutyAsyncStub"], Awaitable[A]],
        timeout_s: float,
    ) -> A | None:
        """Return the controller's answer, or None if no controller answers in time."""
        controller = self._local.active
        image = self._images.image
        holder = image.brokers.get(image.controller_id)
        try:
            if controller is not None:
                return await asyncio.wait_for(here(controller), timeout_s)
            if holder is None or holder.broker_id == self._identity.broker_id:
                return None
            stub = control_pb2_grpc.ControllerDutyStub(self._channels.get(Peer.of(holder)))
            return await asyncio.wait_for(there(stub), timeout_s)
        except TimeoutError:
            return None
        except grpc.aio.AioRpcError as error:
            self._say(f"the controller does not answer: {error.details()}")
            return None

    def _say(self, what: str) -> None:
        """Log once what many requests meet."""
        if what != self._said:
            log.info("%s", what)
        self._said = what
