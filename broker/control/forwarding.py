"""Admin requests of Kafka clients on their way to the controller: local, or one gRPC hop (F2, F6).

The receiving broker finds the controller in its image, and looks again after NOT_CONTROLLER or a
broken connection until the request's deadline: then REQUEST_TIMED_OUT. A request that carries
``forwarded_by`` is answered by the broker it reaches, never passed on: nothing is forwarded twice.

At inter_broker_protocol 1 nothing of the bridge's is passed on: the broker that is asked carries it
out by itself, see ``controller.bridge``.

A retry after a broken connection may find the work of its first attempt done: TOPIC_ALREADY_EXISTS,
as with Kafka.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import grpc.aio

from broker.clock import monotonic_ms
from broker.control.changes import ALLOCATE_PRODUCER_IDS, A, Change, Q
from broker.control.ports import Carrier, CurrentController, Images
from broker.errors import KafkaError
from broker.peers import Peer, PeerChannels
from metadata_log.features import brokers_may_write
from metadata_log.types import BrokerEpoch, BrokerId
from quorate_proto.v1 import admin_pb2, errors_pb2

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS: Final = 30_000
"""Deadline of a request that names none."""

RETRY_INTERVAL_MS: Final = 50
"""Between two looks for a controller: an election takes about this long."""


class ControllerForwarder:
    """Carries admin requests out at whatever broker is the controller.

    Never raises for the controller's sake: where it cannot be reached in time, the answer says so
    with REQUEST_TIMED_OUT, for each item of the request.
    """

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        images: Images,
        channels: PeerChannels,
        local: CurrentController,
        bridge: Carrier | None = None,
        clock_ms: Callable[[], float] = monotonic_ms,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._images = images
        self._channels = channels
        self._local = local
        self._bridge = bridge
        self._clock_ms = clock_ms
        self._sleep = sleep

    async def carry_out(self, change: Change[Q, A], request: Q, *, proxied: bool = True) -> A:
        """Have the controller carry it out, within the request's own deadline.

        ``proxied`` False: this broker, or nobody: NOT_CONTROLLER sends the client to look (F2).
        """
        timeout_ms = request.context.timeout_ms
        deadline_ms = self._clock_ms() + (timeout_ms if timeout_ms > 0 else DEFAULT_TIMEOUT_MS)
        while (left_ms := deadline_ms - self._clock_ms()) > 0:
            answer: A | None = None
            carrier: Carrier | None = self._local()
            if carrier is None and not proxied:
                return self._declined(change, request)
            if carrier is None and change.bridged and brokers_may_write(self._images.image):
                carrier = self._bridge
            try:
                if carrier is not None:
                    local = carrier.carry_out(change, request)
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
        """A block of producer ids for this broker.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE while this broker has no epoch.
        """
        epoch = self._broker_epoch()
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

        return await self.carry_out(ALLOCATE_PRODUCER_IDS, request)

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
        call = channel.unary_unary(
            change.method,
            request_serializer=change.request.SerializeToString,
            response_deserializer=change.answer.FromString,
        )
        answer: A = await call(request, timeout=request.context.timeout_ms / 1000)
        return answer

    def _channel(self) -> grpc.aio.Channel | None:
        """To the controller as the image has it; None while there is no controller."""
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
