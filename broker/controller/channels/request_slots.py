"""Limits the requests about all partitions or topics that are in memory at once, so that memory
does not grow with the number of brokers (B1).

A request is in memory from when it is built until it is answered, and gRPC keeps a copy meanwhile.
A new controller has one to build for each broker, of up to megabytes. Sending them one after
another takes no longer, because all of them leave over the same network link.
"""

import asyncio
from typing import Final

LONGEST_SLOT_S: Final = 1.0
"""The longest time for which a broker that does not answer can hold a slot (C17)."""


class RequestSlots:
    """A fixed number of slots."""

    def __init__(self, at_once: int) -> None:
        self._free = asyncio.Semaphore(at_once)

    async def acquire(self) -> "RequestSlot":
        """Wait for a slot. The caller ends it."""
        await self._free.acquire()
        return RequestSlot(self._free)


class RequestSlot:
    """One slot. It is freed once: by its holder, or after ``LONGEST_SLOT_S``."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._ended = False
        self._timer = asyncio.get_running_loop().call_later(LONGEST_SLOT_S, self.end)

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._timer.cancel()
            self._free.release()
