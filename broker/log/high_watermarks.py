"""The checkpoint of high watermarks: written whole, in the background, the newest one wins.

An old one is harmless: a restarted replica learns the high watermark from its leader (C12).
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

from broker.log.table import StoreTable


class HighWatermarkCheckpoint:
    """High watermarks by local partition number, and their way to the table."""

    def __init__(
        self, table: StoreTable, executor: Executor, on_fault: Callable[[Exception], None]
    ) -> None:
        self._table = table
        self._executor = executor
        self._on_fault = on_fault
        self._offsets = table.high_watermarks()
        self._writing: asyncio.Future[None] | None = None
        self._is_stale = False

    def get(self, number: int) -> int:
        """The high watermark as last checkpointed, 0 if never."""
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
        self._table.write_high_watermarks(self._offsets)

    def _write(self) -> None:
        self._is_stale = False
        self._writing = asyncio.get_running_loop().run_in_executor(
            self._executor, self._table.write_high_watermarks, dict(self._offsets)
        )
        self._writing.add_done_callback(self._written)

    def _written(self, writing: "asyncio.Future[None]") -> None:
        self._writing = None
        error = writing.exception()
        if isinstance(error, Exception):
            self._on_fault(error)
        elif self._is_stale:
            self._write()
