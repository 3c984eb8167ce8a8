"""Turns for those who wait until there is room, so that little is queued ahead of small requests.

What is taken from a queue in the order in which it came keeps everybody waiting who comes behind a
large request. So a large request adds a part only while there is room, and the parts of several
such requests come in turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class RoomTurns:
    """A queue of tasks that wait for room, in the order in which they came."""

    def __init__(self, has_room: Callable[[], bool]) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        """The tasks that wait. While it is empty, nobody needs to call ``go_on``."""
        self._has_room = has_room
        self._next_is_due = False

    async def wait(self) -> None:
        """Return when there is room, and whoever has waited longer had a turn."""
        if self.waiting or not self._has_room():
            turn = asyncio.get_running_loop().create_future()
            self.waiting.append(turn)
            await turn

    def go_on(self) -> None:
        """Note that there may be room. One goes on in each pass of the event loop, because what it
        adds is counted only when it has run. Those who were cancelled wait no more.
        """
        if self.waiting and not self._next_is_due and self._has_room():
            self._next_is_due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._next_is_due = False
        if not self._has_room():
            return
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        self.go_on()
