"""The Admin and ControllerDuty services: the controller answers, others decline (F2)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from quorate.broker.admin import logger_levels
from quorate.broker.admin.cluster_status import (
    broker_endpoints,
    cluster_status,
    offline_alert,
    voter_alerts,
)
from quorate.broker.admin.metric_encoding import encode_metrics
from quorate.broker.changes.table import (
    ADMIN_SERVICE,
    CHANGES,
    INCREMENTAL_ALTER_CONFIGS,
    A,
    Change,
    Q,
)
from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.control.active_controller import ActiveController, ActiveControllerSlot
from quorate.broker.control.ports import (
    QuorumView,
)
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.authorizer import Authorizer, Rights, caller_of
from quorate.common.acl_types import AclOperation
from quorate.common.metrics.family import Sample
from quorate.quorum.quorum_errors import QuorumError
from quorate_proto.v1 import (
    admin_pb2,
    control_pb2,
    control_pb2_grpc,
    errors_pb2,
)
from quorate_proto.v1.quorum_pb2 import QuorumStatusResponse

log = logging.getLogger(__name__)

MethodHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

Method: TypeAlias = Callable[[Any, Context], Awaitable[Any]]
"""A function from a request message and its call to the answer message."""

Read: TypeAlias = Callable[[Any], Awaitable[Any]]
"""A function from a request message that any broker answers to the answer message."""

QUORUM_STATUS_TIMEOUT_MS: Final = 500
"""The longest wait for the quorum. It is short because operators need the status when there is
trouble."""


class AdminService:
    """The Admin service, built from the table of changes.

    Changes go to the controller of this process. Without one the answer is NOT_CONTROLLER. A
    request that reaches this service came directly or was forwarded once already, so it is never
    forwarded. A client that wants forwarding asks a broker over the Kafka protocol.
    """

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        images: MetadataFollower,
        quorum: QuorumView,
        controller: ActiveControllerSlot,
        authorizer: Authorizer,
        min_insync_replicas: Callable[[str], int] = lambda _: 1,
        broker_alerts: Callable[[], list[str]] = list,
        metrics: Iterable[Sample] = (),
        reads: Mapping[str, Read] = MappingProxyType({}),
    ) -> None:
        self._identity = identity
        self._images = images
        self._quorum = quorum
        self._controller = controller
        self._authorizer = authorizer
        self._min_insync_replicas = min_insync_replicas
        self._broker_alerts = broker_alerts
        self._metrics = metrics
        self._reads = reads

    def handlers(self) -> dict[str, MethodHandler]:
        """Return the handlers by method name. A method without a handler is UNIMPLEMENTED."""
        own: dict[str, Method] = {
            "ClusterStatus": self.ClusterStatus,
            "ResignController": self.ResignController,
            "MoveController": self.MoveController,
        }
        found = {change.rpc: _handler(change.rpc, self._changing(change)) for change in CHANGES}
        own[INCREMENTAL_ALTER_CONFIGS.rpc] = self._alter_configs
        found |= {rpc: _handler(rpc, method) for rpc, method in own.items()}
        found |= {rpc: _handler(rpc, self._reading(read)) for rpc, read in self._reads.items()}
        return found

    async def perform(self, change: Change[Q, A], request: Q, _call: Context) -> A:
        """Have the controller of this process carry the change out, if the sender means that
        controller."""
        controller = self._addressed_controller(request.context)
        if controller is None:
            answer = change.answer()
            answer.error_code = errors_pb2.NOT_CONTROLLER
            return answer
        return await controller.perform(change, request)

    async def _alter_configs(
        self, request: admin_pb2.IncrementalAlterConfigsRequest, call: Context
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        """Change the levels of this broker's loggers here, and everything else as any change."""
        rights, broker_id = self._rights(request), self._identity.broker_id
        levels = logger_levels.altered(request, rights, broker_id)
        return levels or await self.perform(INCREMENTAL_ALTER_CONFIGS, request, call)

    def _changing(self, change: Change[Q, A]) -> Method:
        async def method(request: Q, call: Context) -> A:
            return await self.perform(change, request, call)

        return method

    def _reading(self, read: Read) -> Method:
        async def method(request: Any, _call: Context) -> Any:  # noqa: ANN401 - any message
            return await read(request)

        return method

    async def ResignController(
        self, request: admin_pb2.ResignControllerRequest, context: Context
    ) -> admin_pb2.ResignControllerResponse:
        controller = self._addressed_controller(request.context)
        if controller is None:
            return admin_pb2.ResignControllerResponse(error_code=errors_pb2.NOT_CONTROLLER)
        if not self._rights(request).may_cluster(AclOperation.ALTER):
            return admin_pb2.ResignControllerResponse(
                error_code=errors_pb2.CLUSTER_AUTHORIZATION_FAILED
            )
        epoch = controller.controller_epoch
        log.info("asked by %s to resign", request.context.principal_name or "a direct client")
        await controller.resign()
        return admin_pb2.ResignControllerResponse(controller_epoch=epoch)

    async def MoveController(
        self, request: admin_pb2.MoveControllerRequest, context: Context
    ) -> admin_pb2.MoveControllerResponse:
        controller = self._addressed_controller(request.context)
        if controller is None:
            return admin_pb2.MoveControllerResponse(error_code=errors_pb2.NOT_CONTROLLER)
        if not self._rights(request).may_cluster(AclOperation.ALTER):
            return admin_pb2.MoveControllerResponse(
                error_code=errors_pb2.CLUSTER_AUTHORIZATION_FAILED
            )
        who = request.context.principal_name or "a direct client"
        log.info("asked by %s to hand over to broker %d", who, request.broker_id)
        return await controller.hand_over(request)

    async def ClusterStatus(
        self, request: admin_pb2.ClusterStatusRequest, context: Context
    ) -> admin_pb2.ClusterStatusResponse:
        if self._identity.epoch is None:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "this broker is not registered with the quorum"
            )
        rights = self._authorizer.rights_of_caller()
        if not rights.may_cluster(AclOperation.DESCRIBE, log_denied=False):
            return admin_pb2.ClusterStatusResponse(
                cluster_id=self._quorum.cluster_id,
                controller_id=self._images.image.controller_id,
                brokers=broker_endpoints(self._images.image),
            )
        status = cluster_status(self._images.image, self._min_insync_replicas)
        status.cluster_id = self._quorum.cluster_id
        quorum = await self._quorum_status()
        status.quorum_leader = quorum.leader_id
        status.alerts.extend(voter_alerts(quorum))
        controller = self._controller.active
        if controller is not None:
            status.alerts.extend(controller.alerts)
            if status.offline_partitions:
                status.alerts.append(offline_alert(status.offline_partitions))
        status.alerts.extend(self._broker_alerts())
        status.metrics.extend(
            metric
            for sample in (self._metrics if request.with_metrics else ())
            for metric in encode_metrics(sample)
        )
        return status

    def _rights(self, request: Any) -> Rights:  # noqa: ANN401 - any message with a context
        return self._authorizer.rights_of(caller_of(request.context))

    def _addressed_controller(self, context: admin_pb2.RequestContext) -> ActiveController | None:
        return self._controller.of_epoch(context.controller_epoch)

    async def _quorum_status(self) -> QuorumStatusResponse:
        """Return the state of the quorum; an empty one, with leader 0, while it does not answer."""
        try:
            return await asyncio.wait_for(self._quorum.status(), QUORUM_STATUS_TIMEOUT_MS / 1000)
        except (QuorumError, TimeoutError, grpc.aio.AioRpcError) as error:
            log.info("the quorum does not tell its status: %s", error)
            return QuorumStatusResponse()


