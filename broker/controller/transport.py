"""Carries encoded control requests to a broker's BrokerControl service."""

from enum import Enum
from typing import Any, Protocol

import grpc.aio

from broker.peers import Peer, PeerChannels
from quorate_proto.v1 import control_pb2

ControlResponse = (
    control_pb2.LeaderAndIsrResponse
    | control_pb2.StopReplicaResponse
    | control_pb2.UpdateMetadataResponse
)


class ControlKind(Enum):
    """The three control requests; the value is the method's name."""

    LEADER_AND_ISR = "LeaderAndIsr"
    STOP_REPLICA = "StopReplica"
    UPDATE_METADATA = "UpdateMetadata"


class Unanswered(Exception):
    """A control request got no answer in time, or no connection."""


class ControlTransport(Protocol):
    """Sends a control request to one broker and brings back its answer."""

    async def send(
        self, peer: Peer, kind: ControlKind, body: bytes, timeout_ms: int
    ) -> ControlResponse:
        """The broker's answer.

        Raises:
            Unanswered: none within ``timeout_ms``.
        """


_RESPONSES: dict[ControlKind, Any] = {
    ControlKind.LEADER_AND_ISR: control_pb2.LeaderAndIsrResponse,
    ControlKind.STOP_REPLICA: control_pb2.StopReplicaResponse,
    ControlKind.UPDATE_METADATA: control_pb2.UpdateMetadataResponse,
}


class GrpcControlTransport:
    """Over gRPC. The request is bytes already and goes out as it is."""

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
            raise Unanswered(f"{error.code().name}: {error.details()}") from error
        return response
