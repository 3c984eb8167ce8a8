"""One listener's sockets, and its TLS as the files say it now.

New certificates come with new servers on the same sockets: the kernel goes on accepting, who is
connected stays, and a handshake that has begun ends as it began.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, Final

from broker.security.tls import ListenerTls
from metadata_log.types import Endpoint

_BACKLOG: Final = 512
_HANDSHAKE_TIMEOUT_S: Final = 30.0
CERTIFICATE_CHECK_INTERVAL_S: Final = 2.0
"""Between two looks at the files: there are two, and looking costs microseconds."""


class Listening:
    """``connected`` makes the protocol of each accepted connection."""

    def __init__(
        self,
        connected: Callable[[], asyncio.BaseProtocol],
        tls: ListenerTls | None,
        check_interval_s: float = CERTIFICATE_CHECK_INTERVAL_S,
    ) -> None:
        self._connected = connected
        self._tls = tls
        self._check_interval_s = check_interval_s
        self._servers: list[asyncio.Server] = []
        self._sockets: list[socket.socket] = []
        self._renewal: asyncio.Task[None] | None = None

    async def start(self, listener: Endpoint) -> Endpoint:
        """Listens; returns where, with the port that was given for port 0.

        Raises:
            OSError: the address can't be bound; says which.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            self._connected, listener.host, listener.port, backlog=_BACKLOG, **self._secured()
        )
        self._servers = [server]
        bound = Endpoint(listener.host, server.sockets[0].getsockname()[1])
        if self._tls is not None:
            self._sockets = [_same_socket(one.fileno()) for one in server.sockets]
            self._renewal = loop.create_task(self._keep_renewed(self._tls), name="certificates")
        return bound

    def close(self) -> None:
        """Accepts no more."""
        if self._renewal is not None:
            self._renewal.cancel()
        for server in self._servers:
            server.close()
        for one in self._sockets:
            one.close()

    async def wait_closed(self) -> None:
        """Until the sockets are."""
        if self._renewal is not None:
            await asyncio.gather(self._renewal, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()

    async def _keep_renewed(self, tls: ListenerTls) -> None:
        while True:
            await asyncio.sleep(self._check_interval_s)
            if tls.renewed():
                await self._serve_anew()

    async def _serve_anew(self) -> None:
        loop = asyncio.get_running_loop()
        before, self._servers = self._servers, []
        for one in self._sockets:
            server = await loop.create_server(
                self._connected,
                sock=_same_socket(one.fileno()),
                backlog=_BACKLOG,
                **self._secured(),
            )
            self._servers.append(server)
        for server in before:
            server.close()

    def _secured(self) -> dict[str, Any]:
        if self._tls is None:
            return {}
        return {"ssl": self._tls.context, "ssl_handshake_timeout": _HANDSHAKE_TIMEOUT_S}


def _same_socket(descriptor: int) -> socket.socket:
    """The same socket again: closing one leaves the other."""
    return socket.socket(fileno=os.dup(descriptor))
