"""Notices that the event loop stood still for longer than the controller's session lasts (E4).

A process that is stopped and continued (SIGSTOP, a paused machine, one endless computation) finds
in its hands what it was about to do, while another controller may be in office already. Whoever
is about to act asks ``may_act`` first: the beat that would tell may come after it in the loop.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

BEATS_PER_LIMIT: Final = 4
"""How often the loop shows that it runs, so that a busy but running one is never taken for dead."""


def stood_still(last_beat_s: float, now_s: float, limit_ms: int) -> bool:
    """Whether so much time passed between two signs of life that the session may have expired."""
    return (now_s - last_beat_s) * 1000 >= limit_ms


class Watchdog:
    """Of one tenure. ``on_stall`` is told once; from then on nobody may act."""

    def __init__(self, *, limit_ms: int, on_stall: Callable[[], None]) -> None:
        """``limit_ms``: the session's timeout."""
        self._limit_ms = limit_ms
        self._on_stall = on_stall
        self._loop = asyncio.get_running_loop()
        self._last_beat_s = self._loop.time()
        self._stalled = False
        self._next_beat: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._beat()

    def close(self) -> None:
        if self._next_beat is not None:
            self._next_beat.cancel()

    def may_act(self) -> bool:
        """Whether this controller may still decide and tell."""
        now_s = self._loop.time()
        if not self._stalled and stood_still(self._last_beat_s, now_s, self._limit_ms):
            self._stalled = True
            log.warning(
                "the event loop stood still for %.0f ms, longer than the session's %d ms: "
                "the controller gives up its office",
                (now_s - self._last_beat_s) * 1000,
                self._limit_ms,
            )
            self._on_stall()
        return not self._stalled

    def _beat(self) -> None:
        if self.may_act():
            self._last_beat_s = self._loop.time()
            pause_s = self._limit_ms / 1000 / BEATS_PER_LIMIT
            self._next_beat = self._loop.call_later(pause_s, self._beat)
