"""What a store remembers of its logs between runs, and no harm comes of if it is old."""

from collections.abc import Callable
from concurrent.futures import Executor

from broker.log.offset_checkpoint import OffsetCheckpoint
from broker.log.table import StoreTable


class LogCheckpoints:
    """``high_watermarks``, and how far logs are ``cleaned``, by local partition number."""

    def __init__(
        self, table: StoreTable, executor: Executor, on_fault: Callable[[Exception], None]
    ) -> None:
        self.high_watermarks = OffsetCheckpoint(
            table.high_watermarks(),
            lambda offsets: table.write_high_watermarks(offsets),
            executor,
            on_fault,
        )
        self.cleaned = OffsetCheckpoint(
            table.cleaned_offsets(),
            lambda offsets: table.write_cleaned_offsets(offsets),
            executor,
            on_fault,
        )

    def forget(self, number: int) -> None:
        """The log is gone."""
        self.high_watermarks.forget(number)
        self.cleaned.forget(number)

    async def drain(self) -> None:
        """Return when nothing is being written."""
        await self.high_watermarks.drain()
        await self.cleaned.drain()

    def write_now(self) -> None:
        """On the calling thread: the last thing before a close."""
        self.high_watermarks.write_now()
        self.cleaned.write_now()
