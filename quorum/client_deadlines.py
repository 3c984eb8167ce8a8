"""One timer for any number of deadlines: a timer for each call costs more than the call."""

import asyncio
import math
from collections.abc import Callable


class DeadlineTimer:
    """Calls back when the soonest deadline has come; on the event loop it was made on."""

    def __init__(self, on_due: Callable[[float], float]) -> None:
        """``on_due`` gets the time, and returns the deadline that comes next, or infinity.

        Both on the clock of the event loop, in seconds.
        """
        self._on_due = on_due
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = math.inf

    def add(self, deadline_s: float) -> None:
        """``on_due`` is called at ``deadline_s`` at the latest."""
        if deadline_s < self._due_s:
            self.cancel()
            loop = asyncio.get_running_loop()
            self._due_s = deadline_s
            self._timer = loop.call_at(deadline_s, self._come, loop)

    def cancel(self) -> None:
        """Forget every deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = math.inf

    def _come(self, loop: asyncio.AbstractEventLoop) -> None:
        # A timer may fire a clock tick early.
        now_s = max(loop.time(), self._due_s)
        self._due_s = math.inf
        self.add(self._on_due(now_s))
