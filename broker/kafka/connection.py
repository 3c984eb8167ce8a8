"""One client's connection: frames in, answers out in the order of the requests.

Requests start in the order they came, without waiting for each other: a fetch that waits for data
holds up later answers, as order demands, but not later work. What a connection may hold is bounded:
while its requests in flight and their largest possible answers exceed the limits, or the client
does not read its answers, nothing further is started and soon nothing further is read. A client
that is over its quota is muted: after the answer that tells it so, nothing further is started or
read until the time is up (Q5).

A client that must authenticate gets one thing done at a time until it has: what a request means
depends on the outcome of the one before.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from broker.kafka.cursor import MalformedRequest
from broker.kafka.dispatch import frame_answer
from broker.kafka.frames import FrameAssembler
from broker.kafka.requests import Buffers, CloseConnection, Request
from broker.security.config import SASL_SERVER_MAX_RECEIVE_SIZE
from broker.security.door import OPEN_DOOR, ClientSession, Door, Stranger

_log: Final = logging.getLogger(__name__)

_JOINED_BYTES_MAX: Final = 16 << 10
"""Answers up to this size are joined and written as one piece; larger ones are not copied."""


class RequestDecoder(Protocol):
    """``dispatch.Dispatcher``, as a connection sees it."""

    def decode(self, frame: memoryview, session: ClientSession) -> Request: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one connection may hold.

    ``in_flight_bytes``: requests and the largest answers they may get; one request alone may exceed
    it. ``frame_bytes``: socket.request.max.bytes. ``login_ms``: how long a client may take to
    authenticate: whoever does not want to come in shall not stand in the door.
    """

    frame_bytes: int
    login_ms: int = 30_000
    in_flight_bytes: int = 128 << 20
    in_flight_requests: int = 128


@dataclass(slots=True)
class _Running:
    request: Request
    task: asyncio.Task[Buffers]


