"""What a burst of large answers took of memory is given back once it is over.

Freed memory is kept, because large frames and answers come again and again, and what lies between
live objects the C library never gives back by itself.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from broker.client_memory import ResponseMemory

LOOK_INTERVAL_S: Final = 10.0
WORTH_BYTES: Final = 64 << 20


class Trimming:
    """Calls ``trim`` on a thread, when for an interval answers have held much less than before."""

    def __init__(self, memory: ResponseMemory, trim: Callable[[], object]) -> None:
        self._memory = memory
        self._trim = trim
        self._highest_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._timer is None:
            self._look_later()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._look)

    def _look(self) -> None:
        self._look_later()
        lately_bytes = self._memory.take_highest()
        if self._highest_bytes >= WORTH_BYTES and lately_bytes < self._highest_bytes // 4:
            asyncio.get_running_loop().run_in_executor(None, self._trim)
            self._highest_bytes = lately_bytes
        self._highest_bytes = max(self._highest_bytes, lately_bytes)
