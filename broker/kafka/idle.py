"""Connections that have gone quiet are found by one timer for all of them.

A connection lies in the slot of the wheel at which it is looked at next; looking tells how long it
has been quiet by then, and so when to look again. What moves on a connection costs the wheel
nothing. One that is quiet is closed up to a slot's time late.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

_SLOTS: Final = 64
"""Half of them cover ``idle_ms``."""


class Quiet(Protocol):
    """A connection, as the wheel sees it."""

    idle_slot: int

    def quiet_s(self, now_s: float) -> float:
        """For how long nothing has moved, where it was the client's turn."""


C = TypeVar("C", bound=Quiet)


class IdleWheel(Generic[C]):
    """Calls ``on_idle`` with connections that were quiet for ``idle_ms``; negative: never."""

    def __init__(self, idle_ms: int, on_idle: Callable[[C], None]) -> None:
        self._idle_s = idle_ms / 1_000
        self._on_idle = on_idle
        self._slot_s = max(self._idle_s / (_SLOTS // 2), 0.001)
        self._slots: list[dict[C, None]] = [{} for _ in range(_SLOTS)]
        self._now = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._idle_s >= 0 and self._timer is None:
            self._look_later()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, connection: C) -> None:
        """Something has just moved on it."""
        self._put(connection, self._idle_s)

    def discard(self, connection: C) -> None:
        self._slots[connection.idle_slot].pop(connection, None)

    def _put(self, connection: C, left_s: float) -> None:
        ahead = min(max(1, math.ceil(left_s / self._slot_s)), _SLOTS - 1)
        connection.idle_slot = (self._now + ahead) % _SLOTS
        self._slots[connection.idle_slot][connection] = None

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._slot_s, self._look)

    def _look(self) -> None:
        self._look_later()
        self._now = (self._now + 1) % _SLOTS
        due, self._slots[self._now] = self._slots[self._now], {}
        now_s = asyncio.get_running_loop().time()
        for connection in due:
            left_s = self._idle_s - connection.quiet_s(now_s)
            self._put(connection, left_s)
            if left_s <= 0:
                self._on_idle(connection)
