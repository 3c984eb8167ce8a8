"""Reads for clients leave the event loop its turns: an answer of 50 MiB would stop it for long."""

import asyncio
from typing import Final

from quorate.broker.quota.work_turns import TurnQueue

BYTES_IN_A_ROW: Final = 4 << 20
"""The bytes that are read for all clients together before others have a turn: a few ms."""


class ReadTurns:
    """One reader at a time goes on once ``BYTES_IN_A_ROW`` were read."""

    def __init__(self, bytes_in_a_row: int = BYTES_IN_A_ROW) -> None:
        self._bytes_in_a_row = bytes_in_a_row
        self._left_bytes = bytes_in_a_row
        self._next_is_due = False
        self._waiting = TurnQueue()

    @property
    def is_over(self) -> bool:
        """Whether a reader must ``wait`` before its next read."""
        return self._left_bytes <= 0

    async def wait(self) -> None:
        """Return when others had their turn, and readers that have waited longer."""
        while self.is_over:
            await self._waiting.join()

    def took(self, size: int) -> None:
        """Count bytes that were read."""
        self._left_bytes -= size
        if self.is_over:
            self._next_soon()

    def _next_soon(self) -> None:
        if not self._next_is_due:
            self._next_is_due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._next_is_due = False
        self._left_bytes = self._bytes_in_a_row
        if self._waiting.wake_next():
            # It reads in the next turn of the loop, the one behind it in the turn after.
            self._next_soon()
