"""Brokers that say yes to every control request and keep nothing, all in one process."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

import grpc.aio

from quorate.broker.rpc.peer_channels import GRPC_OPTIONS
from quorate_proto.v1 import control_pb2

_ANSWERS: Final = {
    "LeaderAndIsr": control_pb2.LeaderAndIsrResponse(),
    "StopReplica": control_pb2.StopReplicaResponse(),
    "UpdateMetadata": control_pb2.UpdateMetadataResponse(),
}


@contextmanager
def stub_brokers(count: int) -> Iterator[list[int]]:
    """The gRPC ports of ``count`` brokers on loopback, until the context ends."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(count, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        here.close()
        process.terminate()
        process.join()


def _serve(count: int, pipe: Connection) -> None:
    asyncio.run(_serve_on_ports(count, pipe))


async def _serve_on_ports(count: int, pipe: Connection) -> None:
    server = grpc.aio.server(options=list(GRPC_OPTIONS))
    handlers: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(_answering(answer.SerializeToString()))
        for name, answer in _ANSWERS.items()
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("quorate.v1.BrokerControl", handlers),)
    )
    ports = [server.add_insecure_port("127.0.0.1:0") for _ in range(count)]
    await server.start()
    pipe.send(ports)
    await server.wait_for_termination()


def _answering(answer: bytes) -> Any:  # noqa: ANN401
    async def handle(_request: bytes, _context: object) -> bytes:
        return answer

    return handle
