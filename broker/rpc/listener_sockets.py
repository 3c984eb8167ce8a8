"""The sockets of one listener, whose TLS always uses the current certificate files.

New certificates are used by new asyncio servers on the same sockets. So the kernel continues to
accept, connected clients stay connected, and a handshake that has begun ends with the old
certificates.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol

from quorate.common.types import Endpoint

_BACKLOG: Final = 512
_HANDSHAKE_TIMEOUT_S: Final = 30.0
CERTIFICATE_CHECK_INTERVAL_S: Final = 2.0
"""The time between two checks of the files. There are only two files, and a check costs
microseconds.
"""


class RenewableTls(Protocol):
    """A TLS context that is replaced when its certificate files change."""

    @property
    def context(self) -> ssl.SSLContext: ...

    def renewed(self) -> bool:
        """Check the files, and return whether ``context`` is a new one."""


class ListenerSockets:
    """The sockets of one listener. ``connected`` creates the protocol of each accepted
    connection.
    """

    def __init__(
        self,
        connected: Callable[[], asyncio.BaseProtocol],
        tls: RenewableTls | None,
        check_interval_s: float = CERTIFICATE_CHECK_INTERVAL_S,
    ) -> None:
        self._connected = connected
        self._tls = tls
        self._check_interval_s = check_interval_s
        self._servers: list[asyncio.Server] = []
        self._sockets: list[socket.socket] = []
        self._renewal: asyncio.Task[None] | None = None

    async def start(self, listener: Endpoint) -> Endpoint:
        """Start to listen. Return the address, with the port that was chosen if the port is 0.

        Raises:
            OSError: the address cannot be bound. The message says which one.
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
        """Accept no more connections."""
        if self._renewal is not None:
            self._renewal.cancel()
        for server in self._servers:
            server.close()
        for one in self._sockets:
            one.close()

    async def wait_closed(self) -> None:
        """Wait until the sockets are closed."""
        if self._renewal is not None:
            await asyncio.gather(self._renewal, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()

    async def _keep_renewed(self, tls: RenewableTls) -> None:
        while True:
            await asyncio.sleep(self._check_interval_s)
            if tls.renewed():
                await self._renew_servers()

    async def _renew_servers(self) -> None:
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
    """Return a duplicate of the socket. Closing one of the two leaves the other open."""
    return socket.socket(fileno=os.dup(descriptor))
