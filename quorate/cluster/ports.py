"""Ports of a local cluster: checked or chosen, and held until the processes that use them start."""

import random
import socket
from typing import Final

from quorate.cluster.errors import LocalClusterError

HOST: Final = "127.0.0.1"

_LOWEST, _HIGHEST = 10_000, 32_000
"""Below the range from which Linux takes the local ports of outgoing connections: a port chosen
there could be taken by any client while its broker restarts."""
_CHANCE: Final = random.SystemRandom()
"""Not the module's own: test runners seed that, alike in each of their processes, and clusters
that start at the same time would choose the same ports."""


class PortReservation:
    """Ports bound, not listened on, until ``release()``. A context manager."""

    def __init__(self, host: str = HOST) -> None:
        self._host = host
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> "PortReservation":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def release(self) -> None:
        for held in self._sockets:
            held.close()
        self._sockets.clear()

    def claim(self, port: int, what: str, remedy: str) -> int:
        """Exactly this port.

        Raises:
            LocalClusterError: it is taken; names port, use and remedy.
        """
        if not 0 < port <= 65_535:
            raise LocalClusterError(f"port {port} ({what}) is not between 1 and 65535: {remedy}")
        if not self._bind(port):
            raise LocalClusterError(
                f"port {port} on {self._host} ({what}) is already in use: "
                f"stop what listens there, or {remedy}"
            )
        return port

    def claim_from(self, first: int) -> int:
        """The first free port at or above ``first``."""
        for port in range(min(first, 65_000), 65_536):
            if self._bind(port):
                return port
        raise LocalClusterError(f"no free port at or above {first} on {self._host}")

    def claim_any(self) -> int:
        """Any free port; chosen at random so that clusters started together do not collide."""
        for _ in range(1_000):
            port = _CHANCE.randrange(_LOWEST, _HIGHEST)
            if self._bind(port):
                return port
        raise LocalClusterError(f"no free port from {_LOWEST} to {_HIGHEST} on {self._host}")

    def _bind(self, port: int) -> bool:
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Connections of an earlier process in TIME_WAIT do not make a port taken.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((self._host, port))
            # A bound socket alone does not stop another one with SO_REUSEADDR from binding.
            held.listen(1)
        except OSError:
            held.close()
            return False
        self._sockets.append(held)
        return True