class KafkaConnection(asyncio.BufferedProtocol):
    """Protocol of one accepted socket; ``on_opened`` and ``on_closed`` are called once each."""

    def __init__(
        self,
        decoder: RequestDecoder,
        limits: ConnectionLimits,
        on_opened: Callable[["KafkaConnection"], None],
        on_closed: Callable[["KafkaConnection"], None],
        door: Door = OPEN_DOOR,
    ) -> None:
        self._decoder = decoder
        self._limits = limits
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._door = door
        self._frames = FrameAssembler(limits.frame_bytes)
        self._undecoded: deque[memoryview] = deque()
        """Frames of a client that has not authenticated, while one of its requests runs."""
        self._waiting: deque[Request] = deque()
        self._running: deque[_Running] = deque()
        self._running_cost_bytes = 0
        self._write_paused = False
        self._read_paused = False
        self._unmuted_at_s = 0.0
        self._unmuting: asyncio.TimerHandle | None = None
        self._login_ends: asyncio.TimerHandle | None = None
        self._draining = False
        self._over = False
        self._transport: asyncio.Transport
        self._session = ClientSession("")
        self._is_open = True
        self.peer = "?"
        self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        if address:
            self.host = str(address[0])
            self.peer = f"{address[0]}:{address[1]}"
        self._on_opened(self)
        if self._over:
            return
        try:
            self._session = self._door.enter(self.host, _certificate(transport))
        except Stranger as error:
            self._close(str(error))
            return
        self._is_open = self._session.is_open
        if not self._is_open:
            limit = min(self._door.login_frame_bytes, self._limits.frame_bytes)
            self._frames.expect(limit, SASL_SERVER_MAX_RECEIVE_SIZE.name, least_bytes=0)
            self._login_ends = asyncio.get_running_loop().call_later(
                self._limits.login_ms / 1_000, self._too_late
            )

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._over:
            return  # A closing TLS transport still delivers what it had received.
        try:
            frames = self._frames.received(nbytes)
            if self._is_open:
                for frame in frames:
                    self._waiting.append(self._decoder.decode(frame, self._session))
            else:
                self._undecoded += frames
        except MalformedRequest as error:
            self._close(f"malformed request: {error}")
            return
        self._advance()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        self._waiting.clear()
        self._undecoded.clear()
        for timer in (self._unmuting, self._login_ends):
            if timer is not None:
                timer.cancel()
        for running in self._running:
            if running.request.abandonable:
                running.task.cancel()
        self._on_closed(self)

    def drain(self) -> None:
        """Reads nothing more, answers what is in flight, then closes."""
        self._draining = True
        self._advance()

    def abort(self) -> None:
        """Closes now; what is in flight gets no answer."""
        self._over = True
        self._transport.abort()

    def _advance(self) -> None:
        self._write_answers()
        if not self._is_open:
            self._let_in()
        if self._over:
            return
        while self._waiting and not self._unmuting and self._has_room_for(self._waiting[0]):
            self._start(self._waiting.popleft())
        if self._draining and not self._running:
            self._over = True
            self._transport.close()
        else:
            self._regulate_reading()

    def _let_in(self) -> None:
        """Frames of a client that is authenticating: one at a time until it has."""
        if self._running or self._waiting or self._over:
            return
        self._is_open = self._session.is_open
        if self._is_open:
            self._frames.expect(self._limits.frame_bytes)
            if self._login_ends is not None:
                self._login_ends.cancel()
        try:
            while self._undecoded:
                self._waiting.append(self._decoder.decode(self._undecoded.popleft(), self._session))
                if not self._is_open:
                    return
        except MalformedRequest as error:
            self._close(f"malformed request: {error}")

    def _has_room_for(self, request: Request) -> bool:
        if not self._running:
            return not self._write_paused
        return (
            not self._write_paused
            and len(self._running) < self._limits.in_flight_requests
            and self._running_cost_bytes + request.cost_bytes <= self._limits.in_flight_bytes
        )

    def _start(self, request: Request) -> None:
        task = asyncio.get_running_loop().create_task(request.run())
        self._running.append(_Running(request, task))
        self._running_cost_bytes += request.cost_bytes
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Buffers]) -> None:
        if self._over:
            _log_if_failed(task, self.peer)
        else:
            self._advance()

    def _write_answers(self) -> None:
        while self._running and not self._write_paused and not self._over:
            running = self._running[0]
            if not running.task.done():
                return
            self._running.popleft()
            self._running_cost_bytes -= running.request.cost_bytes
            self._write_answer(running.request, running.task)

    def _write_answer(self, request: Request, task: asyncio.Task[Buffers]) -> None:
        try:
            body = task.result()
        except CloseConnection as reason:
            if reason.answer:
                self._write(frame_answer(request, [reason.answer]))
            self._close(str(reason))
        except Exception as error:  # noqa: BLE001 - a fault of ours costs this connection, not the broker
            _log.error("%s for %s failed", request.api_name, self.peer, exc_info=error)
            self._close(f"{request.api_name} failed: {error!r}")
        else:
            if body:
                self._write(frame_answer(request, body))
            if request.throttle.time_ms:
                self._mute(request.throttle.time_ms)

    def _write(self, answer: Buffers) -> None:
        if sum(map(len, answer)) <= _JOINED_BYTES_MAX:
            self._transport.write(b"".join(answer))
        else:
            self._transport.writelines(answer)

    def _regulate_reading(self) -> None:
        pause = (
            self._draining
            or self._unmuting is not None
            or bool(self._waiting)
            or bool(self._undecoded)
        )
        if pause == self._read_paused:
            return
        self._read_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _mute(self, time_ms: int) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + time_ms / 1_000
        if until_s <= self._unmuted_at_s:
            return
        self._unmuted_at_s = until_s
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._unmuting = loop.call_at(until_s, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = None
        if not self._over:
            self._advance()

    def _too_late(self) -> None:
        if not self._over and not self._session.is_open:
            self._close(f"it did not authenticate within {self._limits.login_ms} ms")

    def _close(self, reason: str) -> None:
        _log.warning("closing the connection of %s: %s", self.peer, reason)
        self._over = True
        self._waiting.clear()
        self._undecoded.clear()
        self._transport.close()


def _certificate(transport: asyncio.BaseTransport) -> bytes | None:
    """The client's, verified, in DER; None: it showed none, or there is no TLS."""
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return None if tls is None else tls.getpeercert(binary_form=True)


def _log_if_failed(task: asyncio.Task[Buffers], peer: str) -> None:
    """An outcome nobody waits for any more; a failure must still be seen."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("a request of %s, which is gone, failed: %r", peer, error)
