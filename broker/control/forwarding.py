"""Admin requests of Kafka clients on their way to the controller: local, or one gRPC hop (F2, F6).

The receiving broker finds the controller in its image, and looks again after NOT_CONTROLLER or a
broken connection until the request's deadline: then REQUEST_TIMED_OUT. A request that carries
``forwarded_by`` is answered by the broker it reaches, never passed on: nothing is forwarded twice.

A retry after a broken connection may find the work of its first attempt done: TOPIC_ALREADY_EXISTS,
as with Kafka.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar, cast

import grpc.aio

from broker.clock import monotonic_ms
from broker.control.ports import ActiveController, CurrentController, Images
from broker.errors import KafkaError
from broker.peers import PeerChannels
from metadata_log.types import BrokerEpoch, BrokerId
from quorate_proto.v1 import admin_pb2, admin_pb2_grpc, errors_pb2

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS: Final = 30_000
"""Deadline of a request that names none."""

RETRY_INTERVAL_MS: Final = 50
"""Between two looks for a controller: an election takes about this long."""


class _Answer(Protocol):
    error_code: int


Answer = TypeVar("Answer", bound=_Answer)


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
        clock_ms: Callable[[], float] = monotonic_ms,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._images = images
        self._channels = channels
        self._local = local
        self._clock_ms = clock_ms
        self._sleep = sleep

    async def create_topics(
        self, request: admin_pb2.CreateTopicsRequest
    ) -> admin_pb2.CreateTopicsResponse:
        """Create topics; one result per topic."""

        def failed(code: int, message: str) -> admin_pb2.CreateTopicsResponse:
            return admin_pb2.CreateTopicsResponse(
                topics=[_failed_topic(code, message, name=topic.name) for topic in request.topics]
            )

        return await self._carry_out(
            request, lambda at: at.create_topics, lambda stub: stub.CreateTopics, failed
        )

    async def delete_topics(
        self, request: admin_pb2.DeleteTopicsRequest
    ) -> admin_pb2.DeleteTopicsResponse:
        """Delete topics; one result per name, then one per id."""

        def failed(code: int, message: str) -> admin_pb2.DeleteTopicsResponse:
            by_name = [_failed_topic(code, message, name=name) for name in request.names]
            by_id = [_failed_topic(code, message, topic_id=one) for one in request.topic_ids]
            return admin_pb2.DeleteTopicsResponse(topics=by_name + by_id)

        return await self._carry_out(
            request, lambda at: at.delete_topics, lambda stub: stub.DeleteTopics, failed
        )

    async def create_partitions(
        self, request: admin_pb2.CreatePartitionsRequest
    ) -> admin_pb2.CreatePartitionsResponse:
        """Add partitions to topics; one result per topic."""

        def failed(code: int, message: str) -> admin_pb2.CreatePartitionsResponse:
            return admin_pb2.CreatePartitionsResponse(
                topics=[_failed_topic(code, message, name=topic.name) for topic in request.topics]
            )

        return await self._carry_out(
            request, lambda at: at.create_partitions, lambda stub: stub.CreatePartitions, failed
        )

    async def elect_leaders(
        self, request: admin_pb2.ElectLeadersRequest
    ) -> admin_pb2.ElectLeadersResponse:
        """Elect leaders; one result per partition that is named."""

        def failed(code: int, message: str) -> admin_pb2.ElectLeadersResponse:
            return admin_pb2.ElectLeadersResponse(
                error_code=code,
                partitions=[
                    admin_pb2.PartitionResult(
                        topic=topic.topic, partition=number, error_code=code, error_message=message
                    )
                    for topic in request.topics
                    for number in topic.partitions
                ],
            )

        return await self._carry_out(
            request, lambda at: at.elect_leaders, lambda stub: stub.ElectLeaders, failed
        )

    async def alter_partition_reassignments(
        self, request: admin_pb2.AlterPartitionReassignmentsRequest
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        """Move replicas, or cancel that; one result per partition."""

        def failed(code: int, message: str) -> admin_pb2.AlterPartitionReassignmentsResponse:
            results = [
                admin_pb2.PartitionResult(
                    topic=one.topic, partition=one.partition, error_code=code, error_message=message
                )
                for one in request.partitions
            ]
            return admin_pb2.AlterPartitionReassignmentsResponse(
                error_code=code, partitions=results
            )

        return await self._carry_out(
            request,
            lambda at: at.alter_partition_reassignments,
            lambda stub: stub.AlterPartitionReassignments,
            failed,
        )

    async def list_partition_reassignments(
        self, request: admin_pb2.ListPartitionReassignmentsRequest
    ) -> admin_pb2.ListPartitionReassignmentsResponse:
        """The reassignments under way, as the controller has them."""

        def failed(code: int, _message: str) -> admin_pb2.ListPartitionReassignmentsResponse:
            return admin_pb2.ListPartitionReassignmentsResponse(error_code=code)

        return await self._carry_out(
            request,
            lambda at: at.list_partition_reassignments,
            lambda stub: stub.ListPartitionReassignments,
            failed,
        )

    async def update_features(
        self, request: admin_pb2.UpdateFeaturesRequest
    ) -> admin_pb2.UpdateFeaturesResponse:
        """Raise or lower features; one result per feature."""

        def failed(code: int, message: str) -> admin_pb2.UpdateFeaturesResponse:
            return admin_pb2.UpdateFeaturesResponse(
                results=[
                    admin_pb2.FeatureResult(name=one.name, error_code=code, error_message=message)
                    for one in request.updates
                ]
            )

        return await self._carry_out(
            request, lambda at: at.update_features, lambda stub: stub.UpdateFeatures, failed
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

        def failed(code: int, _message: str) -> admin_pb2.AllocateProducerIdsResponse:
            return admin_pb2.AllocateProducerIdsResponse(error_code=code)

        return await self._carry_out(
            request,
            lambda at: at.allocate_producer_ids,
            lambda stub: stub.AllocateProducerIds,
            failed,
        )

    async def _carry_out(
        self,
        request: Any,  # noqa: ANN401 - any admin request: all have a context
        local: Callable[[ActiveController], Callable[[Any], Awaitable[Answer]]],
        remote: Callable[["admin_pb2_grpc.AdminAsyncStub"], Any],
        failed: Callable[[int, str], Answer],
    ) -> Answer:
        timeout_ms = request.context.timeout_ms
        deadline_ms = self._clock_ms() + (timeout_ms if timeout_ms > 0 else DEFAULT_TIMEOUT_MS)
        while (left_ms := deadline_ms - self._clock_ms()) > 0:
            answer: Answer | None = None
            controller = self._local()
            try:
                if controller is not None:
                    answer = await asyncio.wait_for(local(controller)(request), left_ms / 1000)
                elif (stub := self._stub()) is not None:
                    forwarded = self._forwarded(request, left_ms)
                    answer = cast("Answer", await remote(stub)(forwarded, timeout=left_ms / 1000))
            except TimeoutError:
                break
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    break
                log.info("the controller did not answer, looking for it again: %s", error.details())
            if answer is not None and answer.error_code != errors_pb2.NOT_CONTROLLER:
                return answer
            await self._sleep(RETRY_INTERVAL_MS / 1000)
        return failed(
            errors_pb2.REQUEST_TIMED_OUT,
            f"no controller carried out the request within {timeout_ms} ms "
            f"(last known: broker {self._images.image.controller_id})",
        )

    def _stub(self) -> "admin_pb2_grpc.AdminAsyncStub | None":
        """The controller's Admin service as the image has it; None while there is no controller."""
        image = self._images.image
        broker = image.brokers.get(image.controller_id)
        if broker is None or broker.broker_id == self._broker_id:
            return None
        return admin_pb2_grpc.AdminStub(self._channels.get(broker.grpc))

    def _forwarded(self, request: Any, left_ms: float) -> Any:  # noqa: ANN401 - as above
        forwarded = type(request)()
        forwarded.CopyFrom(request)
        forwarded.context.forwarded_by = self._broker_id
        forwarded.context.controller_epoch = self._images.image.controller_epoch
        forwarded.context.timeout_ms = max(1, int(left_ms))
        return forwarded


def _failed_topic(
    code: int, message: str, *, name: str = "", topic_id: bytes = b""
) -> admin_pb2.TopicResult:
    return admin_pb2.TopicResult(
        name=name, topic_id=topic_id, error_code=code, error_message=message
    )
