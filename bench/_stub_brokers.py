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


class StubBrokers:
    """The stubs, as seen from the process of the bench."""

    def __init__(self, ports: list[int], pipe: Connection) -> None:
        self.ports = ports
        """The gRPC port of each, on loopback."""
        self._pipe = pipe

    def received_bytes(self) -> int:
        """Return the bytes of all requests that were received since the last call."""
        self._pipe.send(None)
        count: int = self._pipe.recv()
        return count


@contextmanager
def stub_brokers(count: int) -> Iterator[StubBrokers]:
    """Run ``count`` brokers until the context ends."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(count, there), daemon=True)
    process.start()
    try:
        yield StubBrokers(here.recv(), here)
    finally:
        here.close()
        process.terminate()
        process.join()


def _serve(count: int, pipe: Connection) -> None:
    asyncio.run(_Stubs(pipe).serve(count))


class _Stubs:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._received_bytes = 0

    async def serve(self, count: int) -> None:
        server = grpc.aio.server(options=list(GRPC_OPTIONS))
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(self._answering(answer.SerializeToString()))
            for name, answer in _ANSWERS.items()
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("quorate.v1.BrokerControl", handlers),)
        )
        ports = [server.add_insecure_port("127.0.0.1:0") for _ in range(count)]
        await server.start()
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._tell)
        self._pipe.send(ports)
        await server.wait_for_termination()

    def _tell(self) -> None:
        try:
            self._pipe.recv()
        except EOFError:
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            return
        self._pipe.send(self._received_bytes)
        self._received_bytes = 0

    def _answering(self, answer: bytes) -> Any:  # noqa: ANN401
        async def handle(request: bytes, _context: object) -> bytes:
            self._received_bytes += len(request)
            return answer

        return handle
