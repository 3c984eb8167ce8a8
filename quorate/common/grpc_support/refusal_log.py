"""Logs a refused peer once: an attacker, or a wrongly configured node, tries again and again."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

MAX_PEERS: Final = 256
FORGET_AFTER_S: Final = 3600.0


class RefusalLog:
    """Logs one line per peer host and hour. Use it from any thread; it remembers ``MAX_PEERS`` at
    most.
    """

    def __init__(self, port_name: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Create the log; ``port_name`` tells people which port refuses."""
        self._port_name = port_name
        self._clock_s = clock_s
        self._peers: set[str] = set()
        self._since_s = clock_s()
        self._lock = threading.Lock()

    def refused(self, host: str, why: str) -> None:
        """Log that a peer was refused, unless that host was logged lately."""
        with self._lock:
            now = self._clock_s()
            if now - self._since_s > FORGET_AFTER_S:
                self._peers.clear()
                self._since_s = now
            if host in self._peers or len(self._peers) > MAX_PEERS:
                return
            self._peers.add(host)
            is_full = len(self._peers) > MAX_PEERS
        if is_full:
            log.warning(
                "%s: more than %d peers were refused; no more of them are named for an hour",
                self._port_name,
                MAX_PEERS,
            )
        else:
            log.warning("%s: refused %s: %s", self._port_name, host, why)

    def accepted(self, host: str) -> None:
        """Forget a peer that was let in: its next refusal is logged again."""
        with self._lock:
            self._peers.discard(host)


def peer_host(peer: str) -> str:
    """Return the host in grpc's ``ipv4:127.0.0.1:5000`` or ``ipv6:%5B::1%5D:5000``."""
    host = peer.partition(":")[2].rpartition(":")[0]
    return host.replace("%5B", "").replace("%5D", "") or peer
