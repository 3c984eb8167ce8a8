"""How control requests reach one broker: the three kinds, and a transport over gRPC."""

from enum import Enum
from typing import Any, Final, Protocol

import grpc.aio

from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.common.types import ControllerEpoch
from quorate_proto.v1 import control_pb2, control_pb2_grpc

_UNREACHED: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""The status codes of calls that no broker has answered."""

ControlResponse = (
    control_pb2.LeaderAndIsrResponse
    | control_pb2.StopReplicaResponse
    | control_pb2.UpdateMetadataResponse
)


class ControlKind(Enum):
    """The three control requests. The value is the name of the gRPC method."""

    LEADER_AND_ISR = "LeaderAndIsr"
    STOP_REPLICA = "StopReplica"
    UPDATE_METADATA = "UpdateMetadata"


class NoControlResponse(Exception):
    """Raised when a control request got no answer in time, or no connection."""


class ControlTransport(Protocol):
    """Sends a control request to one broker and receives its answer."""

    async def send(
        self, peer: Peer, kind: ControlKind, body: bytes, timeout_ms: int
    ) -> ControlResponse:
        """Return the broker's answer.

        Raises:
            NoControlResponse: There is no answer within ``timeout_ms``.
        """


class ProbeTransport(Protocol):
    """Asks one broker whether it is reached."""

    async def probe(self, peer: Peer, tenure: ControllerTenure, timeout_ms: int) -> ControllerEpoch:
        """Return the newest controller epoch that the broker knows, or this one's if it does not
        say.

        Raises:
            NoControlResponse: There is no answer within ``timeout_ms``.
        """


class BrokerTransport(ControlTransport, ProbeTransport, Protocol):
    """Everything that a controller sends to brokers."""


_RESPONSES: dict[ControlKind, Any] = {
    ControlKind.LEADER_AND_ISR: control_pb2.LeaderAndIsrResponse,
    ControlKind.STOP_REPLICA: control_pb2.StopReplicaResponse,
    ControlKind.UPDATE_METADATA: control_pb2.UpdateMetadataResponse,
}


class GrpcControlTransport:
    """Sends control requests over gRPC. A request is already encoded and is sent as it is."""

    def __init__(self, channels: PeerChannels) -> None:
        self._channels = channels

    async def send(
        self, peer: Peer, kind: ControlKind, body: bytes, timeout_ms: int
    ) -> ControlResponse:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, Any]
        call = self._channels.get(peer).unary_unary(
            f"/quorate.v1.BrokerControl/{kind.value}",
            request_serializer=None,
            response_deserializer=_RESPONSES[kind].FromString,
        )
        try:
            response: ControlResponse = await call(body, timeout=timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            raise NoControlResponse(f"{error.code().name}: {error.details()}") from error
        return response

    async def probe(self, peer: Peer, tenure: ControllerTenure, timeout_ms: int) -> ControllerEpoch:
        stub = control_pb2_grpc.BrokerControlStub(self._channels.get(peer))
        request = control_pb2.ProbeRequest(
            controller_id=tenure.controller_id, controller_epoch=tenure.controller_epoch
        )
        try:
            response = await stub.Probe(request, timeout=timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            if error.code() in _UNREACHED:
                raise NoControlResponse(f"{error.code().name}: {error.details()}") from error
            return tenure.controller_epoch  # A broker that refuses a probe is reached.
        return ControllerEpoch(response.controller_epoch)
