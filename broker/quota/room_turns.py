"""Turns for those who wait until there is room, so that little is queued ahead of small requests.

What is taken from a queue in the order in which it came keeps everybody waiting who comes behind a
large request. So a large request adds a part only while there is room, and the parts of several
such requests come in turn.
"""

import asyncio
from collections.abc import Callable

from quorate.broker.quota.work_turns import TurnQueue


class RoomTurns(TurnQueue):
    """A queue of tasks that wait for room, in the order in which they came.

    While nobody is ``waiting``, nobody needs to call ``go_on``.
    """

    def __init__(self, has_room: Callable[[], bool]) -> None:
        super().__init__()
        self._has_room = has_room
        self._next_is_due = False

    async def wait(self) -> None:
        """Return when there is room, and whoever has waited longer had a turn."""
        if self.waiting or not self._has_room():
            await self.join()

    def go_on(self) -> None:
        """Note that there may be room. One goes on in each pass of the event loop, because what it
        adds is counted only when it has run.
        """
        if self.waiting and not self._next_is_due and self._has_room():
            self._next_is_due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._next_is_due = False
        if not self._has_room():
            return
        self.wake_next()
        self.go_on()
