"""Asking the controller for what it does for brokers, wherever it is: here, or at another one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import grpc.aio

from broker.control.ports import ActiveController, CurrentController, Images
from broker.peers import Peer, PeerChannels
from metadata_log.types import BrokerId
from quorate_proto.v1 import control_pb2_grpc

if TYPE_CHECKING:
    from quorate_proto.v1.control_pb2_grpc import ControllerDutyAsyncStub

log = logging.getLogger(__name__)

A = TypeVar("A")


class ControllerDuty:
    """The way from one broker to whoever is the controller. ``local``: the one of this process."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        images: Images,
        channels: PeerChannels,
        local: CurrentController,
    ) -> None:
        self._broker_id = broker_id
        self._images = images
        self._channels = channels
        self._local = local

    async def ask(
        self,
        here: Callable[[ActiveController], Awaitable[A]],
        there: Callable[["ControllerDutyAsyncStub"], Awaitable[A]],
        timeout_s: float,
    ) -> A | None:
        """The controller's answer; None if there is none to ask, or it did not answer in time."""
        controller = self._local()
        image = self._images.image
        holder = image.brokers.get(image.controller_id)
        try:
            if controller is not None:
                return await asyncio.wait_for(here(controller), timeout_s)
            if holder is None or holder.broker_id == self._broker_id:
                return None
            stub = control_pb2_grpc.ControllerDutyStub(self._channels.get(Peer.of(holder)))
            return await asyncio.wait_for(there(stub), timeout_s)
        except TimeoutError:
            return None
        except grpc.aio.AioRpcError as error:
            log.info("the controller does not answer: %s", error.details())
            return None
