"""Who a data folder belongs to, and that one process alone uses it.

``identity.json`` says which node of which cluster wrote the folder: a folder mounted in the wrong
place must never be taken for one's own. A locked file keeps a second process out; the lock is the
kernel's, so it goes when the process does, kill -9 included.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from metadata_log.types import ID_BYTES

IDENTITY_FILE: Final = "identity.json"
LOCK_FILE: Final = ".lock"
FORMAT: Final = 1

_held_locks: dict[Path, int] = {}


class DataFolderError(RuntimeError):
    """A data folder cannot be used; the message says why and what to do."""


class DataFolderMismatch(DataFolderError):
    """The folder belongs to another node or cluster."""


class DataFolderInUse(DataFolderError):
    """Another process uses the folder."""


class DataFolder(NamedTuple):
    """A folder that this process has claimed."""

    directory_id: bytes
    """16 random bytes that tell this folder from every other, also one of the same node."""
    is_new: bool
    """It was claimed for the first time: whatever else is missing was never there."""


def claim_data_folder(path: Path, role: str, node_id: int, cluster_id: str) -> DataFolder:
    """Make ``path`` this process's own folder, creating it if need be.

    ``role`` is "quorum" or "broker". The claim lasts until the process ends or
    ``release_data_folder`` is called.

    Raises:
        DataFolderMismatch: the folder carries another identity; names both values.
        DataFolderInUse: another process holds it.
        DataFolderError: it cannot be created, read or written.
    """
    path = path.resolve()
    try:
        path.mkdir(parents=True, exist_ok=True)
        _lock(path)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        return _check_identity(path, {"cluster_id": cluster_id, "role": role, "node_id": node_id})
    except OSError as error:
        release_data_folder(path)
        raise _unusable(path, error) from error
    except DataFolderError:
        release_data_folder(path)
        raise


def release_data_folder(path: Path) -> None:
    """Give up the claim of ``path``; nothing happens if it is not held."""
    descriptor = _held_locks.pop(path.resolve(), None)
    if descriptor is not None:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Make names created in, renamed in or removed from ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Replace the file ``path`` with ``content``, all or nothing, on disk before it returns."""
    scratch = path.with_name(f"{path.name}.tmp")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    sync_folder(path.parent)


def _unusable(path: Path, error: OSError) -> DataFolderError:
    return DataFolderError(f"cannot use data folder {path}: {error.strerror}")


def _lock(path: Path) -> None:
    in_use = f"data folder {path} is used by another process: stop it, or use another folder"
    if path in _held_locks:
        raise DataFolderInUse(in_use)
    descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DataFolderInUse(in_use) from None
    _held_locks[path] = descriptor


def _check_identity(path: Path, own: dict[str, Any]) -> DataFolder:
    file = path / IDENTITY_FILE
    if not file.exists():
        directory_id = os.urandom(ID_BYTES)
        identity = {"format": FORMAT, **own, "directory_id": directory_id.hex()}
        write_durably(file, json.dumps(identity).encode() + b"\n")
        return DataFolder(directory_id, is_new=True)
    try:
        found = json.loads(file.read_bytes())
        if found["format"] != FORMAT:
            raise DataFolderMismatch(
                f"data folder {path} has format {found['format']}, "
                f"this version reads format {FORMAT}"
            )
        identity = {name: found[name] for name in own}
        directory_id = bytes.fromhex(found["directory_id"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataFolderError(
            f"{file} is malformed ({error}): restore it, or move the folder aside to start afresh"
        ) from error
    for name, value in own.items():
        if identity[name] != value:
            raise DataFolderMismatch(
                f"data folder {path} belongs to {name}={identity[name]}, not {name}={value}: "
                "correct the configuration, or use another folder"
            )
    return DataFolder(directory_id, is_new=False)
