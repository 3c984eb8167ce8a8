"""An event loop whose clock jumps to the next timer instead of waiting for it.

Tests of code with pauses and time limits run at once, and the same way every time. Nothing may come
from outside (no sockets, threads or processes): a loop with nothing left to do is a dead test.
"""

import asyncio
import selectors


class DeadTest(AssertionError):
    """Every task waits for something that no task will ever bring about."""


class _NoWaiting(selectors.SelectSelector):
    """Never blocks: a wait of so many seconds moves the clock by as many."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise DeadTest("nothing is due, now or later")
            self.now_s += max(0.0, timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its time begins at 0 and passes only while every task waits."""

    def __init__(self) -> None:
        self._no_waiting = _NoWaiting()
        super().__init__(self._no_waiting)

    def time(self) -> float:
        return self._no_waiting.now_s


async def pass_time(seconds: float) -> None:
    """Let so much time pass, which takes none: others have their turns, and their time limits."""
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop), "time is real here"
    await asyncio.sleep(seconds)
