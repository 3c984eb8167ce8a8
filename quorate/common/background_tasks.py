"""Tasks that run beside the code that started them."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """The background tasks of one owner, until it closes. Use it on the event loop alone.

    The owner keeps the tasks because the loop does not: a task without a reference may be collected
    before it is done. Each task handles its own errors.
    """

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}
        """The tasks in the order in which they were started. A set would have another order in each
        run.
        """

    def start(
        self, work: Coroutine[Any, Any, None], name: str | None = None
    ) -> "asyncio.Task[None]":
        """Start and return a task. Tasks begin in the order in which they were started; ``name`` is
        for debugging.
        """
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def cancel(self) -> None:
        """Cancel all tasks, without waiting for their end."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks, and return once they have ended."""
        self.cancel()
        await self.ended()

    async def ended(self) -> None:
        """Wait until the tasks that run now have ended, with or without an error."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
