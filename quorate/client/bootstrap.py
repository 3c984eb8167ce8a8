"""Finds the gRPC endpoints of a cluster through a Kafka bootstrap address.

Users know the address of the Kafka listener; readers of ranges and the admin client need the gRPC
address. A DescribeCluster v0 request (API 60) over the Kafka protocol returns both: every broker of
the response carries the tagged field 10000, its gRPC ``host:port`` in UTF-8. Kafka clients ignore
unknown tags, so the same answer serves them.

The one request is written and read by hand, because an executor must not need a Kafka codec for it.
"""

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from quorate.client.sasl_client import LoginFailed, login
from quorate.client.security import ClientSecurity

DEFAULT_KAFKA_PORT = 9092
DESCRIBE_CLUSTER_API_KEY = 60
SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36
GRPC_ENDPOINT_TAG = 10000
ILLEGAL_SASL_STATE = 34
RESPONSE_BYTES_MAX = 16 * 1024 * 1024

T = TypeVar("T")

_CLIENT_ID = b"quorate"
_CORRELATION_ID = 1


class BootstrapError(ConnectionError):
    """No bootstrap server described the cluster; the message names all servers that were tried."""


class MalformedResponse(ValueError):
    """The answer of a server is not a valid DescribeCluster v0 response."""


@dataclass(frozen=True, slots=True)
class BrokerEndpoints:
    """A live broker and its addresses, each as ``host:port``."""

    broker_id: int
    kafka: str
    grpc: str
    """Empty if the broker did not tell it; then it is not a Quorate broker."""


@dataclass(frozen=True, slots=True)
class ClusterEndpoints:
    """The answer to DescribeCluster; ``controller_id`` is -1 while there is no controller."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerEndpoints, ...]


def discover(
    bootstrap_servers: str,
    *,
    timeout_ms: int = 10_000,
    security: ClientSecurity = ClientSecurity(),  # noqa: B008 - frozen
) -> ClusterEndpoints:
    """Ask the servers one after the other, and return the first answer.

    Args:
        bootstrap_servers: Kafka's ``bootstrap.servers``: ``"host:port,host:port"``.
        timeout_ms: for all servers together; each gets an equal share of the remaining time.
        security: for the servers' Kafka listeners.

    Raises:
        BootstrapError: no server answered; names every one with its reason.
        InvalidOption: a file of ``security`` cannot be used.
        LoginFailed: a server refused the user.
        ValueError: an address cannot be parsed, or there is none.
    """
    return ask_any(
        bootstrap_servers,
        encode_request(),
        decode_response,
        timeout_ms=timeout_ms,
        security=security,
    )


def ask_any(
    bootstrap_servers: str,
    request: bytes,
    decode: Callable[[bytes], T],
    *,
    timeout_ms: int = 10_000,
    security: ClientSecurity = ClientSecurity(),  # noqa: B008 - frozen
) -> T:
    """Send a Kafka request to one server after the other, and return the first decoded answer.

    Raises:
        BootstrapError, InvalidOption, LoginFailed, ValueError: as `discover`.
    """
    servers = parse_servers(bootstrap_servers)
    deadline = time.monotonic() + timeout_ms / 1000
    failures: list[str] = []
    for index, (host, port) in enumerate(servers):
        share_seconds = max(0.05, (deadline - time.monotonic()) / (len(servers) - index))
        try:
            return decode(_ask(host, port, share_seconds, security, request))
        except (OSError, MalformedResponse) as error:
            failures.append(f"{format_address(host, port)} ({str(error) or type(error).__name__})")
    raise BootstrapError(
        f"no bootstrap server answered; tried {', '.join(failures)}: check bootstrap.servers, and "
        "that the brokers run"
    )


def parse_servers(bootstrap_servers: str) -> list[tuple[str, int]]:
    """Parse ``"a:9092,[::1]:9093"`` into (host, port) pairs; the default port is Kafka's 9092."""
    servers = [
        _parse_address(part.strip()) for part in bootstrap_servers.split(",") if part.strip()
    ]
    if not servers:
        raise ValueError(f"bootstrap.servers names no server: {bootstrap_servers!r}")
    return servers


