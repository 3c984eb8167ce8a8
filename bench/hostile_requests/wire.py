"""Raw connections to a broker that asks who its clients are: log in, ask, and leave."""

import socket
import struct
from typing import Any, Final

from tests.support.kafka_wire import Values, read_answer, request_frame, sized
from tests.support.raw_client import string

PASSWORD: Final = "the same for all"
TIMEOUT_S: Final = 60.0
_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36


class Wire:
    """One connection, in blocking calls. A context manager."""

    def __init__(self, address: str, user: str | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if user is not None:
            self._log_in(user)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.socket.close()

    @property
    def port(self) -> int:
        """The port on this side, which the broker's log names."""
        return int(self.socket.getsockname()[1])

    def ask(self, key: int, version: int, values: Values) -> Any:  # noqa: ANN401 - of kio
        """The response to a request of kio's words."""
        self.socket.sendall(sized(request_frame(key, version, values)))
        return read_answer(key, version, self.answer())[1]

    def call(self, key: int, version: int, body: bytes) -> bytes:
        """The answer to a request that is not flexible, behind its correlation id."""
        header = struct.pack(">hhi", key, version, 1) + string("hostile")
        self.socket.sendall(sized(header + body))
        return self.answer()[4:]

    def answer(self) -> bytes:
        """The next answer without its size.

        Raises:
            OSError: the broker closed the connection, or does not answer.
        """
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self.socket.recv(min(1 << 20, count - len(data)))
            if not chunk:
                raise ConnectionResetError("the broker closed the connection")
            data += chunk
        return bytes(data)

    def _log_in(self, user: str) -> None:
        self.call(_HANDSHAKE, 1, string("PLAIN"))
        token = f"\0{user}\0{PASSWORD}".encode()
        answer = self.call(_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        if answer[:2] != b"\0\0":
            raise ConnectionRefusedError(f"{user} may not log in: {answer!r}")
