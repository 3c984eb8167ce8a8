"""While memory for clients is short, those who hold some and do not move make room.

Who never reads its answers, or stops within a large request, would otherwise keep others waiting
until ``connections.max.idle.ms`` have passed.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final, Generic, Protocol, TypeVar

from broker.client_memory import ClientMemory

LOOK_INTERVAL_S: Final = 1.0
PATIENCE_S: Final = 10.0
"""How long a connection may be quiet while others wait for what it holds."""


class Holder(Protocol):
    """A connection, as seen by who looks for memory."""

    @property
    def request_bytes(self) -> int:
        """What it holds of the memory for requests."""

    @property
    def answer_bytes(self) -> int:
        """What it holds of the memory for answers."""

    def quiet_s(self, now_s: float) -> float:
        """For how long nothing has moved, where it was the client's turn."""


H = TypeVar("H", bound=Holder)


class Squeeze(Generic[H]):
    """Calls ``on_stalled`` with quiet connections that hold what others wait for."""

    def __init__(
        self,
        memory: ClientMemory,
        connections: Collection[H],
        on_stalled: Callable[[H], None],
    ) -> None:
        self._memory = memory
        self._connections = connections
        self._on_stalled = on_stalled
        self._timer: asyncio.TimerHandle | None = None
        memory.requests.on_waiting = memory.responses.on_waiting = self._begin

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_INTERVAL_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._memory.is_waited_for:
            return
        self._begin()
        now_s = asyncio.get_running_loop().time()
        requests = self._memory.requests.is_waited_for
        answers = self._memory.responses.is_waited_for
        for one in tuple(self._connections):
            held_bytes = requests * one.request_bytes + answers * one.answer_bytes
            if held_bytes and one.quiet_s(now_s) >= PATIENCE_S:
                self._on_stalled(one)
