"""Reads for clients leave the event loop its turns: an answer of 50 MiB would stop it for long."""

import asyncio
from collections import deque
from typing import Final

BYTES_IN_A_ROW: Final = 4 << 20
"""The bytes that are read for all clients together before others have a turn: a few ms."""


class ReadTurns:
    """One reader at a time goes on once ``BYTES_IN_A_ROW`` were read."""

    def __init__(self, bytes_in_a_row: int = BYTES_IN_A_ROW) -> None:
        self._bytes_in_a_row = bytes_in_a_row
        self._left_bytes = bytes_in_a_row
        self._next_is_due = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_over(self) -> bool:
        """Whether a reader must ``wait`` before its next read."""
        return self._left_bytes <= 0

    async def wait(self) -> None:
        """Return when others had their turn, and readers that have waited longer."""
        while self.is_over:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

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
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                # It reads in the next turn of the loop, the one behind it in the turn after.
                self._next_soon()
                return
