"""The requests of one connection that are carried out, in the order of their answers."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from broker.client_memory import RequestAccount
from broker.kafka.connection_limits import ConnectionLimits
from broker.kafka.requests import Buffers, Request

_log: Final = logging.getLogger(__name__)


class Running(NamedTuple):
    """A request, how long its frame was, and the work on it."""

    request: Request
    frame_bytes: int
    task: asyncio.Task[Buffers]


class InFlight:
    """Frames count as held by ``account`` until their answer is taken. ``on_finished``: called with
    every task that is done."""

    __slots__ = ("_account", "_cost_bytes", "_limits", "_on_finished", "_running")

    def __init__(
        self,
        limits: ConnectionLimits,
        account: RequestAccount,
        on_finished: Callable[[asyncio.Task[Buffers]], None],
    ) -> None:
        self._limits = limits
        self._account = account
        self._on_finished = on_finished
        self._running: deque[Running] = deque()
        self._cost_bytes = 0

    def __len__(self) -> int:
        return len(self._running)

    @property
    def answer_bytes(self) -> int:
        """What their answers hold of memory."""
        return sum(running.request.lease.held_bytes for running in self._running)

    def has_room_for(self, request: Request) -> bool:
        """Whether it may be started beside the others."""
        return (
            len(self._running) < self._limits.in_flight_requests
            and self._cost_bytes + request.cost_bytes <= self._limits.in_flight_bytes
        )

    def start(self, request: Request, frame_bytes: int) -> None:
        """Begin to carry it out."""
        task = asyncio.get_running_loop().create_task(request.run())
        self._running.append(Running(request, frame_bytes, task))
        self._cost_bytes += request.cost_bytes
        task.add_done_callback(self._on_finished)

    def take_finished(self) -> Running | None:
        """The oldest one, if it is done; its frame is let go of."""
        if not self._running or not self._running[0].task.done():
            return None
        running = self._running.popleft()
        self._cost_bytes -= running.request.cost_bytes
        self._account.release(running.frame_bytes)
        return running

    def abandon(self) -> None:
        """The client is gone: what nobody needs is cancelled; memory is let go of with the work."""
        kept_bytes = sum(running.frame_bytes for running in self._running)
        self._account.release(self._account.held_bytes - kept_bytes)
        for running in self._running:
            running.task.add_done_callback(partial(_let_go, running, self._account))
            if running.request.abandonable:
                running.task.cancel()


def _let_go(running: Running, account: RequestAccount, _: asyncio.Task[Buffers]) -> None:
    running.request.lease.keep(0)
    account.release(running.frame_bytes)


def log_if_failed(task: asyncio.Task[Buffers], peer: str) -> None:
    """An outcome nobody waits for any more; a failure must still be seen."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("a request of %s, which is gone, failed: %r", peer, error)
