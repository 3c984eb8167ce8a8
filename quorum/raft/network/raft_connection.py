"""One TCP connection between voters: TLS, frames in, frames out, never blocking.

A peer that has not introduced itself gets little: a small frame, few bytes, a small buffer.
"""

import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final

from quorate.common.tls.identity import Principal
from quorate.quorum.raft.network.poller import ERROR, READ, WRITE, DrivenPoller
from quorate.quorum.raft.network.raft_frames import (
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    MalformedRaftFrame,
)
from quorate.quorum.raft.network.raft_tls import TlsError, TlsStream

log = logging.getLogger(__name__)

BUFFER_BYTES: Final = 1 << 20
MAX_HELLO_BYTES: Final = 4 << 10
MAX_STRANGER_BYTES: Final = 64 << 10
"""The bytes taken from a peer in all, its handshake included, before its hello is accepted."""

DEAD_AFTER_MS: Final = 3_000
"""A peer that does not acknowledge bytes for this long is gone."""

_SOCKET_OPTIONS: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS),
    (socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES),
    (socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES),
)


class Connection:
    """Delivers whole frames to ``on_frame``, and its own end to ``on_closed``, once.

    ``on_connected`` is called when frames can be sent: once TCP and TLS are ready. ``on_frame`` may
    raise ``MalformedRaftFrame``: the connection is then closed with that as reason.
    """

    def __init__(
        self,
        poller: DrivenPoller,
        sock: socket.socket,
        *,
        connecting: bool,
        on_connected: Callable[["Connection"], None],
        on_frame: Callable[["Connection", bytes], None],
        on_closed: Callable[["Connection", str], None],
        peer_host: str = "",
        tls: TlsStream | None = None,
    ) -> None:
        self._poller = poller
        self._socket = sock
        self._connecting = connecting
        self._tls = tls
        self._secured = tls is None
        self._on_connected = on_connected
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._received = memoryview(b"")
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._stranger_room = MAX_STRANGER_BYTES
        self.closed = False
        self.introduced = False
        self.peer_host = peer_host
        self.voter_id = 0  # Known after the hello.
        for level, option, value in _SOCKET_OPTIONS:
            sock.setsockopt(level, option, value)
        poller.subscribe(sock.fileno(), self._on_event, READ | (WRITE if connecting else 0))

    @property
    def backlog_bytes(self) -> int:
        """Bytes handed in that the kernel has not taken yet."""
        return len(self._outgoing)

    @property
    def principal(self) -> Principal | None:
        """The principal in the peer's certificate, or None without TLS, or before its handshake is
        done.
        """
        return None if self._tls is None else self._tls.principal

    def send(self, frame: bytes) -> None:
        """Queue a frame, its length in front; the kernel gets what it takes at once."""
        if self.closed:
            return
        if self._tls is None:
            self._send_bytes(frame)
            return
        try:
            self._tls.encrypt(frame)
        except TlsError as error:
            self.close(str(error))
            return
        self._send_bytes(self._tls.take_outgoing())

    def close(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._poller.unsubscribe(self._socket.fileno())
        self._socket.close()
        self._on_closed(self, reason)

    def _send_bytes(self, data: bytes) -> None:
        if self._outgoing or self._connecting:
            self._outgoing += data
            return
        sent = self._send_now(data)
        if sent < len(data) and not self.closed:
            self._outgoing += memoryview(data)[sent:]
            self._poller.subscribe(self._socket.fileno(), self._on_event, READ | WRITE)

    def _send_now(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.close(f"sending failed: {error.strerror}")
            return 0

    def _on_event(self, descr: int, event: int) -> None:
        if self._connecting and event & (WRITE | ERROR):
            self._finish_connecting()
        if event & READ and not self.closed:
            self._receive()
        if event & WRITE and not self.closed:
            self._flush()
        if event & ERROR and not event & READ and not self.closed:
            self.close("the peer closed the connection")

    def _finish_connecting(self) -> None:
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self.close(f"cannot connect: error {error}")
            return
        self._connecting = False
        if self._secured:
            self._on_connected(self)
        else:
            self._go_on_with_tls(b"")

    def _flush(self) -> None:
        if self._outgoing:
            sent = self._send_now(self._outgoing)
            del self._outgoing[:sent]
        if not self._outgoing and not self.closed:
            self._poller.subscribe(self._socket.fileno(), self._on_event, READ)

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            try:
                data = self._received_now()
            except BlockingIOError:
                raise
            except OSError as error:
                self.close(f"receiving failed: {error.strerror}")
                return
            if not data:
                self.close("the peer closed the connection")
                return
            self._stranger_room -= min(len(data), self._stranger_room)
            if self._tls is None:
                self._incoming += data
            else:
                self._go_on_with_tls(data)
            self._deliver_frames()
            if not self.introduced and not self._stranger_room:
                self.close(f"{MAX_STRANGER_BYTES} bytes without a hello")

    def _received_now(self) -> bytes | memoryview:
        """Return what came, up to as much as the peer may send. It is valid until the next call.

        It is read into a kept buffer: a new one of this size for every call needs pages from the
        kernel.
        """
        if not self.introduced:
            return self._socket.recv(self._stranger_room)
        if not self._received:
            self._received = memoryview(bytearray(BUFFER_BYTES))
        return self._received[: self._socket.recv_into(self._received)]

    def _go_on_with_tls(self, data: bytes | memoryview) -> None:
        """Continue the handshake until it is done, then decrypt."""
        assert self._tls is not None
        try:
            self._tls.receive(data)
            if not self._secured:
                self._secured = self._tls.handshake()
                if self._secured:
                    self._on_connected(self)
            if self._secured and not self.closed:
                self._incoming += self._tls.decrypted()
        except TlsError as error:
            # The alert tells the peer's administrator the reason; it may or may not get through.
            self._send_now(self._tls.take_outgoing())
            self.close(str(error))
            return
        except MalformedRaftFrame as error:
            self.close(str(error))
            return
        if answer := self._tls.take_outgoing():
            self._send_bytes(answer)

    def _deliver_frames(self) -> None:
        start = 0
        try:
            while len(self._incoming) - start >= LENGTH_BYTES and not self.closed:
                body = start + LENGTH_BYTES
                length = int.from_bytes(self._incoming[start:body], "big")
                most = MAX_FRAME_BYTES if self.introduced else MAX_HELLO_BYTES
                if length > most:
                    raise MalformedRaftFrame(f"a frame of {length} bytes, {most} at most")
                if len(self._incoming) < body + length:
                    break
                frame = bytes(memoryview(self._incoming)[body : body + length])
                start = body + length
                self._on_frame(self, frame)
        except MalformedRaftFrame as error:
            self.close(f"malformed frame: {error}")
        del self._incoming[:start]
