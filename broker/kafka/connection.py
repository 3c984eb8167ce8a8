"""One client's connection: frames in, answers out in the order of the requests.

Requests start in the order they came, without waiting for each other: a fetch that waits for data
holds up later answers, as order demands, but not later work. What a connection may hold is bounded:
while its requests in flight and their largest possible answers exceed the limits, or the client
does not read its answers, nothing further is started and soon nothing further is read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from broker.kafka.cursor import MalformedRequest
from broker.kafka.dispatch import frame_answer
from broker.kafka.frames import FrameAssembler
from broker.kafka.requests import Buffers, CloseConnection, Request

_log: Final = logging.getLogger(__name__)

_JOINED_BYTES_MAX: Final = 16 << 10
"""Answers up to this size are joined and written as one piece; larger ones are not copied."""


class RequestDecoder(Protocol):
    """``dispatch.Dispatcher``, as a connection sees it."""

    def decode(self, frame: memoryview, client_host: str) -> Request: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one connection may hold.

    ``in_flight_bytes``: requests and the largest answers they may get; one request alone may exceed
    it. ``frame_bytes``: socket.request.max.bytes.
    """

    frame_bytes: int
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
    ) -> None:
        self._decoder = decoder
        self._limits = limits
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._frames = FrameAssembler(limits.frame_bytes)
        self._waiting: deque[Request] = deque()
        self._running: deque[_Running] = deque()
        self._running_cost_bytes = 0
        self._write_paused = False
        self._read_paused = False
        self._draining = False
        self._over = False
        self._transport: asyncio.Transport
        self._host = ""
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        if address:
            self._host = str(address[0])
            self.peer = f"{address[0]}:{address[1]}"
        self._on_opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._waiting.append(self._decoder.decode(frame, self._host))
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
        while self._waiting and self._has_room_for(self._waiting[0]):
            self._start(self._waiting.popleft())
        if self._over:
            return
        if self._draining and not self._running:
            self._over = True
            self._transport.close()
        else:
            self._regulate_reading()

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
            self._close(str(reason))
        except Exception as error:  # noqa: BLE001 - a fault of ours costs this connection, not the broker
            _log.error("%s for %s failed", request.api_name, self.peer, exc_info=error)
            self._close(f"{request.api_name} failed: {error!r}")
        else:
            if body:
                self._write(frame_answer(request, body))

    def _write(self, answer: Buffers) -> None:
        if sum(map(len, answer)) <= _JOINED_BYTES_MAX:
            self._transport.write(b"".join(answer))
        else:
            self._transport.writelines(answer)

    def _regulate_reading(self) -> None:
        pause = self._draining or bool(self._waiting)
        if pause == self._read_paused:
            return
        self._read_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _close(self, reason: str) -> None:
        _log.warning("closing the connection of %s: %s", self.peer, reason)
        self._over = True
        self._waiting.clear()
        self._transport.close()


def _log_if_failed(task: asyncio.Task[Buffers], peer: str) -> None:
    """An outcome nobody waits for any more; a failure must still be seen."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("a request of %s, which is gone, failed: %r", peer, error)
