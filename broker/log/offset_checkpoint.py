"""A checkpoint of one offset per log: written whole, in the background, the newest one wins.

For what an old value does no harm to. High watermarks: a restarted replica learns them from its
leader (C12). How far logs are clean: what was cleaned since is looked at once more.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

Write = Callable[[Mapping[int, int]], None]
"""Replaces the checkpoint on disk."""


class OffsetCheckpoint:
    """Offsets by local partition number, and their way to the table."""

    def __init__(
        self,
        offsets: dict[int, int],
        write: Write,
        executor: Executor,
        on_fault: Callable[[Exception], None],
    ) -> None:
        """``offsets``: as they were last written."""
        self._offsets = offsets
        self._write_offsets = write
        self._executor = executor
        self._on_fault = on_fault
        self._writing: asyncio.Future[None] | None = None
        self._is_stale = False

    def get(self, number: int) -> int:
        """As last checkpointed, 0 if never."""
        return self._offsets.get(number, 0)

    def forget(self, number: int) -> None:
        """The partition is gone; the next checkpoint lacks it."""
        self._offsets.pop(number, None)

    def update(self, offsets: Mapping[int, int]) -> None:
        """Write a checkpoint with these changes, after the one that is being written."""
        self._offsets.update(offsets)
        self._is_stale = True
        if self._writing is None:
            self._write()

    async def drain(self) -> None:
        """Return when nothing is being written."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    def write_now(self) -> None:
        """Write a checkpoint at once, on the calling thread: the last thing before a close."""
        self._write_offsets(self._offsets)

    def _write(self) -> None:
        self._is_stale = False
        self._writing = asyncio.get_running_loop().run_in_executor(
            self._executor, self._write_offsets, dict(self._offsets)
        )
        self._writing.add_done_callback(self._written)

    def _written(self, writing: "asyncio.Future[None]") -> None:
        self._writing = None
        error = writing.exception()
        if isinstance(error, Exception):
            self._on_fault(error)
        elif self._is_stale:
            self._write()
