"""Requests about everything take turns: what is in memory must not grow with brokers (B1).

A request is in memory from when it is built until it is answered, and gRPC keeps a copy meanwhile.
A new controller has one to build for each broker, of up to megabytes; one after another they take
no longer, since all of them leave by the same wire.
"""

import asyncio
from typing import Final

LONGEST_TURN_S: Final = 1.0
"""Brokers that do not answer hold up the others for so long at most (C17)."""


class Turns:
    """So many at once."""

    def __init__(self, at_once: int) -> None:
        self._free = asyncio.Semaphore(at_once)

    async def take(self) -> "Turn":
        """Wait for a turn; its holder ends it."""
        await self._free.acquire()
        return Turn(self._free)


class Turn:
    """Ends once: by its holder, or by the clock."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._ended = False
        self._timer = asyncio.get_running_loop().call_later(LONGEST_TURN_S, self.end)

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._timer.cancel()
            self._free.release()
