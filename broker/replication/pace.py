"""Long commands let the event loop go on: a broker that is silent for seconds is declared dead."""

import asyncio
from typing import Final

STEPS_IN_A_ROW: Final = 100
"""Partitions that are handled before others have their turn: about 5 ms."""


class Pace:
    """Counts steps, whoever makes them, and pauses after every so many."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps = 0

    async def step(self) -> None:
        """Before each step."""
        self._steps += 1
        if self._steps >= STEPS_IN_A_ROW:
            self._steps = 0
            await asyncio.sleep(0)
