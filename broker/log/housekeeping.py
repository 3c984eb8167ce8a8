"""The threads for disk work that no commit waits for, or only rarely."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_READERS: Final = 4
"""Reads of old data that the disk gets at once."""


class Housekeeping:
    """Threads of four kinds, so that the slow does not hold up what a roll may have to wait for.

    ``ahead``: creating the next segment, small writes to the table. ``behind``: sealing segments,
    and unlinking those that were not, one after the other: one must not close what the other reads.
    ``unlinking``: sealed segments, so that room is given back at once. ``reading``: old data that
    is on the disk alone.
    """

    def __init__(self) -> None:
        self.ahead = ThreadPoolExecutor(1, thread_name_prefix="log-ahead")
        self.reading = ThreadPoolExecutor(_READERS, thread_name_prefix="log-reading")
        self.behind = ThreadPoolExecutor(1, thread_name_prefix="log-behind")
        self.unlinking = ThreadPoolExecutor(1, thread_name_prefix="log-unlinking")

    async def idle(self) -> None:
        """Return when everything asked for so far is done."""
        loop = asyncio.get_running_loop()
        for executor in (self.ahead, self.behind, self.unlinking):
            await loop.run_in_executor(executor, _nothing)

    def shutdown(self) -> None:
        """Let the threads end."""
        self.ahead.shutdown()
        self.behind.shutdown()
        self.unlinking.shutdown()
        self.reading.shutdown()


def _nothing() -> None:
    """What an idle thread does at once."""
