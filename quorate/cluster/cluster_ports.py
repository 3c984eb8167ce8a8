"""The ports of a local cluster: checked or chosen, and held until the processes start that use
them."""

import itertools
import os
import random
import socket
from collections.abc import Iterator
from typing import Final

from quorate.cluster.local_cluster_errors import LocalClusterError

HOST: Final = "127.0.0.1"

_LOWEST, _HIGHEST = 10_000, 32_000
"""The range from which ports are chosen. It is below the range from which Linux takes the local
ports of outgoing connections: any client could take such a port while its broker restarts."""
_STRETCH: Final = 250
_CHANCE: Final = random.SystemRandom()
"""A generator of our own: test runners seed the module's generator to the same value in each
process."""
_of_process: dict[int, Iterator[int]] = {}
"""The ports by process id, so that a forked process does not use those of its parent."""


def _own_ports() -> Iterator[int]:
    """Return the ports that no other process chooses while this one lives, in an endless cycle."""
    process = os.getpid()
    if process not in _of_process:
        _of_process[process] = lease_stretch()
    return _of_process[process]


def lease_stretch() -> Iterator[int]:
    """Lease a range of ports for this process alone, as long as it lives; yield them in an endless
    cycle.

    A port that is free when it is chosen may be taken before its server listens there, and again
    whenever that server restarts. Two processes that start clusters at the same time would do that
    to each other. Therefore each process has a range of its own: the process that holds the UDP
    port of a number owns the range.

    Raises:
        LocalClusterError: all ranges are leased.
    """
    starts = list(range(_LOWEST, _HIGHEST, _STRETCH))
    _CHANCE.shuffle(starts)
    for start in starts:
        lease = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            lease.bind((HOST, start))
        except OSError:
            lease.close()
            continue
        lease.detach()  # It ends with the process, whoever forgets about it.
        return itertools.cycle(range(start, start + _STRETCH))
    raise LocalClusterError(
        f"{len(starts)} processes that start clusters share the ports {_LOWEST} to {_HIGHEST} of "
        f"{HOST}: stop some of them, or choose the ports with --port"
    )


class PortReservation:
    """Ports that are bound, but not listened on, until ``release()``. It is a context manager."""

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
        """Reserve exactly this port.

        Raises:
            LocalClusterError: the port is taken; names port, use and remedy.
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
        """Reserve the first free port at or above ``first``."""
        for port in range(min(first, 65_000), 65_536):
            if self._bind(port):
                return port
        raise LocalClusterError(f"no free port at or above {first} on {self._host}")

    def claim_any(self) -> int:
        """Reserve any free port that no other process chooses at the same time.

        Raises:
            LocalClusterError: none of the ports that this process may choose is free.
        """
        ports = _own_ports()
        for port in itertools.islice(ports, _STRETCH):
            if self._bind(port):
                return port
        raise LocalClusterError(f"no free port on {self._host} from {next(ports)} on")

    def _bind(self, port: int) -> bool:
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Connections of an earlier process in TIME_WAIT must not make the port count as taken.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((self._host, port))
            # A socket that is only bound does not stop another one with SO_REUSEADDR from binding.
            held.listen(1)
        except OSError:
            held.close()
            return False
        self._sockets.append(held)
        return True
