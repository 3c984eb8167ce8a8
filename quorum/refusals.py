"""Saying once who was refused: an attacker, or a node configured wrongly, comes again and again."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

MAX_PEERS: Final = 256
FORGET_AFTER_S: Final = 3600.0


class Refusals:
    """Logs one line per peer host and hour. From any thread; remembers ``MAX_PEERS`` at most."""

    def __init__(self, port_name: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        """``port_name``: which port refuses, for people."""
        self._port_name = port_name
        self._clock_s = clock_s
        self._peers: set[str] = set()
        self._since_s = clock_s()
        self._lock = threading.Lock()

    def refused(self, host: str, why: str) -> None:
        """A peer was refused; logged unless that host was lately."""
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
        """A peer was let in: its next refusal is news."""
        with self._lock:
            self._peers.discard(host)


def peer_host(peer: str) -> str:
    """The host in grpc's ``ipv4:127.0.0.1:5000`` or ``ipv6:%5B::1%5D:5000``."""
    host = peer.partition(":")[2].rpartition(":")[0]
    return host.replace("%5B", "").replace("%5D", "") or peer
