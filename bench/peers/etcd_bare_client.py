"""A client of etcd's ``Put`` that costs little: one asyncio connection, HTTP/2 frames by hand.

grpcio takes some 65 µs per write, as much as etcd's leader; what etcd can do shows by this one. Of
HTTP/2 it knows what small unary calls of one method need: header blocks that never change, and the
server's window for all that is sent.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable
from typing import Final, Self, cast

from bench.peers.closed_loop import await_writes
from bench.peers.contender import Client, key, value
from bench.peers.etcd_client import PUT, put_request

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_FRAME: Final = struct.Struct(">BHBBI")
"""Length (its high byte, the low two), type, flags, stream."""
_MESSAGE: Final = struct.Struct(">BI")
"""gRPC: whether compressed, length."""
_INT: Final = struct.Struct(">I")
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_INITIAL_WINDOW: Final = 65_535
_MAX_WINDOW: Final = 2**31 - 1

# HPACK (RFC 7541). The first call puts four fields into the server's table, most recent first from
# 62 on; all calls after it only name them.
_POST_HTTP: Final = b"\x83\x86"
_FIRST_HEADERS: Final = _POST_HTTP + b"".join(
    name + bytes((len(content),)) + content
    for name, content in (
        (b"\x44", PUT.encode()),
        (b"\x41", b"etcd"),
        (b"\x5f", b"application/grpc"),
        (b"\x40\x02te", b"trailers"),
    )
)
_SAME_HEADERS: Final = _POST_HTTP + bytes(0x80 | index for index in (65, 64, 63, 62))


class EtcdError(RuntimeError):
    """etcd refused a request, or the connection is gone."""


class BareEtcdWriter(Client):
    """Puts to one node."""

    def __init__(self, connection: "PutConnection") -> None:
        self._connection = connection

    @classmethod
    async def connect(cls, port: int) -> Self:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(PutConnection, "127.0.0.1", port)
        return cls(connection)

    async def close(self) -> None:
        self._connection.close()

    async def write_for(self, seconds: float, in_flight: int) -> list[float]:
        return await await_writes(self._write, seconds, in_flight)

    def _write(self, number: int) -> Awaitable[None]:
        return self._connection.put(put_request(key(number), value(number)))


class PutConnection(asyncio.Protocol):
    """Calls of ``Put``, side by side as streams of one connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._answered: set[int] = set()
        """Streams whose message came; the headers that end the stream are still to come."""
        self._received = bytearray()
        self._output: deque[tuple[bytes, int]] = deque()
        """The frames to send, each with the bytes that it takes of the flow-control window."""
        self._window = _INITIAL_WINDOW
        self._next_stream = 1
        self._headers = _FIRST_HEADERS
        self._transport: asyncio.Transport

    def close(self) -> None:
        self._transport.abort()

    def put(self, request: bytes) -> asyncio.Future[None]:
        """Acknowledged when it resolves; EtcdError if etcd answers without a message."""
        future: asyncio.Future[None] = self._loop.create_future()
        stream = self._next_stream
        self._next_stream += 2
        self._waiting[stream] = future
        headers = _frame(_HEADERS, _END_HEADERS, stream, self._headers)
        self._headers = _SAME_HEADERS
        message = _MESSAGE.pack(False, len(request)) + request
        if not self._output:
            self._loop.call_soon(self._flush)
        frames = headers + _frame(_DATA, _END_STREAM, stream, message)
        self._output.append((frames, len(message)))
        return future

    def _flush(self) -> None:
        output = self._output
        ready = []
        while output and output[0][1] <= self._window:
            frames, length = output.popleft()
            self._window -= length
            ready.append(frames)
        if ready:
            self._transport.write(b"".join(ready))

    # -- asyncio.Protocol ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        window = _INT.pack(_MAX_WINDOW - _INITIAL_WINDOW)
        frames = _frame(_SETTINGS, 0, 0, b"") + _frame(_WINDOW_UPDATE, 0, 0, window)
        self._transport.write(_PREFACE + frames)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        at = 0
        while at + _FRAME.size <= len(received):
            high, low, kind, flags, stream = _FRAME.unpack_from(received, at)
            end = at + _FRAME.size + (high << 16 | low)
            if end > len(received):
                break
            if kind == _DATA:
                self._answered.add(stream)
            elif kind == _HEADERS:
                if flags & _END_STREAM:
                    self._finish(stream)
            else:
                self._on_control(kind, flags, stream, bytes(received[at + _FRAME.size : end]))
            at = end
        del received[:at]

    def _finish(self, stream: int) -> None:
        future = self._waiting.pop(stream)
        refused = stream not in self._answered
        self._answered.discard(stream)
        if future.done():
            return
        if refused:
            future.set_exception(EtcdError("the put was refused"))
        else:
            future.set_result(None)

    def _on_control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _WINDOW_UPDATE and stream == 0:
            self._window += _INT.unpack(payload)[0]
            self._flush()
        elif kind in (_SETTINGS, _PING) and not flags & _ACK:
            answer = payload if kind == _PING else b""
            self._transport.write(_frame(kind, _ACK, 0, answer))
        elif kind == _RST_STREAM:
            self._finish(stream)
        elif kind == _GOAWAY:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EtcdError(f"the connection is lost: {error or 'closed'}"))
        self._waiting.clear()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    length = len(payload)
    return _FRAME.pack(length >> 16, length & 0xFFFF, kind, flags, stream) + payload
