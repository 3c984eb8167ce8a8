"""Checkpoints: offsets that a store keeps between runs, one offset per log in each checkpoint.

A checkpoint is written whole, in the background, and replaces the one before. An old checkpoint
does no harm. A restarted replica learns its high watermark from its leader (C12), and offsets that
were cleaned after the checkpoint are examined again by the log cleaner.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

from quorate.broker.log.checkpoints.store_table import StoreTable

SegmentCommits = Callable[[], Mapping[int, int]]
"""Returns the last commits of segments that are written, by id. It is called in a thread."""


class OffsetCheckpoint(ABC):
    """Offsets by local partition number, which are written to the table in the background."""

    def __init__(
        self,
        table: StoreTable,
        offsets: dict[int, int],
        executor: Executor,
        on_fault: Callable[[Exception], None],
    ) -> None:
        """``offsets`` are the offsets of the newest checkpoint in the table."""
        self._table = table
        self._offsets = offsets
        self._executor = executor
        self._on_fault = on_fault
        self._writing: asyncio.Future[None] | None = None
        self._is_stale = False

    def get(self, number: int) -> int:
        """Return the offset in the newest checkpoint, or 0 if there is none for this log."""
        return self._offsets.get(number, 0)

    def forget(self, number: int) -> None:
        """Leave the partition out of the next checkpoint, because it was deleted."""
        self._offsets.pop(number, None)

    def update(self, offsets: Mapping[int, int]) -> None:
        """Write a checkpoint with these changes, after the one that is being written."""
        self._offsets.update(offsets)
        self._is_stale = True
        if self._writing is None:
            self._write()

    async def drain(self) -> None:
        """Wait until no checkpoint is being written."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    def write_now(self) -> None:
        """Write a checkpoint at once, on the calling thread. This is the last write before the
        store closes."""
        self._replace(self._offsets)

    @abstractmethod
    def _replace(self, offsets: Mapping[int, int]) -> None:
        """Replace the checkpoint on disk. Runs in a thread of the executor."""

    def _write(self) -> None:
        self._is_stale = False
        self._writing = asyncio.get_running_loop().run_in_executor(
            self._executor, self._replace, dict(self._offsets)
        )
        self._writing.add_done_callback(self._written)

    def _written(self, writing: "asyncio.Future[None]") -> None:
        self._writing = None
        error = writing.exception()
        if isinstance(error, Exception):
            self._on_fault(error)
        elif self._is_stale:
            self._write()


class HighWatermarkCheckpoint(OffsetCheckpoint):
    """The high watermarks of the logs, and how far segments were written then."""

    def __init__(
        self,
        table: StoreTable,
        executor: Executor,
        on_fault: Callable[[Exception], None],
        commits: SegmentCommits,
    ) -> None:
        super().__init__(table, table.high_watermarks(), executor, on_fault)
        self._commits = commits
        self.mark = table.mark()
        """The mark of the folder, as it is on disk. It grows with every checkpoint."""
        self.least_mark = 0
        """The least mark that the next checkpoint gives to the folder. Several folders of a broker
        grow together."""

    def _replace(self, offsets: Mapping[int, int]) -> None:
        commits = self._commits()
        self.mark = self._table.write_high_watermarks(offsets, commits, self.least_mark)


class CleanedOffsetCheckpoint(OffsetCheckpoint):
    """The offsets up to which the log cleaner has cleaned the logs."""

    def _replace(self, offsets: Mapping[int, int]) -> None:
        self._table.write_cleaned_offsets(offsets)


class LogCheckpoints:
    """Both checkpoints of a store."""

    def __init__(
        self,
        table: StoreTable,
        executor: Executor,
        on_fault: Callable[[Exception], None],
        commits: SegmentCommits,
    ) -> None:
        self.high_watermarks = HighWatermarkCheckpoint(table, executor, on_fault, commits)
        self.cleaned = CleanedOffsetCheckpoint(table, table.cleaned_offsets(), executor, on_fault)

    def forget(self, number: int) -> None:
        """Leave the log out of both checkpoints, because it was deleted."""
        self.high_watermarks.forget(number)
        self.cleaned.forget(number)

    async def drain(self) -> None:
        """Wait until no checkpoint is being written."""
        await self.high_watermarks.drain()
        await self.cleaned.drain()

    def write_now(self) -> None:
        """Write both checkpoints on the calling thread. This is the last write before the store
        closes."""
        self.high_watermarks.write_now()
        self.cleaned.write_now()
