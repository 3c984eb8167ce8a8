"""Sockets between voters: one that listens, and those that are dialled. Use them on the raft
thread.
"""

import errno
import ipaddress
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Final

from quorate.common.types import Endpoint
from quorate.quorum.raft.network.poller import READ, DrivenPoller

log = logging.getLogger(__name__)

_ACCEPTED_PER_ROUND: Final = 16
_BACKLOG: Final = 128


class Sockets:
    """Makes sockets that never block, and looks up names in another thread."""

    def __init__(self, poller: DrivenPoller) -> None:
        self._poller = poller
        self._listener: socket.socket | None = None
        self._resolved: dict[Endpoint, tuple[str, int]] = {}
        self._unresolved: set[Endpoint] = set()

    def listen(self, own: Endpoint, on_accepted: Callable[[socket.socket, str], None]) -> None:
        """Bind the port. ``on_accepted`` gets every socket with the peer's host.

        Raises:
            OSError: taken, or not an address of this machine.
        """
        listener = self._listener = socket.create_server(own, backlog=_BACKLOG)
        listener.setblocking(False)

        def accept(_descr: int, _event: int) -> None:
            # Several are accepted in one round: a voter behind strangers must not wait long.
            for _ in range(_ACCEPTED_PER_ROUND):
                try:
                    sock, peer = listener.accept()
                except OSError:
                    return  # No connection waits, or it is gone again.
                sock.setblocking(False)
                on_accepted(sock, peer[0])

        self._poller.subscribe(listener.fileno(), accept, READ)

    def stop_listening(self) -> None:
        if self._listener is not None:
            self._poller.unsubscribe(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def address_of(self, peer: Endpoint) -> tuple[str, int] | None:
        """Return where to dial ``peer``, or None while its name is looked up: ask again later."""
        if _is_numeric(peer.host):
            return peer.host, peer.port
        address = self._resolved.pop(peer, None)
        if address is None:
            self._look_up(peer)
        return address

    def _look_up(self, peer: Endpoint) -> None:
        """Look up a name in another thread: a slow name server must not cost us an election."""

        def look_up() -> None:
            try:
                found = socket.getaddrinfo(*peer, type=socket.SOCK_STREAM)
            except OSError as error:
                if peer not in self._unresolved:
                    self._unresolved.add(peer)
                    log.warning("cannot resolve %s: %s", peer.host, error)
                return
            self._unresolved.discard(peer)
            self._resolved[peer] = (str(found[0][4][0]), peer.port)
            self._poller.wake()

        threading.Thread(target=look_up, name="raft-resolve", daemon=True).start()


def socket_for(address: tuple[str, int]) -> socket.socket:
    """Return a socket with which to dial ``address``."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock


def begin_connecting(sock: socket.socket, address: tuple[str, int]) -> str:
    """Dial. Return why that failed at once, or an empty text: the poller reports the rest."""
    error = sock.connect_ex(address)
    return "" if error in (0, errno.EINPROGRESS) else f"cannot connect: {os.strerror(error)}"


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
