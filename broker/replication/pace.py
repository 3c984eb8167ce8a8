"""Pauses in long work: a broker whose event loop is blocked for seconds is declared dead."""

import asyncio
from typing import Final

STEPS_IN_A_ROW: Final = 100
"""The number of partitions handled before other tasks have their turn: about 5 ms of work."""


class Pace:
    """Counts steps of all who share it, and pauses after every ``STEPS_IN_A_ROW``."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps = 0

    async def step(self) -> None:
        """Pause if it is time to. Call it before each step."""
        self._steps += 1
        if self._steps >= STEPS_IN_A_ROW:
            self._steps = 0
            await asyncio.sleep(0)
