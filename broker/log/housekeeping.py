"""The threads for disk work that no commit waits for, or only rarely."""

import asyncio
from concurrent.futures import ThreadPoolExecutor


class Housekeeping:
    """Two threads, so that the slow does not hold up what a roll may have to wait for.

    ``ahead``: creating the next segment, small writes to the table. ``behind``: syncing and
    unlinking sealed segments, one after the other: one must not close what the other syncs.
    """

    def __init__(self) -> None:
        self.ahead = ThreadPoolExecutor(1, thread_name_prefix="log-ahead")
        self.behind = ThreadPoolExecutor(1, thread_name_prefix="log-behind")

    async def idle(self) -> None:
        """Return when everything asked for so far is done."""
        loop = asyncio.get_running_loop()
        for executor in (self.ahead, self.behind):
            await loop.run_in_executor(executor, _nothing)

    def shutdown(self) -> None:
        """Let the threads end."""
        self.ahead.shutdown()
        self.behind.shutdown()


def _nothing() -> None:
    """What an idle thread does at once."""
