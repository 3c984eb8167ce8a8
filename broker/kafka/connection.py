"""One client's connection: frames in, answers out in the order of the requests.

Requests start in the order they came, without waiting for each other: a fetch that waits for data
holds up later answers, as order demands, but not later work. What a connection may hold is bounded:
while its requests in flight and their largest possible answers exceed the limits, or the client
does not read its answers, nothing further is started and soon nothing further is read. So it is
while all connections together hold too much (``client_memory``), but for one request of each. A
client that is over its quota is muted: after the answer that tells it so, nothing further is
started or read until the time is up (Q5).

A client that must authenticate gets one thing done at a time until it has: what a request means
depends on the outcome of the one before.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, cast

from broker.client_memory import RequestAccount
from broker.kafka.connection_limits import ConnectionLimits, SharedMemory
from broker.kafka.cursor import MalformedRequest
from broker.kafka.dispatch import frame_answer
from broker.kafka.frames import FrameAssembler
from broker.kafka.in_flight import InFlight, log_if_failed
from broker.kafka.outbox import Outbox
from broker.kafka.progress import Progress
from broker.kafka.requests import Buffers, CloseConnection, Request
from broker.security.config import SASL_SERVER_MAX_RECEIVE_SIZE
from broker.security.door import OPEN_DOOR, ClientSession, Door, Stranger

_log: Final = logging.getLogger(__name__)


class RequestDecoder(Protocol):
    """``dispatch.Dispatcher``, as a connection sees it."""

    def decode(self, frame: memoryview, session: ClientSession) -> Request: ...


class _Waiting(NamedTuple):
    request: Request
    frame_bytes: int


class KafkaConnection(asyncio.BufferedProtocol):
    """Protocol of one accepted socket; ``on_opened`` and ``on_closed`` are called once each."""

    def __init__(
        self,
        decoder: RequestDecoder,
        limits: ConnectionLimits,
        on_opened: Callable[["KafkaConnection"], None],
        on_closed: Callable[["KafkaConnection"], None],
        memory: SharedMemory,
        door: Door = OPEN_DOOR,
    ) -> None:
        self._decoder = decoder
        self._limits = limits
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._door = door
        self._memory = memory
        self._account = RequestAccount(memory.bounds.requests, self._on_room)
        self._frames = FrameAssembler(limits.frame_bytes, memory.receive_buffer, self._account)
        self._undecoded: deque[memoryview] = deque()
        """Frames of a client that has not authenticated, while one of its requests runs."""
        self._waiting: deque[_Waiting] = deque()
        self._running = InFlight(limits, self._account, self._finished)
        self._read_paused = False
        self._unmuted_at_s = 0.0
        self._unmuting: asyncio.TimerHandle | None = None
        self._login_ends: asyncio.TimerHandle | None = None
        self._draining = False
        self._over = False
        self._transport: asyncio.Transport
        self._outbox: Outbox
        self._progress: Progress
        self._clock_s: Callable[[], float]
        self._session = ClientSession("")
        self._is_open = True
        self.peer = "?"
        self.host = ""
        self.idle_slot = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._outbox = Outbox(self._transport)
        self._clock_s = asyncio.get_running_loop().time
        self._progress = Progress(self._clock_s())
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
            self.close(str(error))
            return
        self._is_open = self._session.is_open
        if not self._is_open:
            limit = min(self._door.login_frame_bytes, self._limits.frame_bytes)
            self._frames.expect(limit, SASL_SERVER_MAX_RECEIVE_SIZE.name, least_bytes=0)
            self._login_ends = asyncio.get_running_loop().call_later(
                self._limits.login_ms / 1_000, self._too_late
            )

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._memory.receive_buffer if self._over else self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._over:
            return  # A closing TLS transport still delivers what it had received.
        try:
            begins = not self._frames.is_within_a_frame
            frames = self._frames.received(nbytes)
            self._progress.received(nbytes, self._clock_s(), is_whole=begins or bool(frames))
            if self._is_open:
                for frame in frames:
                    self._decode(frame)
            else:
                self._undecoded += frames
        except MalformedRequest as error:
            self.close(f"malformed request: {error}")
            return
        self._advance()

    def pause_writing(self) -> None:
        self._outbox.pause()

    def resume_writing(self) -> None:
        if not self._over:
            self._outbox.resume()
            self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        self._waiting.clear()
        self._undecoded.clear()
        for timer in (self._unmuting, self._login_ends):
            if timer is not None:
                timer.cancel()
        self._account.leave()
        self._outbox.close()
        self._running.abandon()
        self._on_closed(self)

    def drain(self) -> None:
        """Reads nothing more, answers what is in flight, then closes."""
        self._draining = True
        self._advance()

    def abort(self) -> None:
        """Closes now; what is in flight gets no answer."""
        self._over = True
        self._transport.abort()

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        """Closes after what was handed over to be sent, unless the client does not read it."""
        _log.log(level, "closing the connection of %s: %s", self.peer, reason)
        self._waiting.clear()
        self._undecoded.clear()
        if self._outbox.is_free and not self._over:
            self._transport.close()
        else:
            self._transport.abort()
        self._over = True

    def quiet_s(self, now_s: float) -> float:
        """For how long nothing has moved, where it is the client's turn; ``now_s``: the loop's.

        It is if the client was sent what it does not read, if it has not sent the rest of a frame,
        and if nothing is carried out for it.
        """
        is_sending = self._frames.is_within_a_frame and not self._read_paused
        works = bool(self._running or self._waiting or self._read_paused)
        is_our_turn = works and not is_sending and not self._over
        return self._progress.quiet_s(now_s, self._outbox, is_our_turn=is_our_turn)

    @property
    def request_bytes(self) -> int:
        """What it holds of the memory for requests."""
        return self._account.held_bytes

    @property
    def answer_bytes(self) -> int:
        """What it holds of the memory for answers."""
        return self._outbox.held_bytes + self._running.answer_bytes

    def _on_room(self) -> None:
        """There is memory for requests again: this connection's turn."""
        if self._over:
            return
        if self._frames.needs_memory:
            self._frames.resume()
        self._regulate_reading()

    def _decode(self, frame: memoryview) -> None:
        request = self._decoder.decode(frame, self._session)
        self._waiting.append(_Waiting(request, len(frame)))

    def _advance(self) -> None:
        self._write_answers()
        if not self._is_open:
            self._let_in()
        if self._over:
            return
        while self._waiting and not self._unmuting and self._has_room_for(self._waiting[0].request):
            self._running.start(*self._waiting.popleft())
        if self._draining and not self._running and not self._outbox.has_unsent:
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
                self._decode(self._undecoded.popleft())
                if not self._is_open:
                    return
        except MalformedRequest as error:
            self.close(f"malformed request: {error}")

    def _has_room_for(self, request: Request) -> bool:
        if not self._outbox.is_free:
            return False
        if not self._running:
            return True
        has_room = self._memory.bounds.responses.room_bytes > 0
        return has_room and self._running.has_room_for(request)

    def _finished(self, task: asyncio.Task[Buffers]) -> None:
        if self._over:
            log_if_failed(task, self.peer)
        else:
            self._advance()

    def _write_answers(self) -> None:
        while self._outbox.is_free and not self._over:
            running = self._running.take_finished()
            if running is None:
                return
            self._write_answer(running.request, running.task)

    def _write_answer(self, request: Request, task: asyncio.Task[Buffers]) -> None:
        try:
            body = task.result()
        except CloseConnection as reason:
            self._write(request, [reason.answer] if reason.answer else [])
            self.close(str(reason))
        except Exception as error:  # noqa: BLE001 - a fault of ours costs this connection, not the broker
            request.lease.keep(0)
            _log.error("%s for %s failed", request.api_name, self.peer, exc_info=error)
            self.close(f"{request.api_name} failed: {error!r}")
        else:
            self._write(request, body)
            if request.throttle.time_ms:
                self._mute(request.throttle.time_ms)

    def _write(self, request: Request, body: Buffers) -> None:
        self._progress.sent(self._clock_s())
        if body:
            self._outbox.write(frame_answer(request, body), request.lease)
        else:
            request.lease.keep(0)

    def _regulate_reading(self) -> None:
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
        """Whether to read on later; ``_on_room`` is called then."""
        if self._frames.needs_memory:
            return True
        requests = self._memory.bounds.requests
        if not requests.is_full or not self._running or self._frames.is_within_a_frame:
            return False
        requests.wait(self._account)
        return True

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
            self.close(f"it did not authenticate within {self._limits.login_ms} ms")


def _certificate(transport: asyncio.BaseTransport) -> bytes | None:
    """The client's, verified, in DER; None: it showed none, or there is no TLS."""
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return None if tls is None else tls.getpeercert(binary_form=True)