def _handler(rpc: str, method: Method) -> MethodHandler:
    described = admin_pb2.DESCRIPTOR.services_by_name["Admin"].methods_by_name[rpc]
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=GetMessageClass(described.input_type).FromString,
        response_serializer=GetMessageClass(described.output_type).SerializeToString,
    )


class BrokerToControllerService(control_pb2_grpc.ControllerDutyServicer):
    """Serves the requests of brokers to the controller."""

    def __init__(self, controller: ActiveControllerSlot) -> None:
        self._controller = controller

    async def ControlledShutdown(
        self, request: control_pb2.ControlledShutdownRequest, context: Context
    ) -> control_pb2.ControlledShutdownResponse:
        controller = self._controller.of_epoch(request.controller_epoch)
        if controller is None:
            return control_pb2.ControlledShutdownResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return await controller.controlled_shutdown(request)

    async def ReportReplicas(
        self, request: control_pb2.ReportReplicasRequest, context: Context
    ) -> control_pb2.ReportReplicasResponse:
        controller = self._controller.of_epoch(request.controller_epoch)
        if controller is None:
            return control_pb2.ReportReplicasResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return await controller.report_replicas(request)

    async def ReportLinks(
        self, request: control_pb2.ReportLinksRequest, context: Context
    ) -> control_pb2.ReportLinksResponse:
        controller = self._controller.of_epoch(request.controller_epoch)
        if controller is None:
            return control_pb2.ReportLinksResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return await controller.report_links(request)


def add_admin_to_server(server: grpc.aio.Server, admin: AdminService) -> None:
    handler = grpc.method_handlers_generic_handler(ADMIN_SERVICE, admin.handlers())
    server.add_generic_rpc_handlers((handler,))


def add_controller_duty_to_server(server: grpc.aio.Server, duty: BrokerToControllerService) -> None:
    control_pb2_grpc.add_ControllerDutyServicer_to_server(duty, server)
