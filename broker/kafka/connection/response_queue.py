"""The response side of one connection: requests in flight, and responses that are being sent.

Responses leave in the order of their requests, whichever request is finished first. A transport
buffers whatever it receives, and one with TLS encrypts it all at once. So a large response is
written in slices, each when the transport has room for it. The memory of the response counts as
held until its last slice has left.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from quorate.broker.kafka.connection.connection_limits import ConnectionLimits
from quorate.broker.kafka.connection.request_task import Work
from quorate.broker.kafka.connection.requests import Request
from quorate.broker.kafka.wire.primitives import Buffers
from quorate.broker.quota.client_memory import RequestAccount, ResponseLease, ResponseMemory

_log: Final = logging.getLogger(__name__)

_JOINED_BYTES_MAX: Final = 16 << 10
"""The size up to which a response is joined and written as one piece. Larger responses are not
copied.
"""

SLICE_BYTES: Final = 2 << 20
"""The size of a slice. It is large enough that the fixed cost of a slice is small next to the
cost of its bytes.
"""

PROGRESS_BYTES: Final = 64 << 10
"""The number of bytes of a frame that count as progress. A client that sends fewer bytes makes
no progress.
"""


class RunningRequest(NamedTuple):
    """A request, the memory that it holds, and the task that carries it out."""

    request: Request
    held_bytes: int
    task: Work


class RequestsInFlight:
    """The requests of one connection that are being carried out, in the order of their responses.

    Their frames and elements count as held by ``account`` until their response is taken.
    ``on_finished`` is called with every task that is done later than at its start.
    """

    __slots__ = ("_account", "_cost_bytes", "_limits", "_loop_tasks", "_on_finished", "_running")

    def __init__(
        self,
        limits: ConnectionLimits,
        account: RequestAccount,
        on_finished: Callable[[Work], None],
    ) -> None:
        self._limits = limits
        self._account = account
        self._on_finished = on_finished
        self._running: deque[RunningRequest] = deque()
        self._cost_bytes = 0
        self._loop_tasks = 0
        """The requests that asyncio carries out."""

    def __len__(self) -> int:
        return len(self._running)

    @property
    def response_bytes(self) -> int:
        """The memory that the responses of these requests hold."""
        return sum(running.request.lease.held_bytes for running in self._running)

    @property
    def is_alone(self) -> bool:
        """True if the last of the requests must be finished before another one starts."""
        last = self._running[-1]
        return last.request.alone and not last.task.done()

    def must_end_before(self, request: Request) -> bool:
        """Return whether one of the requests must be finished before ``request`` starts, because
        ``request`` must find its effect.
        """
        return not request.pipelined and any(
            not running.request.abandonable and not running.task.done() for running in self._running
        )

    def has_room_for(self, request: Request) -> bool:
        """Return whether the request may be started while the others are being carried out."""
        return (
            len(self._running) < self._limits.in_flight_requests
            and self._cost_bytes + request.cost_bytes <= self._limits.in_flight_bytes
        )

    def start(self, request: Request, held_bytes: int) -> bool:
        """Start to carry out the request, and return whether it is done already.

        A request that may begin at once does so, unless a task of asyncio is ahead of it, which
        may not have begun: requests begin in their order.
        """
        task: Work | None = None
        if request.begin is not None and not self._loop_tasks:
            task = request.begin()
        if task is None:
            task = asyncio.get_running_loop().create_task(request.run())
            self._loop_tasks += 1
        self._running.append(RunningRequest(request, held_bytes, task))
        self._cost_bytes += request.cost_bytes
        if task.done():
            return True
        task.add_done_callback(self._on_finished)
        return False

    def take_finished(self) -> RunningRequest | None:
        """Remove and return the oldest request if it is done, and release its memory. Return None
        if it is not done.
        """
        if not self._running or not self._running[0].task.done():
            return None
        running = self._running.popleft()
        if isinstance(running.task, asyncio.Task):
            self._loop_tasks -= 1
        self._cost_bytes -= running.request.cost_bytes
        self._account.release(running.held_bytes)
        return running

    def abandon(self) -> None:
        """Cancel the abandonable requests of a client that has disconnected.

        The other requests continue. Each releases its memory when its task ends.
        """
        kept_bytes = sum(running.held_bytes for running in self._running)
        self._account.release(self._account.held_bytes - kept_bytes)
        for running in self._running:
            if running.task.done():
                _release(running, self._account, running.task)
                continue
            running.task.add_done_callback(partial(_release, running, self._account))
            if running.request.abandonable:
                running.task.cancel()


def _release(running: RunningRequest, account: RequestAccount, _: Work) -> None:
    running.request.lease.keep(0)
    account.release(running.held_bytes)


def log_if_failed(task: Work, peer: str) -> None:
    """Log the failure of a request whose client has disconnected, so that it does not stay
    unnoticed.
    """
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("a request of %s, which is gone, failed: %r", peer, error)


class ResponseWriter:
    """Writes responses to the transport, no faster than the client reads them.

    It takes one response at a time: the next one only while ``is_free``.
    """

    __slots__ = ("_buffered_bytes", "_lease", "_moved", "_paused", "_transport", "_unsent")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._unsent: deque[bytes | memoryview] | None = None
        self._lease = ResponseLease(ResponseMemory())
        self._paused = False
        self._buffered_bytes = 0
        """The number of bytes in the transport's buffer at the last check while writing was
        paused.
        """
        self._moved = False

    @property
    def is_free(self) -> bool:
        return not self._paused and not self._unsent

    @property
    def has_unsent(self) -> bool:
        """True if a part of a response has not been given to the transport yet."""
        return bool(self._unsent)

    @property
    def held_bytes(self) -> int:
        return self._lease.held_bytes

    def write(self, response: Buffers, lease: ResponseLease) -> None:
        """Write a response. ``lease`` is kept until the response has left, and then it is
        released.
        """
        size = sum(map(len, response))
        if size <= _JOINED_BYTES_MAX:
            self._transport.write(b"".join(response))
            lease.keep(0)
            return
        lease.keep(size)
        self._lease = lease
        if size <= SLICE_BYTES:
            self._transport.writelines(response)
        else:
            self._unsent = deque(response)
        self._send()

    def pause(self) -> None:
        """Stop writing, because the buffer of the transport is full."""
        self._paused = True
        self._buffered_bytes = self._transport.get_write_buffer_size()

    def resume(self) -> None:
        """Continue to write, because the transport has room again."""
        self._paused = False
        self._moved = True
        self._send()

    def close(self) -> None:
        """Drop everything that has not been written, and release its memory."""
        self._unsent = None
        self._lease.keep(0)

    def has_moved(self) -> bool:
        """Return whether the client has read anything since the previous call."""
        before, self._buffered_bytes = self._buffered_bytes, self._transport.get_write_buffer_size()
        moved, self._moved = self._moved, False
        return moved or before != self._buffered_bytes

    def _send(self) -> None:
        while self._unsent and not self._paused:
            self._transport.writelines(_cut_slice(self._unsent))
        if self.is_free:
            self._lease.keep(0)


def _cut_slice(pieces: deque[bytes | memoryview]) -> Buffers:
    """Remove up to ``SLICE_BYTES`` from the front of ``pieces`` and return them."""
    cut: Buffers = []
    room = SLICE_BYTES
    while pieces and room > 0:
        piece = pieces.popleft()
        if len(piece) > room:
            view = memoryview(piece)
            pieces.appendleft(view[room:])
            piece = view[:room]
        cut.append(piece)
        room -= len(piece)
    return cut


class ConnectionProgress:
    """Measures for how long nothing has moved on a connection while it was the client's turn.

    Times are in seconds, by the clock of the event loop.
    """

    __slots__ = ("_moved_at_s", "_trickled_bytes")

    def __init__(self, now_s: float) -> None:
        self._moved_at_s = now_s
        self._trickled_bytes = 0

    def received(self, count: int, now_s: float, *, is_whole: bool) -> None:
        """Record that ``count`` bytes arrived.

        ``is_whole`` is True if a frame begins or ends with them. Then they count as progress,
        however few they are.
        """
        self._trickled_bytes += count
        if is_whole or self._trickled_bytes >= PROGRESS_BYTES:
            self._trickled_bytes = 0
            self._moved_at_s = now_s

    def sent(self, now_s: float) -> None:
        """Record that a response was given to the transport."""
        self._moved_at_s = now_s

    def quiet_s(self, now_s: float, writer: ResponseWriter, *, is_our_turn: bool) -> float:
        """Return for how long nothing has moved.

        While the client does not read what was sent to it, it is the client's turn, even if a
        request of it is being carried out.
        """
        moves = is_our_turn if writer.is_free else writer.has_moved()
        if moves:
            self._moved_at_s = now_s
        return now_s - self._moved_at_s