def format_address(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def encode_request() -> bytes:
    """Return a DescribeCluster v0 request with its size prefix (request header v2)."""
    header = struct.pack(
        f">hhih{len(_CLIENT_ID)}sB",
        DESCRIBE_CLUSTER_API_KEY,
        0,
        _CORRELATION_ID,
        len(_CLIENT_ID),
        _CLIENT_ID,
        0,
    )
    frame = header + b"\x00\x00"  # include_cluster_authorized_operations = false; no tags
    return struct.pack(">i", len(frame)) + frame


def decode_response(frame: bytes) -> ClusterEndpoints:
    """Decode a DescribeCluster v0 response without its size prefix (response header v1).

    Raises:
        MalformedResponse: the frame is no such response, or it carries an error code.
    """
    reader = Reader(frame)
    correlation_id = reader.int32()
    if correlation_id != _CORRELATION_ID:
        raise MalformedResponse(f"correlation id {correlation_id}, expected {_CORRELATION_ID}")
    reader.tags()
    reader.int32()  # throttle_time_ms
    error_code, error_message = reader.int16(), reader.string()
    if error_code == ILLEGAL_SASL_STATE:
        raise MalformedResponse(
            "it asks who you are: set security.protocol to SASL_PLAINTEXT or SASL_SSL, "
            "sasl.username and sasl.password"
        )
    if error_code:
        raise MalformedResponse(f"Kafka error code {error_code}: {error_message}")
    cluster_id, controller_id = reader.string(), reader.int32()
    brokers = tuple(_decode_broker(reader) for _ in range(reader.unsigned_varint() - 1))
    return ClusterEndpoints(cluster_id, controller_id, brokers)


def _decode_broker(reader: "Reader") -> BrokerEndpoints:
    broker_id, host, port = reader.int32(), reader.string(), reader.int32()
    reader.string()  # rack
    grpc = reader.tags().get(GRPC_ENDPOINT_TAG, b"")
    return BrokerEndpoints(broker_id, format_address(host, port), grpc.decode("utf-8", "replace"))


def _parse_address(text: str) -> tuple[str, int]:
    host, port_text = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port_text = rest.removeprefix(":")
    elif ":" in text:
        host, _, port_text = text.rpartition(":")
    if not host or (port_text and not port_text.isdecimal()) or int(port_text or 1) > 65535:
        raise ValueError(f"bootstrap server {text!r} is not host:port")
    return host, int(port_text or DEFAULT_KAFKA_PORT)


def _ask(
    host: str, port: int, timeout_seconds: float, security: ClientSecurity, request: bytes
) -> bytes:
    deadline = time.monotonic() + timeout_seconds
    with (
        socket.create_connection((host, port), timeout=timeout_seconds) as plain,
        security.wrap(plain, host) as connection,
    ):
        if security.has_user:
            _log_in(connection, security, deadline)
        return _exchange(connection, request, deadline)


def _log_in(connection: socket.socket, security: ClientSecurity, deadline: float) -> None:
    """Send SaslHandshake v1, then SaslAuthenticate v1 until both sides are authenticated."""
    mechanism = kafka_string(security.mechanism.encode())
    answer = Reader(
        _exchange(connection, encode_kafka_request(SASL_HANDSHAKE, 1, mechanism), deadline)
    )
    answer.int32()
    if answer.int16():
        raise LoginFailed(f"the broker does not offer SASL {security.mechanism}")
    exchange = login(security.mechanism, security.username, security.password)
    token = next(exchange)
    while True:
        body = struct.pack(">i", len(token)) + token
        answer = Reader(
            _exchange(connection, encode_kafka_request(SASL_AUTHENTICATE, 1, body), deadline)
        )
        answer.int32()
        if answer.int16():
            raise LoginFailed(f"user {security.username!r} or the password is refused")
        answer.take(max(0, answer.int16()))
        try:
            token = exchange.send(answer.take(answer.int32()))
        except StopIteration:
            return


def encode_kafka_request(api_key: int, version: int, body: bytes) -> bytes:
    """Return a request with its size prefix (request header v1)."""
    header = struct.pack(">hhi", api_key, version, _CORRELATION_ID)
    frame = header + kafka_string(_CLIENT_ID) + body
    return struct.pack(">i", len(frame)) + frame


def kafka_string(text: bytes) -> bytes:
    """Encode a string in Kafka's older encoding: a length of two bytes, then the text."""
    return struct.pack(">h", len(text)) + text


def _exchange(connection: socket.socket, request: bytes, deadline: float) -> bytes:
    """Send a request, and return the frame of the answer."""
    connection.sendall(request)
    (size,) = struct.unpack(">i", _receive(connection, 4, deadline))
    if not 0 < size <= RESPONSE_BYTES_MAX:
        raise MalformedResponse(f"response of {size} bytes: is this a Kafka listener?")
    return _receive(connection, size, deadline)


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Receive exactly ``size`` bytes; a server that sends too slowly is also cut off at the
    deadline."""
    received = bytearray()
    while len(received) < size:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(remaining)
        chunk = connection.recv(min(size - len(received), 1 << 16))
        if not chunk:
            raise MalformedResponse(f"connection closed after {len(received)} of {size} bytes")
        received += chunk
    return bytes(received)


class Reader:
    """Reads Kafka's flexible encoding; every read is checked against the end of the frame."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._frame):
            raise MalformedResponse(
                f"a field of {size} bytes at {self._position} runs past the end of the response "
                f"({len(self._frame)} bytes)"
            )
        taken = self._frame[self._position : end]
        self._position = end
        return taken

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def unsigned_varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedResponse("a varint of more than five bytes")

    def string(self) -> str:
        """Read a compact string; null becomes the empty string."""
        size = self.unsigned_varint()
        return self.take(size - 1).decode("utf-8", "replace") if size else ""

    def tags(self) -> dict[int, bytes]:
        return {
            self.unsigned_varint(): self.take(self.unsigned_varint())
            for _ in range(self.unsigned_varint())
        }
