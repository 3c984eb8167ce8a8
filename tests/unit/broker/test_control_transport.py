"""A controller's probes over real gRPC: whatever answers is reached."""

from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from quorate.broker.controller.channels.control_transport import (
    GrpcControlTransport,
    NoControlResponse,
)
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.rpc.peer_channels import Peer, PeerChannels, open_channel
from quorate.common.types import BrokerId, ControllerEpoch, Endpoint
from quorate_proto.v1 import control_pb2

TENURE = ControllerTenure(BrokerId(1), ControllerEpoch(4))
TIMEOUT_MS = 5_000


async def probe(request: control_pb2.ProbeRequest, _context: object) -> control_pb2.ProbeResponse:
    """As a broker that knows controller epoch 9."""
    assert (request.controller_id, request.controller_epoch) == TENURE
    return control_pb2.ProbeResponse(controller_epoch=9)


def probed() -> grpc.GenericRpcHandler:
    handler = grpc.unary_unary_rpc_method_handler(
        probe, control_pb2.ProbeRequest.FromString, control_pb2.ProbeResponse.SerializeToString
    )
    return grpc.method_handlers_generic_handler("quorate.v1.BrokerControl", {"Probe": handler})


@pytest.fixture
async def server() -> AsyncIterator[grpc.aio.Server]:
    server = grpc.aio.server()
    yield server
    await server.stop(None)


@pytest.fixture
async def transport() -> AsyncIterator[GrpcControlTransport]:
    channels = PeerChannels(open_channel)
    yield GrpcControlTransport(channels)
    await channels.close()


async def started(server: grpc.aio.Server) -> Peer:
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return Peer(BrokerId(2), Endpoint("127.0.0.1", port))


async def test_e3_a_probe_tells_the_newest_controller_epoch(
    server: grpc.aio.Server, transport: GrpcControlTransport
) -> None:
    server.add_generic_rpc_handlers((probed(),))
    assert await transport.probe(await started(server), TENURE, TIMEOUT_MS) == 9


async def test_a_broker_of_an_earlier_version_is_reached(
    server: grpc.aio.Server, transport: GrpcControlTransport
) -> None:
    assert await transport.probe(await started(server), TENURE, TIMEOUT_MS) == 4


async def test_where_nobody_answers_is_no_broker(
    server: grpc.aio.Server, transport: GrpcControlTransport
) -> None:
    peer = await started(server)
    await server.stop(None)
    with pytest.raises(NoControlResponse):
        await transport.probe(peer, TENURE, TIMEOUT_MS)
