"""The smallest Kafka listener: it answers DescribeCluster v0, and whatever a test wants instead."""

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from quorate.client.bootstrap import GRPC_ENDPOINT_TAG, BrokerEndpoints


def unsigned_varint(value: int) -> bytes:
    """Kafka's varint of lengths and tags."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def compact(text: str) -> bytes:
    """A compact string."""
    raw = text.encode()
    return unsigned_varint(len(raw) + 1) + raw


def describe_cluster_response(
    brokers: Sequence[BrokerEndpoints], *, cluster_id: str = "test", controller_id: int = 1
) -> bytes:
    """The response, without its size prefix."""
    encoded = unsigned_varint(len(brokers) + 1)
    for broker in brokers:
        host, _, port = broker.kafka.rpartition(":")
        tag = unsigned_varint(GRPC_ENDPOINT_TAG)
        grpc = broker.grpc.encode()
        tags = b"\x01" + tag + unsigned_varint(len(grpc)) + grpc if grpc else b"\x00"
        encoded += struct.pack(">i", broker.broker_id) + compact(host)
        encoded += struct.pack(">i", int(port)) + b"\x00" + tags
    return b"".join(
        (
            struct.pack(">i", 1) + b"\x00",
            struct.pack(">ih", 0, 0) + b"\x00",
            compact(cluster_id),
            struct.pack(">i", controller_id),
            encoded,
            struct.pack(">i", -(1 << 31)) + b"\x00",
        )
    )


class DescribeClusterServer:
    """Answers every request on its loopback port with what ``respond`` gives at that moment."""

    def __init__(self, respond: Callable[[], bytes]) -> None:
        self._respond = respond
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Closing a socket does not wake a thread that accepts on it; shutting it down does.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                (size,) = struct.unpack(">i", _exactly(connection, 4))
                self.requests.append(_exactly(connection, size))
                response = self._respond()
                connection.sendall(struct.pack(">i", len(response)) + response)


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        received += connection.recv(size - len(received))
    return received
