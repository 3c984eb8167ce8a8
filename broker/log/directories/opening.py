"""Opens the log folders of a broker. A folder that cannot be opened stays offline, and the broker
goes on without it, as long as one is left (KIP-112)."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path

import msgspec

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.checkpoints.store_table import FILE_NAME as TABLE_NAME
from quorate.broker.log.directories.known_folders import (
    FolderPlan,
    FoundFolder,
    KnownFolder,
    KnownFolders,
    newest,
    plan_folders,
    read_known_folders,
    write_known_folders,
)
from quorate.broker.log.directories.log_directories import LogDirectories
from quorate.broker.log.log_manager import LogCallbacks, LogManager
from quorate.broker.log.options import LogOptions
from quorate.broker.log.writing.log_writer import LogManagerListener
from quorate.common.files.data_folder import (
    DataFolderError,
    DataFolderInUse,
    DataFolderMismatch,
    read_identity,
)

log = logging.getLogger(__name__)

ClaimFolder = Callable[[Path], AbstractContextManager[bytes]]
"""Claims a folder for this broker and returns its directory id, see ``claimed_data_folder``."""

_UNUSABLE = (DataFolderError, KafkaError, OSError)
"""What is wrong with a folder that stays offline while others are opened."""


async def open_log_directories(
    paths: Sequence[Path],
    claim: ClaimFolder,
    options: LogOptions,
    events: LogManagerListener,
    cleanup: AsyncExitStack,
) -> LogDirectories:
    """Open the folders at ``paths``, which report to ``events``; ``cleanup`` closes them.

    Raises:
        DataFolderMismatch, DataFolderInUse: A folder is another broker's.
        DataFolderError, KafkaError, OSError: No folder can be used.
    """
    known = newest(_record_in(path) for path in paths)
    is_alone = len(paths) == 1 and not known.folders
    plan = plan_folders([FoundFolder(paths[0])] if is_alone else list(map(_look_at, paths)), known)
    offline = dict(plan.offline)
    failures: list[Exception] = []

    def fail(path: Path, error: Exception) -> None:
        failures.append(error)
        offline[path] = str(error)

    claimed = _claim(plan, claim, fail, cleanup)
    known = known.with_folders(_folders(known, claimed))
    stores = await _open_stores(claimed, options, events, fail, cleanup, known)
    if not stores:
        raise failures[0] if failures else DataFolderError("; ".join(offline.values()))
    for path, why in offline.items():
        log.error("log directory %s is offline, the broker goes on without it: %s", path, why)
    missing = {key: one for key, one in known.folders.items() if key not in stores}
    directories = LogDirectories(stores, known, offline=offline, missing=missing)
    await directories.settle_duplicates()
    return directories


def _record_in(path: Path) -> KnownFolders | None:
    """Return the record of folders in ``path``; what is wrong with it is found later."""
    try:
        return read_known_folders(path)
    except (DataFolderError, OSError):
        return None


def _look_at(path: Path) -> FoundFolder:
    """Return what is at ``path``, without a change of it."""
    try:
        read_known_folders(path)
        identity = read_identity(path)
    except DataFolderMismatch:
        raise
    except (DataFolderError, OSError) as error:
        return FoundFolder(path, error=str(error))
    has_logs = (path / TABLE_NAME).exists()
    return FoundFolder(path, None if identity is None else identity.directory_id, has_logs)


def _claim(
    plan: FolderPlan,
    claim: ClaimFolder,
    fail: Callable[[Path, Exception], None],
    cleanup: AsyncExitStack,
) -> dict[bytes, Path]:
    """Claim the usable folders, and return them by directory id. One of another broker, or one that
    another process uses, is a mistake in the configuration and no failure of a disk."""
    claimed: dict[bytes, Path] = {}
    for path in plan.usable:
        try:
            directory_id = cleanup.enter_context(claim(path))
        except (DataFolderMismatch, DataFolderInUse):
            raise
        except _UNUSABLE as error:
            fail(path, error)
            continue
        if directory_id in claimed:
            raise DataFolderMismatch(
                f"log directories {claimed[directory_id]} and {path} have the same id "
                f"{directory_id.hex()}: one is a copy of the other; empty the older one"
            )
        claimed[directory_id] = path
    return claimed


def _folders(known: KnownFolders, claimed: Mapping[bytes, Path]) -> Mapping[bytes, KnownFolder]:
    """Return the folders that the record is to have. A broker with one folder needs none."""
    folders = dict(known.folders)
    for directory_id, path in claimed.items():
        before = folders.get(directory_id)
        folders[directory_id] = KnownFolder(str(path), before.absence if before else None)
    return folders if len(folders) > 1 else known.folders


async def _open_stores(
    claimed: Mapping[bytes, Path],
    options: LogOptions,
    events: LogManagerListener,
    fail: Callable[[Path, Exception], None],
    cleanup: AsyncExitStack,
    known: KnownFolders,
) -> dict[bytes, LogManager]:
    """Open the logs in the claimed folders. The record of folders is written first: then no folder
    ever has a log without being known."""
    stores: dict[bytes, LogManager] = {}
    callbacks = _callbacks(events, stores.values(), is_alone=len(claimed) == 1)
    options = msgspec.structs.replace(
        options, tail_bytes=options.tail_bytes // max(1, len(claimed))
    )
    for directory_id, path in claimed.items():
        try:
            if known.folders:
                await asyncio.to_thread(write_known_folders, path, known)
            store = await LogManager.open(path, options, callbacks)
        except _UNUSABLE as error:
            fail(path, error)
            continue
        stores[directory_id] = store
        cleanup.push_async_callback(store.close)
    return stores


def _callbacks(
    events: LogManagerListener, stores: Collection[LogManager], *, is_alone: bool
) -> LogCallbacks:
    """Return callbacks by which a failed disk is the end only when no other is left."""
    callbacks = LogCallbacks.to(events)
    if is_alone:
        return callbacks

    def failed(error: Exception) -> None:
        if all(store.failure is not None for store in stores):
            events.on_log_failed(error)
        else:
            events.on_directory_failed(error)

    return callbacks._replace(failed=failed)
