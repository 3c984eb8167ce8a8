"""Forwards admin requests of clients to the controller: in this process, or one gRPC hop away (F2,
F6).

The receiving broker finds the controller in its image. After NOT_CONTROLLER or a broken connection
it looks again until the request's deadline, and then answers REQUEST_TIMED_OUT. A request with
``forwarded_by`` is answered by the broker it reaches, so nothing is forwarded twice. At
inter_broker_protocol 1 bridged changes are not forwarded: the receiving broker carries them out by
itself, see ``controller.bridge``.

A retry after a broken connection may find the work of its first attempt done: TOPIC_ALREADY_EXISTS,
as with Kafka.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import grpc.aio

from quorate.broker.changes.table import ALLOCATE_PRODUCER_IDS, A, Change, Q
from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.common.errors import KafkaError
from quorate.broker.control.active_controller import ActiveControllerSlot
from quorate.broker.control.ports import ChangeExecutor
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.metadata_log.features import brokers_may_write
from quorate_proto.v1 import admin_pb2, errors_pb2

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS: Final = 30_000
"""The timeout of a request that has none."""

RETRY_INTERVAL_MS: Final = 50
"""The pause between two lookups of the controller. An election takes about this long."""


class ControllerForwarder:
    """Has admin requests carried out at the broker that is the controller.

    It never raises because of the controller. If the controller cannot be reached in time, the
    answer has REQUEST_TIMED_OUT for each item of the request.
    """

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        images: MetadataFollower,
        channels: PeerChannels,
        local: ActiveControllerSlot,
        bridge: ChangeExecutor | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._identity = identity
        self._broker_id = identity.broker_id
        self._images = images
        self._channels = channels
        self._local = local
        self._bridge = bridge
        self._sleep = sleep

    async def forward(
        self, change: Change[Q, A], request: Q, *, api_version: int | None = None
    ) -> A:
        """Have the controller carry the change out, within the request's own timeout.

        ``api_version`` is the version of the Kafka API of the request. A version that is reserved
        for the controller is carried out by this broker or refused: NOT_CONTROLLER makes the client
        look for the controller (F2).
        """
        timeout_ms = request.context.timeout_ms
        deadline_ms = _now_ms() + (timeout_ms if timeout_ms > 0 else DEFAULT_TIMEOUT_MS)
        while (left_ms := deadline_ms - _now_ms()) > 0:
            answer: A | None = None
            executor: ChangeExecutor | None = self._local.active
            if executor is None and api_version in change.controller_only:
                return self._declined(change, request)
            if executor is None and change.bridged and brokers_may_write(self._images.image):
                executor = self._bridge
            try:
                if executor is not None:
                    local = executor.perform(change, request)
                    answer = await asyncio.wait_for(local, left_ms / 1000)
                elif (channel := self._channel()) is not None:
                    answer = await self._ask(channel, change, self._forwarded(request, left_ms))
            except TimeoutError:
                break
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    break
                log.info("the controller did not answer, looking for it again: %s", error.details())
            if answer is not None and answer.error_code != errors_pb2.NOT_CONTROLLER:
                return answer
            await self._sleep(RETRY_INTERVAL_MS / 1000)
        return change.failed(
            request,
            errors_pb2.REQUEST_TIMED_OUT,
            f"no controller carried out the request within {timeout_ms} ms "
            f"(last known: broker {self._images.image.controller_id})",
        )

    async def allocate_producer_ids(
        self, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> admin_pb2.AllocateProducerIdsResponse:
        """Return a block of producer ids for this broker.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE while this broker has no epoch.
        """
        epoch = self._identity.epoch
        if epoch is None:
            raise KafkaError(
                errors_pb2.COORDINATOR_NOT_AVAILABLE,
                f"broker {self._broker_id} is not registered yet: retry",
            )
        request = admin_pb2.AllocateProducerIdsRequest(
            context=admin_pb2.RequestContext(timeout_ms=timeout_ms, forwarded_by=-1),
            broker_id=self._broker_id,
            broker_epoch=epoch,
        )

        return await self.forward(ALLOCATE_PRODUCER_IDS, request)

    def _declined(self, change: Change[Q, A], request: Q) -> A:
        answer = change.failed(
            request,
            errors_pb2.NOT_CONTROLLER,
            f"broker {self._broker_id} is not the controller, and this version of {change.rpc} is "
            f"not passed on: ask broker {self._images.image.controller_id}",
        )
        answer.error_code = errors_pb2.NOT_CONTROLLER
        return answer

    async def _ask(self, channel: grpc.aio.Channel, change: Change[Q, A], request: Q) -> A:
        """Call the controller, where ``AdminService.perform`` takes the request in."""
        call = channel.unary_unary(
            change.method,
            request_serializer=change.request.SerializeToString,
            response_deserializer=change.answer.FromString,
        )
        answer: A = await call(request, timeout=request.context.timeout_ms / 1000)
        return answer

    def _channel(self) -> grpc.aio.Channel | None:
        """Return a channel to the controller that the image names, or None while there is none."""
        image = self._images.image
        broker = image.brokers.get(image.controller_id)
        if broker is None or broker.broker_id == self._broker_id:
            return None
        return self._channels.get(Peer.of(broker))

    def _forwarded(self, request: Q, left_ms: float) -> Q:
        forwarded = type(request)()
        forwarded.CopyFrom(request)
        forwarded.context.forwarded_by = self._broker_id
        forwarded.context.controller_epoch = self._images.image.controller_epoch
        forwarded.context.timeout_ms = max(1, int(left_ms))
        return forwarded


def _now_ms() -> float:
    """Return the event loop's clock in milliseconds: what deadlines are reckoned by."""
    return asyncio.get_running_loop().time() * 1000
