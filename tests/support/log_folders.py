"""The log folders of a broker inside a test, opened as a broker opens them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from quorate.broker.log import LogDirectories, LogOptions
from quorate.broker.log.directories.opening import open_log_directories
from quorate.broker.log.recovery.folder_identity import require_identity
from quorate.broker.log.writing.log_writer import LogManagerEvents, LogManagerListener
from quorate.common.files.data_folder import claimed_data_folder


class Failures(LogManagerListener):
    """What the folders reported."""

    def __init__(self) -> None:
        self.of_one: list[Exception] = []
        self.of_all: list[Exception] = []
        self.changed = asyncio.Event()

    def on_directory_failed(self, error: Exception) -> None:
        self.of_one.append(error)
        self.changed.set()

    def on_log_failed(self, error: Exception) -> None:
        self.of_all.append(error)
        self.changed.set()


@asynccontextmanager
async def opened_folders(
    paths: Sequence[Path],
    failures: LogManagerListener | None = None,
    *,
    incarnation_id: bytes = b"",
) -> AsyncIterator[LogDirectories]:
    """The folders of broker 1 of the cluster ``c``; closed properly at the end."""
    events = LogManagerEvents()
    if failures is not None:
        events.subscribe(failures)
    async with AsyncExitStack() as cleanup:
        directories = await open_log_directories(
            paths,
            lambda path: claimed_data_folder(path, "broker", 1, "c", require_identity),
            LogOptions(
                segment_bytes=1 << 20, reserve_bytes=64 << 10, incarnation_id=incarnation_id
            ),
            events,
            cleanup,
        )
        cleanup.push_async_callback(directories.close)
        yield directories
