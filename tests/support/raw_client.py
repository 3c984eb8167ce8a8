"""A Kafka client of a few lines, for what real clients would never send."""

import socket
import struct
import time
from typing import NamedTuple

from crc32c import crc32c

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
PRODUCE_VERSION, FETCH_VERSION = 3, 4
TIMEOUT_S = 10.0


class RawClient:
    """One connection. A context manager."""

    def __init__(self, address: str, client_id: str = "test") -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._correlation_id = 0
        self._client_id = client_id

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._socket.close()

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def is_closed_by_peer(self) -> bool:
        """Whether the broker ends the connection, rather than answer."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def call(self, api_key: int, version: int, body: bytes) -> bytes:
        """The response's body, behind its correlation id."""
        self.send(api_key, version, body)
        return self.receive()

    def send(self, api_key: int, version: int, body: bytes) -> None:
        """A request whose answer is received later: one at a time."""
        self._correlation_id += 1
        header = struct.pack(">hhi", api_key, version, self._correlation_id) + string(
            self._client_id
        )
        self._socket.sendall(frame(header + body))

    def receive(self) -> bytes:
        """The body of the answer to the last request."""
        (size,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(size)
        (correlation_id,) = struct.unpack_from(">i", answer)
        assert correlation_id == self._correlation_id
        return answer[4:]

    def is_served(self) -> bool:
        """Whether an ApiVersions request is answered."""
        (error,) = struct.unpack_from(">h", self.call(API_VERSIONS, 0, b""))
        return bool(error == 0)

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self._socket.recv(count - len(data))
            if not chunk:
                raise ConnectionResetError("the broker closed the connection")
            data += chunk
        return bytes(data)


class ProduceAnswer(NamedTuple):
    """Answer for one partition."""

    error_code: int
    base_offset: int


class FetchAnswer(NamedTuple):
    """Answer for one partition."""

    error_code: int
    high_watermark: int
    records: bytes


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def record_batch(*values: bytes) -> bytearray:
    """A valid, uncompressed record batch v2 with one record per value, without keys."""
    now_ms = int(time.time() * 1000)
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
    checked = struct.pack(">hiqqqhii", 0, len(values) - 1, now_ms, now_ms, -1, -1, -1, len(values))
    checked += records
    head = struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked))
    return bytearray(head + checked)


def _record(offset_delta: int, value: bytes) -> bytes:
    body = b"\0" + _varint(0) + _varint(offset_delta) + _varint(-1) + _varint(len(value))
    body += value + _varint(0)
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    """Zigzag, as records spell their numbers."""
    rest = ((number << 1) ^ (number >> 31)) & 0xFFFFFFFF
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def produce(
    client: RawClient,
    topic: str,
    partition: int,
    records: bytes | bytearray,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceAnswer:
    """Produce v3 of one partition."""
    send_produce(client, topic, partition, records, acks=acks, transactional_id=transactional_id)
    return receive_produced(client, topic)


def send_produce(
    client: RawClient,
    topic: str,
    partition: int,
    records: bytes | bytearray,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
) -> None:
    """Produce v3 of one partition, to be answered by ``receive_produced``."""
    body = struct.pack(">h", -1) if transactional_id is None else string(transactional_id)
    body += struct.pack(">hii", acks, int(TIMEOUT_S * 1000), 1) + string(topic)
    body += struct.pack(">iii", 1, partition, len(records)) + records
    client.send(PRODUCE, PRODUCE_VERSION, body)


def receive_produced(client: RawClient, topic: str) -> ProduceAnswer:
    answer = client.receive()
    at = 4 + 2 + len(topic) + 4
    _, error_code, base_offset = struct.unpack_from(">ihq", answer, at)
    return ProduceAnswer(error_code, base_offset)


def fetch(
    client: RawClient, topic: str, partition: int, offset: int, *, max_wait_ms: int = 0
) -> FetchAnswer:
    """Fetch v4 of one partition, as a consumer."""
    body = struct.pack(">iiiibi", -1, max_wait_ms, 1, 1 << 20, 0, 1) + string(topic)
    body += struct.pack(">iiqi", 1, partition, offset, 1 << 20)
    answer = client.call(FETCH, FETCH_VERSION, body)
    at = 4 + 4 + 2 + len(topic) + 4
    _, error_code, high_watermark, _, aborted = struct.unpack_from(">ihqqi", answer, at)
    at += 4 + 2 + 8 + 8 + 4 + max(0, aborted) * 16
    (size,) = struct.unpack_from(">i", answer, at)
    return FetchAnswer(error_code, high_watermark, answer[at + 4 : at + 4 + max(0, size)])
