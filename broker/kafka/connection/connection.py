"""One client's connection. It receives frames, and sends responses in the order of the requests.

Requests start in the order in which they arrive. A fetch that waits for data delays later
responses, because of their order, but it does not delay the work on later requests. A request that
changes state is finished before a later one starts, which must find the effect of it; only requests
of the APIs that are pipelined, such as Produce, do not wait for each other (decision 56).

The memory of a connection is bounded. While its requests in flight and their largest possible
responses exceed the limits, or the client does not read its responses, no further request is
started, and soon nothing further is read. The same applies while all connections together hold too
much (``client_memory``), but then one request of each connection still runs. A client that exceeds
its quota is muted: after the response that says so, nothing further is started or read until the
throttle time is over (Q5). The same holds for its other connections, and for those that it opens in
that time, from their first request on.

Until a client has authenticated, its requests are handled one at a time, because the meaning of a
request depends on the outcome of the one before.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from quorate.broker.config.security import SASL_SERVER_MAX_RECEIVE_SIZE
from quorate.broker.kafka.connection.connection_limits import ConnectionLimits, SharedMemory
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher, frame_response
from quorate.broker.kafka.connection.request_task import Work
from quorate.broker.kafka.connection.requests import ClientSession, CloseConnection, Request
from quorate.broker.kafka.connection.response_queue import (
    ConnectionProgress,
    RequestsInFlight,
    ResponseWriter,
    log_if_failed,
)
from quorate.broker.kafka.wire.frame_assembler import FrameAssembler
from quorate.broker.kafka.wire.primitives import Buffers, MalformedRequest
from quorate.broker.quota.client_memory import RequestAccount
from quorate.broker.quota.client_quota_manager import QuotaTurn
from quorate.broker.security.listener_security import (
    OPEN_LISTENER,
    ListenerSecurity,
    UnmappedCertificate,
)

_log: Final = logging.getLogger(__name__)

_STARTED_IN_A_ROW: Final = 16
"""The most requests of one connection that start without a break."""


class _WaitingRequest(NamedTuple):
    """A decoded request that has not been started, with the memory of its frame and elements."""

    request: Request
    held_bytes: int


class KafkaConnection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket.

    ``on_opened`` and ``on_closed`` are called once each.
    """

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        limits: ConnectionLimits,
        on_opened: Callable[["KafkaConnection"], None],
        on_closed: Callable[["KafkaConnection"], None],
        memory: SharedMemory,
        security: ListenerSecurity = OPEN_LISTENER,
    ) -> None:
        self._dispatcher = dispatcher
        self._limits = limits
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._security = security
        self._memory = memory
        self._account = RequestAccount(memory.bounds.requests, self._on_room)
        self._frames = FrameAssembler(limits.frame_bytes, memory.receive_buffer, self._account)
        self._undecoded: deque[memoryview] = deque()
        """The frames behind a request that cannot start yet."""
        self._waiting: deque[_WaitingRequest] = deque()
        self._running = RequestsInFlight(limits, self._account, self._finished)
        self._advancing: asyncio.Handle | None = None
        self._read_paused = False
        self._unmuted_at_s = 0.0
        self._unmuting: asyncio.TimerHandle | None = None
        self._turn: QuotaTurn | None = None
        """The place among those that wait for the end of a mute that is not of this connection."""
        self._login_ends: asyncio.TimerHandle | None = None
        self._draining = False
        self._over = False
        self._transport: asyncio.Transport
        self._writer: ResponseWriter
        self._progress: ConnectionProgress
        self._clock_s: Callable[[], float]
        self._session = ClientSession("")
        self._is_authenticated = True
        self.peer = "?"
        self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._writer = ResponseWriter(self._transport)
        self._clock_s = asyncio.get_running_loop().time
        self._progress = ConnectionProgress(self._clock_s())
        address = transport.get_extra_info("peername")
        port = 0
        if address:
            port = int(address[1])
            self.host = str(address[0])
            self.peer = f"{address[0]}:{address[1]}"
        self._on_opened(self)
        if self._over:
            return
        try:
            certificate = _certificate(transport)
            self._session = ClientSession.begin(self._security, self.host, certificate, port)
        except UnmappedCertificate as error:
            self.close(str(error))
            return
        self._is_authenticated = self._session.is_authenticated
        if not self._is_authenticated:
            limit = min(self._security.login_frame_bytes, self._limits.frame_bytes)
            self._frames.expect(limit, SASL_SERVER_MAX_RECEIVE_SIZE.name, least_bytes=0)
            self._login_ends = asyncio.get_running_loop().call_later(
                self._limits.login_ms / 1_000, self._login_timed_out
            )

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._memory.receive_buffer if self._over else self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._over:
            return  # A TLS transport may still deliver data after its close.
        try:
            begins = not self._frames.is_within_a_frame
            frames = self._frames.received(nbytes)
            self._progress.received(nbytes, self._clock_s(), is_whole=begins or bool(frames))
            if len(frames) == 1 and self._is_authenticated and not self._undecoded:
                self._decode(frames[0])
            else:
                self._undecoded += frames
        except MalformedRequest as error:
            self.close(f"malformed request: {error}")
            return
        self._advance()

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        if not self._over:
            self._writer.resume()
            self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        self._waiting.clear()
        self._undecoded.clear()
        for timer in (self._unmuting, self._login_ends):
            if timer is not None:
                timer.cancel()
        self._account.leave()
        self._leave_turn()
        self._writer.close()
        self._running.abandon()
        self._session.connection.closed()
        self._on_closed(self)

    def delay(self, time_ms: int) -> None:
        """Handle nothing of this new connection for ``time_ms``."""
        self._mute(time_ms)

    def drain(self) -> None:
        """Read nothing more, respond to the requests in flight, then close."""
        self._draining = True
        self._advance()

    def abort(self) -> None:
        """Close at once. Requests in flight get no response."""
        self._over = True
        self._transport.abort()

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        """Close the connection after sending the responses that were handed to the transport. If
        the client does not read them, close it at once.
        """
        _log.log(level, "closing the connection of %s: %s", self.peer, reason)
        self._waiting.clear()
        self._undecoded.clear()
        if self._writer.is_free and not self._over:
            self._transport.close()
        else:
            self._transport.abort()
        self._over = True

    def quiet_s(self, now_s: float) -> float:
        """Return for how long nothing has moved while it was the client's turn, in seconds.

        It is the client's turn if it does not read what was sent to it, if it has not sent the rest
        of a frame, and if no request of it is being carried out. ``now_s`` is the time of the event
        loop.
        """
        is_sending = self._frames.is_within_a_frame and not self._read_paused
        works = bool(self._running or self._waiting or self._read_paused)
        is_our_turn = works and not is_sending and not self._over
        return self._progress.quiet_s(now_s, self._writer, is_our_turn=is_our_turn)

    @property
    def request_bytes(self) -> int:
        """The bytes that the connection holds of the memory for requests."""
        return self._account.held_bytes

    @property
    def response_bytes(self) -> int:
        """The bytes that the connection holds of the memory for responses."""
        return self._writer.held_bytes + self._running.response_bytes

    def _on_room(self) -> None:
        """Continue to read, because there is memory for requests again."""
        if self._over:
            return
        if self._frames.needs_memory:
            self._frames.resume()
        self._regulate_reading()

    def _decode(self, frame: memoryview) -> None:
        request = self._dispatcher.decode(frame, self._session)
        if request.decoded_bytes:
            self._account.hold(request.decoded_bytes)
        self._waiting.append(_WaitingRequest(request, len(frame) + request.decoded_bytes))

    def _advance(self) -> None:
        self._write_responses()
        if not self._is_authenticated:
            self._decode_while_authenticating()
        if self._over:
            return
        started = 0
        while not self._unmuting and self._has_next() and self._may_start(self._next_request):
            turn = self._next_request.turn
            if turn is not None and self._must_wait(turn):
                break
            if started == _STARTED_IN_A_ROW:
                self._advance_soon()
                break
            started += 1
            is_done = self._running.start(*self._waiting.popleft())
            if is_done and not self._write_responses():
                return
        if self._draining and not self._running and not self._writer.has_unsent:
            self._over = True
            self._transport.close()
        else:
            self._regulate_reading()

    def _decode_while_authenticating(self) -> None:
        """Decode the frames of a client that is authenticating. Only one frame at a time is
        decoded until it has authenticated.
        """
        if self._running or self._waiting or self._over:
            return
        self._is_authenticated = self._session.is_authenticated
        if self._is_authenticated:
            self._frames.expect(self._limits.frame_bytes)
            if self._login_ends is not None:
                self._login_ends.cancel()
        elif self._undecoded:
            self._decode_next()

    def _decode_next(self) -> None:
        try:
            self._decode(self._undecoded.popleft())
        except MalformedRequest as error:
            self.close(f"malformed request: {error}")

    @property
    def _next_request(self) -> Request:
        return self._waiting[0].request

    def _has_next(self) -> bool:
        """Return whether a request waits to be started. It is decoded now if it was not yet, so a
        buffer of very many small requests is not decoded in one go.
        """
        if not self._waiting and self._undecoded and self._is_authenticated:
            self._decode_next()
        return bool(self._waiting)

    def _advance_soon(self) -> None:
        """Go on in the next pass of the event loop, after others have had their turn."""
        if self._advancing is None:
            self._advancing = asyncio.get_running_loop().call_soon(self._advance_now)

    def _advance_now(self) -> None:
        self._advancing = None
        if not self._over:
            self._advance()

    def _may_start(self, request: Request) -> bool:
        if not self._writer.is_free:
            return False
        if not self._running:
            return True
        has_room = self._memory.bounds.responses.room_bytes > 0
        return (
            has_room
            and not self._running.is_alone
            and not self._running.must_end_before(request)
            and self._running.has_room_for(request)
        )

    def _finished(self, task: Work) -> None:
        if self._over:
            log_if_failed(task, self.peer)
        else:
            self._advance()

    def _write_responses(self) -> bool:
        """Write the responses whose turn it is. Return False if the connection is over."""
        while self._writer.is_free and not self._over:
            running = self._running.take_finished()
            if running is None:
                return True
            self._write_response(running.request, running.task)
        return not self._over

    def _write_response(self, request: Request, task: Work) -> None:
        try:
            body = task.result()
        except CloseConnection as reason:
            # A traceback holds this frame, which holds the task, which holds the error: the memory
            # of the request would be free only when the garbage collector finds the circle.
            reason.__traceback__ = None
            self._write(request, [reason.response] if reason.response else [])
            self.close(str(reason))
        except Exception as error:  # noqa: BLE001 - a fault of ours costs this connection, not the broker
            request.lease.keep(0)
            _log.error("%s for %s failed", request.api_name, self.peer, exc_info=error)
            error.__traceback__ = None
            self.close(f"{request.api_name} failed: {error!r}")
        else:
            self._write(request, body)
            if request.throttle.time_ms:
                self._mute(request.throttle.time_ms)

    def _write(self, request: Request, body: Buffers) -> None:
        self._progress.sent(self._clock_s())
        if body:
            self._writer.write(frame_response(request, body), request.lease)
        else:
            request.lease.keep(0)

    def _regulate_reading(self) -> None:
        if self._over:
            return
        pause = (
            self._draining
            or self._unmuting is not None
            or bool(self._waiting)
            or bool(self._undecoded)
            or self._is_short_of_memory()
        )
        if pause == self._read_paused:
            return
        self._read_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _is_short_of_memory(self) -> bool:
        """Return whether reading must wait for memory, until ``_on_room`` is called."""
        if self._frames.needs_memory:
            return True
        requests = self._memory.bounds.requests
        if not requests.is_full or not self._running or self._frames.is_within_a_frame:
            return False
        requests.wait(self._account)
        return True

    def _must_wait(self, turn: QuotaTurn) -> bool:
        """Return whether the next request must wait because its client is muted, by whatever
        connection it exceeded its quota.
        """
        wait_ms = turn.wait_ms()
        if not wait_ms:
            return False
        if not turn.take():
            self.close("too many connections wait for the end of the same throttle time")
            return True
        self._turn = turn
        self._mute(wait_ms)
        return True

    def _mute(self, time_ms: int) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + time_ms / 1_000
        if self._unmuting is not None:
            if until_s <= self._unmuted_at_s:
                return
            self._unmuting.cancel()
        self._unmuted_at_s = until_s
        self._unmuting = loop.call_at(until_s, self._unmute)
        if not self._account.mute():
            self.close("requests of muted clients hold their share of the memory")

    def _unmute(self) -> None:
        self._unmuting = None
        self._account.unmute()
        self._leave_turn()
        if not self._over:
            self._advance()

    def _leave_turn(self) -> None:
        if self._turn is not None:
            self._turn.leave()
            self._turn = None

    def _login_timed_out(self) -> None:
        if not self._over and not self._session.is_authenticated:
            self.close(f"it did not authenticate within {self._limits.login_ms} ms")


def _certificate(transport: asyncio.BaseTransport) -> bytes | None:
    """Return the client's verified certificate in DER.

    The result is None if the client sent none, or if there is no TLS.
    """
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return None if tls is None else tls.getpeercert(binary_form=True)
