"""Work that goes on beside whoever began it."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """Of one owner, until it closes. On the event loop alone.

    They are kept here because the loop does not: a task that nobody refers to may be collected
    before it is done. Each deals with its own errors.
    """

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In the order in which they were started: a set has another one in each run."""

    def start(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        """Tasks begin in the order in which they were started. ``name``: for who debugs them."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def cancel(self) -> None:
        """Have all of them end, without waiting for it."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Have all of them end; they have when this returns."""
        self.cancel()
        await self.ended()

    async def ended(self) -> None:
        """Wait until those that go on now have ended, however they do."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
