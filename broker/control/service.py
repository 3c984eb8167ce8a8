"""The BrokerControl service: control requests in, fenced, then carried out in order."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeAlias

import grpc.aio

from broker.control.fencing import ControlFence
from broker.control.metadata_cache import MetadataCache
from broker.control.ports import Images, ReplicaCommands
from broker.errors import error_name
from metadata_log.draft import Changes
from metadata_log.image import Image
from metadata_log.types import BrokerEpoch, MetadataOffset
from quorate_proto.v1 import control_pb2, control_pb2_grpc, errors_pb2

log = logging.getLogger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class BrokerControlService(control_pb2_grpc.BrokerControlServicer):
    """Refuses what is stale and hands the rest to the replica manager and the metadata cache.

    Requests of one kind are carried out one after another, in the order of arrival (C17); each is
    fenced at its turn, since a newer controller may have spoken while it waited.
    """

    def __init__(
        self,
        *,
        own_epoch: Callable[[], BrokerEpoch | None],
        replicas: ReplicaCommands,
        cache: MetadataCache,
        images: Images,
        fence: ControlFence,
    ) -> None:
        self._own_epoch = own_epoch
        self._replicas = replicas
        self._cache = cache
        self._fence = fence
        self._leadership_turn = asyncio.Lock()
        self._stop_turn = asyncio.Lock()
        images.subscribe(self._on_image)

    async def LeaderAndIsr(
        self, request: control_pb2.LeaderAndIsrRequest, context: Context
    ) -> control_pb2.LeaderAndIsrResponse:
        async with self._leadership_turn:
            code = self._checked("LeaderAndIsr", request.header)
            outcomes = [] if code else await self._replicas.apply_leader_and_isr(request)
        return control_pb2.LeaderAndIsrResponse(
            error_code=code, controller_epoch=self._fence.controller_epoch, partitions=outcomes
        )

    async def StopReplica(
        self, request: control_pb2.StopReplicaRequest, context: Context
    ) -> control_pb2.StopReplicaResponse:
        async with self._stop_turn:
            code = self._checked("StopReplica", request.header)
            outcomes = [] if code else await self._replicas.stop_replicas(request)
        return control_pb2.StopReplicaResponse(
            error_code=code, controller_epoch=self._fence.controller_epoch, partitions=outcomes
        )

    async def UpdateMetadata(
        self, request: control_pb2.UpdateMetadataRequest, context: Context
    ) -> control_pb2.UpdateMetadataResponse:
        code = self._checked("UpdateMetadata", request.header)
        if not code:
            if self._fence.admits_metadata(MetadataOffset(request.header.metadata_offset)):
                self._cache.update(request)
            else:
                log.info("UpdateMetadata of offset %d is old", request.header.metadata_offset)
        return control_pb2.UpdateMetadataResponse(
            error_code=code, controller_epoch=self._fence.controller_epoch
        )

    def _checked(self, kind: str, header: control_pb2.ControlHeader) -> int:
        code = self._fence.check(header, self._own_epoch())
        if code != errors_pb2.NONE:
            log.info(
                "%s of controller %d, epoch %d, refused: %s (known controller epoch %d, "
                "own broker epoch %s, request made for %d)",
                kind,
                header.controller_id,
                header.controller_epoch,
                error_name(code),
                self._fence.controller_epoch,
                self._own_epoch(),
                header.max_broker_epoch,
            )
        return code

    def _on_image(self, image: Image, changes: Changes) -> None:
        if changes.controller:
            self._fence.observe_controller_epoch(image.controller_epoch)


def add_broker_control_to_server(server: grpc.aio.Server, service: BrokerControlService) -> None:
    control_pb2_grpc.add_BrokerControlServicer_to_server(service, server)
