"""Ports of a local cluster: checked or chosen, and held until the processes that use them start."""

import itertools
import os
import random
import socket
from collections.abc import Iterator
from typing import Final

from quorate.cluster.errors import LocalClusterError

HOST: Final = "127.0.0.1"

_LOWEST, _HIGHEST = 10_000, 32_000
"""Below the range from which Linux takes the local ports of outgoing connections: a port chosen
there could be taken by any client while its broker restarts."""
_STRETCH: Final = 250
_CHANCE: Final = random.SystemRandom()
"""Not the module's own: test runners seed that, alike in each of their processes."""
_of_process: dict[int, Iterator[int]] = {}
"""By process id: one that was forked has none yet."""


def _own_ports() -> Iterator[int]:
    """Ports that no other process chooses while this one lives, round and round."""
    process = os.getpid()
    if process not in _of_process:
        _of_process[process] = lease_stretch()
    return _of_process[process]


def lease_stretch() -> Iterator[int]:
    """A stretch of ports for this process alone, as long as it lives, round and round.

    A port that is free when it is chosen may be taken before its server listens there, and again
    whenever that one restarts. Two processes that start clusters at the same time do that to each
    other, so each has ports of its own: whoever holds the UDP port of that number has a stretch.

    Raises:
        LocalClusterError: all are leased.
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
        """Any free port, which no other process chooses meanwhile.

        Raises:
            LocalClusterError: none of those that this process may choose from is free.
        """
        ports = _own_ports()
        for port in itertools.islice(ports, _STRETCH):
            if self._bind(port):
                return port
        raise LocalClusterError(f"no free port on {self._host} from {next(ports)} on")

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
