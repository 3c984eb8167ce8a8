"""The BrokerControl service: fences control requests, then has them carried out in order.

The fence applies rules 1, 2 and 4 of docs/RULES.md. A request can be stale in three ways, and each
has its own guard:
- from a deposed controller: its controller epoch is below the highest known (rule 1, E3);
- meant for an earlier incarnation of this broker: made from an image that had not seen this
  registration (rule 2, B2). A *newer* epoch is no fault: another broker registered meanwhile;
- overtaken by a newer one of the same controller: made from an older image (rule 4).

From inter_broker_protocol 3 on an INIT and an UpdateMetadata have no content: it is this broker's
own image of the metadata log, once the image has reached the offset that the request names. Such a
request is fenced before the wait and again at its turn. In between, another controller may have
been elected and this broker may have registered again, and the image may show either.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import grpc.aio

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.common.errors import error_name
from quorate.broker.control.ports import ReplicaCommands
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.types import BrokerEpoch, ControllerEpoch, MetadataOffset
from quorate.metadata_log.features import METADATA_FROM_LOG
from quorate.metadata_log.image import Changes, Image
from quorate_proto.v1 import control_pb2, control_pb2_grpc, errors_pb2
from quorate_proto.v1.control_pb2 import ControlHeader

log = logging.getLogger(__name__)

UNUSED_EPOCH: Final = -1
"""An epoch field that this level of the protocol does not use."""


class ControlFence:
    """Decides whether a control request may be obeyed.

    It remembers the highest controller epoch known, and the metadata offset of the image that the
    last UpdateMetadata was made from.
    """

    def __init__(self) -> None:
        self.controller_epoch = ControllerEpoch(0)
        self._metadata_offset = MetadataOffset(0)
        self._own_epoch: BrokerEpoch | None = None

    def observe_controller_epoch(self, epoch: ControllerEpoch) -> None:
        """Record a controller epoch that was seen in a request or in the metadata log."""
        self.controller_epoch = max(self.controller_epoch, epoch)

    def check(self, header: ControlHeader, own_epoch: BrokerEpoch | None) -> int:
        """Return the error code for a request: NONE, STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH.

        ``own_epoch`` is the epoch of this broker's registration, or None while it is not known
        (B2).
        """
        if header.controller_epoch < self.controller_epoch:
            return errors_pb2.STALE_CONTROLLER_EPOCH
        self.observe_controller_epoch(ControllerEpoch(header.controller_epoch))
        if own_epoch is None:
            return errors_pb2.STALE_BROKER_EPOCH
        self._begin_incarnation(own_epoch)
        meant_for = header.max_broker_epoch
        if meant_for == UNUSED_EPOCH:
            meant_for = header.broker_epoch
        if meant_for == UNUSED_EPOCH:
            return errors_pb2.INVALID_REQUEST
        return errors_pb2.STALE_BROKER_EPOCH if meant_for < own_epoch else errors_pb2.NONE

    def admits_metadata(self, offset: MetadataOffset) -> bool:
        """Return whether an UpdateMetadata made at ``offset`` is not older than the last one, and
        record its offset."""
        if offset < self._metadata_offset:
            return False
        self._metadata_offset = offset
        return True

    def _begin_incarnation(self, own_epoch: BrokerEpoch) -> None:
        """Forget the remembered offset when this broker has a new registration (rule 4)."""
        if self._own_epoch != own_epoch:
            self._own_epoch = own_epoch
            self._metadata_offset = MetadataOffset(0)


Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class BrokerControlService(control_pb2_grpc.BrokerControlServicer):
    """Refuses stale control requests and passes the rest to the replica manager and metadata cache.

    Requests of one kind are carried out one after another, in the order of arrival (C17). Each is
    fenced at its turn, because a newer controller may have sent a request while it waited.
    """

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        replicas: ReplicaCommands,
        cache: MetadataCache,
        images: MetadataFollower,
        fence: ControlFence,
    ) -> None:
        self._identity = identity
        self._replicas = replicas
        self._cache = cache
        self._images = images
        self._fence = fence
        self._leadership_turn = asyncio.Lock()
        self._stop_turn = asyncio.Lock()
        images.subscribe(self._on_image, "controller", "brokers", "topics", "features")

    async def LeaderAndIsr(
        self, request: control_pb2.LeaderAndIsrRequest, context: Context
    ) -> control_pb2.LeaderAndIsrResponse:
        late = request.from_log and await self._is_behind("LeaderAndIsr", request.header)
        outcomes: list[control_pb2.PartitionOutcome] = []
        async with self._leadership_turn:
            code = self._checked("LeaderAndIsr", request.header)
            if not code and request.from_log:
                code = errors_pb2.REQUEST_TIMED_OUT if late else self._checked_image()
            if not code:
                outcomes = await (
                    self._replicas.apply_init(self._images.image)
                    if request.from_log
                    else self._replicas.apply_leader_and_isr(request)
                )
        return control_pb2.LeaderAndIsrResponse(
            error_code=code,
            controller_epoch=self._fence.controller_epoch,
            partitions=outcomes,
            version_id=request.header.version,
        )

    async def StopReplica(
        self, request: control_pb2.StopReplicaRequest, context: Context
    ) -> control_pb2.StopReplicaResponse:
        async with self._stop_turn:
            code = self._checked("StopReplica", request.header)
            outcomes = [] if code else await self._replicas.stop_replicas(request)
        return control_pb2.StopReplicaResponse(
            error_code=code,
            controller_epoch=self._fence.controller_epoch,
            partitions=outcomes,
            version_id=request.header.version,
        )

    async def UpdateMetadata(
        self, request: control_pb2.UpdateMetadataRequest, context: Context
    ) -> control_pb2.UpdateMetadataResponse:
        late = request.from_log and await self._is_behind("UpdateMetadata", request.header)
        code = self._checked("UpdateMetadata", request.header)
        if not code and request.from_log:
            if late:
                code = errors_pb2.REQUEST_TIMED_OUT
            else:
                self._show(self._images.image, ())
        elif not code:
            if self._fence.admits_metadata(MetadataOffset(request.header.metadata_offset)):
                self._cache.update(request)
            else:
                log.info("UpdateMetadata of offset %d is old", request.header.metadata_offset)
        return control_pb2.UpdateMetadataResponse(
            error_code=code, controller_epoch=self._fence.controller_epoch
        )

    async def Probe(
        self, request: control_pb2.ProbeRequest, context: Context
    ) -> control_pb2.ProbeResponse:
        return control_pb2.ProbeResponse(controller_epoch=self._fence.controller_epoch)

    async def _is_behind(self, kind: str, header: control_pb2.ControlHeader) -> bool:
        """Wait until the image has reached the offset of a request that may be obeyed.

        Return whether it has not, within the time in which the controller waits for the answer.
        """
        offset = MetadataOffset(header.metadata_offset)
        if self._images.applied_offset >= offset or self._checked(kind, header):
            return False
        try:
            await asyncio.wait_for(self._images.wait_for(offset), header.ack_timeout_ms / 1000)
        except TimeoutError:
            known = self._images.applied_offset
            log.info("%s is about offset %d, and %d is known here", kind, offset, known)
            return True
        return False

    def _checked_image(self) -> int:
        """Return STALE_BROKER_EPOCH if the image does not show this incarnation as admitted.

        What an earlier incarnation led has a new leader epoch only once this one is admitted (B3).
        """
        own = self._images.image.brokers.get(self._identity.broker_id)
        if own is None or own.epoch != self._identity.epoch or not own.admitted:
            return errors_pb2.STALE_BROKER_EPOCH
        return errors_pb2.NONE

    def _show(self, image: Image, changed: Iterable[str]) -> None:
        """Show an image to clients, unless they have been shown what a newer one says."""
        if self._fence.admits_metadata(image.offset):
            self._cache.show(image, changed)

    def _checked(self, kind: str, header: control_pb2.ControlHeader) -> int:
        code = self._fence.check(header, self._identity.epoch)
        if code != errors_pb2.NONE:
            log.info(
                "%s of controller %d, epoch %d, refused: %s (known controller epoch %d, "
                "own broker epoch %s, request made for %d)",
                kind,
                header.controller_id,
                header.controller_epoch,
                error_name(code),
                self._fence.controller_epoch,
                self._identity.epoch,
                header.max_broker_epoch,
            )
        return code

    def _on_image(self, image: Image, changes: Changes) -> None:
        """Show the image to clients, once the controller has told this broker of the cluster."""
        self._fence.observe_controller_epoch(image.controller_epoch)
        if self._cache.metadata_offset and image.inter_broker_protocol >= METADATA_FROM_LOG:
            self._show(image, changes.topics)


def add_broker_control_to_server(server: grpc.aio.Server, service: BrokerControlService) -> None:
    control_pb2_grpc.add_BrokerControlServicer_to_server(service, server)
