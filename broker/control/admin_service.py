"""The Admin and ControllerDuty services: the controller answers, others decline (F2)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import grpc.aio

from broker.control.cluster_status import cluster_status
from broker.control.ports import ActiveController, CurrentController, Images, QuorumView, in_office
from metadata_log.types import BrokerEpoch
from quorate_proto.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    control_pb2,
    control_pb2_grpc,
    errors_pb2,
)
from quorum.errors import QuorumError

log = logging.getLogger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

QUORUM_STATUS_TIMEOUT_MS: Final = 500
"""Status is for people in trouble: it does not wait long for a quorum that is away."""


class AdminService(admin_pb2_grpc.AdminServicer):
    """Writes go to the controller of this process; without one the answer is NOT_CONTROLLER.

    Who wants a request passed on asks a broker over the Kafka wire: a request that reaches this
    service is direct or was forwarded once already.
    """

    def __init__(
        self,
        *,
        cluster_id: Callable[[], str],
        own_epoch: Callable[[], BrokerEpoch | None],
        images: Images,
        quorum: QuorumView,
        controller: CurrentController,
        min_insync_replicas: Callable[[str], int] = lambda _: 1,
        broker_alerts: Callable[[], list[str]] = list,
    ) -> None:
        self._cluster_id = cluster_id
        self._own_epoch = own_epoch
        self._images = images
        self._quorum = quorum
        self._controller = controller
        self._min_insync_replicas = min_insync_replicas
        self._broker_alerts = broker_alerts

    async def CreateTopics(
        self, request: admin_pb2.CreateTopicsRequest, context: Context
    ) -> admin_pb2.CreateTopicsResponse:
        controller = self._meant(request.context)
        if controller is None:
            return admin_pb2.CreateTopicsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return await controller.create_topics(request)

    async def DeleteTopics(
        self, request: admin_pb2.DeleteTopicsRequest, context: Context
    ) -> admin_pb2.DeleteTopicsResponse:
        controller = self._meant(request.context)
        if controller is None:
            return admin_pb2.DeleteTopicsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return await controller.delete_topics(request)

    async def CreatePartitions(
        self, request: admin_pb2.CreatePartitionsRequest, context: Context
    ) -> admin_pb2.CreatePartitionsResponse:
        controller = self._meant(request.context)
        if controller is None:
            return admin_pb2.CreatePartitionsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return await controller.create_partitions(request)

    async def RemovePartitions(
        self, request: admin_pb2.RemovePartitionsRequest, context: Context
    ) -> admin_pb2.RemovePartitionsResponse:
        controller = self._meant(request.context)
        if controller is None:
            return admin_pb2.RemovePartitionsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return await controller.remove_partitions(request)

    async def ElectLeaders(
        self, request: admin_pb2.ElectLeadersRequest, context: Context
    ) -> admin_pb2.ElectLeadersResponse:
        controller = self._meant(request.context)
        if controller is None:
            return admin_pb2.ElectLeadersResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return await controller.elect_leaders(request)

    async def AlterPartitionReassignments(
        self, request: admin_pb2.AlterPartitionReassignmentsRequest, context: Context
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        controller = self._meant(request.context)
        if controller is None:
            return admin_pb2.AlterPartitionReassignmentsResponse(
                error_code=errors_pb2.NOT_CONTROLLER
            )
        return await controller.alter_partition_reassignments(request)

    async def ListPartitionReassignments(
        self, request: admin_pb2.ListPartitionReassignmentsRequest, context: Context
    ) -> admin_pb2.ListPartitionReassignmentsResponse:
        controller = self._meant(request.context)
        if controller is None:
            return admin_pb2.ListPartitionReassignmentsResponse(
                error_code=errors_pb2.NOT_CONTROLLER
            )
        return await controller.list_partition_reassignments(request)

    async def IncrementalAlterConfigs(
        self, request: admin_pb2.IncrementalAlterConfigsRequest, context: Context
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        controller = self._meant(request.context)
        if controller is None:
            return admin_pb2.IncrementalAlterConfigsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return await controller.incremental_alter_configs(request)

    async def AllocateProducerIds(
        self, request: admin_pb2.AllocateProducerIdsRequest, context: Context
    ) -> admin_pb2.AllocateProducerIdsResponse:
        controller = self._meant(request.context)
        if controller is None:
            return admin_pb2.AllocateProducerIdsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return await controller.allocate_producer_ids(request)

    async def ResignController(
        self, request: admin_pb2.ResignControllerRequest, context: Context
    ) -> admin_pb2.ResignControllerResponse:
        controller = self._meant(request.context)
        if controller is None:
            return admin_pb2.ResignControllerResponse(error_code=errors_pb2.NOT_CONTROLLER)
        epoch = controller.controller_epoch
        log.info("asked by %s to resign", request.context.principal_name or "a direct client")
        await controller.resign()
        return admin_pb2.ResignControllerResponse(controller_epoch=epoch)

    async def MoveController(
        self, request: admin_pb2.MoveControllerRequest, context: Context
    ) -> admin_pb2.MoveControllerResponse:
        controller = self._meant(request.context)
        if controller is None:
            return admin_pb2.MoveControllerResponse(error_code=errors_pb2.NOT_CONTROLLER)
        who = request.context.principal_name or "a direct client"
        log.info("asked by %s to hand over to broker %d", who, request.broker_id)
        return await controller.hand_over(request)

    async def UpdateFeatures(
        self, request: admin_pb2.UpdateFeaturesRequest, context: Context
    ) -> admin_pb2.UpdateFeaturesResponse:
        controller = self._meant(request.context)
        if controller is None:
            return admin_pb2.UpdateFeaturesResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return await controller.update_features(request)

    async def ClusterStatus(
        self, request: admin_pb2.ClusterStatusRequest, context: Context
    ) -> admin_pb2.ClusterStatusResponse:
        if self._own_epoch() is None:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "this broker is not registered with the quorum"
            )
        status = cluster_status(self._images.image, self._min_insync_replicas)
        status.cluster_id = self._cluster_id()
        status.quorum_leader = await self._quorum_leader()
        controller = self._controller()
        status.alerts.extend(controller.alerts if controller is not None else ())
        status.alerts.extend(self._broker_alerts())
        return status

    def _meant(self, context: admin_pb2.RequestContext) -> ActiveController | None:
        return in_office(self._controller(), context.controller_epoch)

    async def _quorum_leader(self) -> int:
        """Voter id of the quorum's leader; 0 while it has none or does not answer."""
        try:
            answer = await asyncio.wait_for(self._quorum.status(), QUORUM_STATUS_TIMEOUT_MS / 1000)
        except (QuorumError, TimeoutError, grpc.aio.AioRpcError) as error:
            log.info("the quorum does not tell its status: %s", error)
            return 0
        return answer.leader_id


class ControllerDutyService(control_pb2_grpc.ControllerDutyServicer):
    """What brokers ask of the controller."""

    def __init__(self, controller: CurrentController) -> None:
        self._controller = controller

    async def ControlledShutdown(
        self, request: control_pb2.ControlledShutdownRequest, context: Context
    ) -> control_pb2.ControlledShutdownResponse:
        controller = in_office(self._controller(), request.controller_epoch)
        if controller is None:
            return control_pb2.ControlledShutdownResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return await controller.controlled_shutdown(request)


def add_admin_to_server(
    server: grpc.aio.Server, admin: AdminService, duty: ControllerDutyService
) -> None:
    admin_pb2_grpc.add_AdminServicer_to_server(admin, server)
    control_pb2_grpc.add_ControllerDutyServicer_to_server(duty, server)
