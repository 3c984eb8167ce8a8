"""The threads for disk work that commits never wait for, or only rarely."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_READERS: Final = 4
"""The number of reads of old data that run at once."""


class Housekeeping:
    """Threads for four kinds of work, so that slow work does not delay work that a segment roll may
    have to wait for.

    ``ahead`` creates the next segment and writes small changes to the table. ``behind`` seals
    segments, and deletes those that were not sealed, one after the other, because one must not
    close what the other reads. ``unlinking`` deletes sealed segments, so that space is freed at
    once. ``reading`` reads old data that is only on disk.
    """

    def __init__(self) -> None:
        self.ahead = ThreadPoolExecutor(1, thread_name_prefix="log-ahead")
        self.reading = ThreadPoolExecutor(_READERS, thread_name_prefix="log-reading")
        self.behind = ThreadPoolExecutor(1, thread_name_prefix="log-behind")
        self.unlinking = ThreadPoolExecutor(1, thread_name_prefix="log-unlinking")

    async def idle(self) -> None:
        """Wait until all work that was submitted so far is done."""
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
    """Do nothing. An idle thread runs this at once."""
