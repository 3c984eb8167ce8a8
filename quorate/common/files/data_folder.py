"""The owner of a data folder, and the lock that keeps other processes out of it.

``identity.json`` says which node of which cluster wrote the folder: a folder mounted in the wrong
place must never be taken for one's own. A locked file keeps a second process out. The lock is the
kernel's, so it goes when the process does, kill -9 included.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from quorate.common.files.checked_json import (
    CHECKSUM,
    decode_checked_json,
    decode_json_object,
    encode_checked_json,
)
from quorate.common.files.durable_files import write_durably
from quorate.common.files.private_files import (
    FILE_MODE,
    keep_folder_private,
    make_private_folder,
    private_files,
)
from quorate.common.types import ID_BYTES

IDENTITY_FILE: Final = "identity.json"
LOCK_FILE: Final = ".lock"
FORMAT: Final = 2
_WITHOUT_CHECKSUM: Final = 1
"""The format before identities had a checksum. It is rewritten when the folder is claimed."""

REPLACE: Final = (
    "Restore the data folder as it was; or, if that cannot be, empty it, remove this voter with "
    "`quorate quorum remove-voter` and add it again"
)
"""The advice about damage to a voter: it must never come back with less than it had."""

_ADVICE: Final = {
    "quorum": REPLACE,
    "broker": "Restore it; or, if other brokers are in sync with all partitions of this one, move "
    "the folder aside: it is then filled from them",
}


class DataFolderError(RuntimeError):
    """A data folder cannot be used; the message says why and what to do."""


class DataFolderMismatch(DataFolderError):
    """The folder belongs to another node or cluster."""


class DataFolderMalformed(DataFolderError):
    """The folder's identity cannot be understood."""


class DataFolderInUse(DataFolderError):
    """Another process uses the folder."""


class Identity(NamedTuple):
    """The node that wrote a data folder."""

    cluster_id: str
    role: str
    node_id: int
    directory_id: bytes
    """16 random bytes that tell this folder from every other one, also of the same node."""


@contextlib.contextmanager
def claimed_data_folder(
    path: Path,
    role: str,
    node_id: int,
    cluster_id: str,
    prepare: Callable[[Path], None] = lambda path: None,
) -> Iterator[bytes]:
    """Claim ``path`` as this process's own folder, created if need be, and yield its directory id.

    ``role`` is "quorum" or "broker". ``prepare`` makes the files that every folder with an identity
    has, before the folder gets one: a file that is missing later was lost, however early a kill
    came.

    Raises:
        DataFolderMismatch: the folder carries another identity; names both values.
        DataFolderInUse: another process holds it.
        DataFolderError: it cannot be created, read or written.
    """
    path = path.resolve()
    try:
        make_private_folder(path)
        descriptor = _lock(path)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        directory_id = _own_directory(path, role, node_id, cluster_id, prepare)
        keep_folder_private(path)
        yield directory_id
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def held_data_folder(path: Path) -> Iterator[None]:
    """Hold ``path``, whoever owns it, while no node uses it. This is for tools.

    Raises:
        DataFolderInUse: a process holds it.
        DataFolderError: it is not there, or cannot be used.
    """
    try:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        descriptor = _lock(path)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        with private_files():
            yield
    finally:
        os.close(descriptor)


def read_identity(path: Path) -> Identity | None:
    """Return the identity of the folder ``path``, or None if it has none.

    Raises:
        DataFolderMismatch: another version of this program wrote it.
        DataFolderMalformed: it cannot be understood.
        DataFolderError: it cannot be read.
    """
    stored = _stored_identity(path)
    return None if stored is None else stored[0]


def _stored_identity(path: Path) -> tuple[Identity, int] | None:
    """Return the identity of the folder and the format that it has on disk."""
    file = path / IDENTITY_FILE
    try:
        data = file.read_bytes()
        content = _decoded(path, data)
        identity = Identity(
            cluster_id=str(content["cluster_id"]),
            role=str(content["role"]),
            node_id=int(content["node_id"]),
            directory_id=bytes.fromhex(content["directory_id"]),
        )
        return identity, content["format"]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataFolderMalformed(f"{file} is malformed ({error})") from error


def _decoded(path: Path, data: bytes) -> dict[str, Any]:
    unchecked = decode_json_object(data)
    if unchecked["format"] == _WITHOUT_CHECKSUM and CHECKSUM not in unchecked:
        return unchecked
    if int(unchecked["format"]) > FORMAT:
        raise DataFolderMismatch(
            f"data folder {path} has format {unchecked['format']}, this version reads format "
            f"{FORMAT}: start this node with the newer release that wrote {IDENTITY_FILE}, or "
            "restore that file if it is damaged"
        )
    content = decode_checked_json(data)
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']}, this version reads {FORMAT}")
    return content


def _unusable(path: Path, error: OSError) -> DataFolderError:
    return DataFolderError(f"cannot use data folder {path}: {error.strerror}")


def _lock(path: Path) -> int:
    """Return the descriptor of the locked file, which the caller closes in the end."""
    descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DataFolderInUse(
            f"data folder {path} is used by another process: stop it, or use another folder"
        ) from None
    return descriptor


def _own_directory(
    path: Path, role: str, node_id: int, cluster_id: str, prepare: Callable[[Path], None]
) -> bytes:
    try:
        stored = _stored_identity(path)
    except DataFolderMalformed as error:
        raise DataFolderMalformed(f"{error}. {_ADVICE[role]}") from error
    if stored is None:
        own = Identity(cluster_id, role, node_id, os.urandom(ID_BYTES))
        prepare(path)
        _write_identity(path, own)
        return own.directory_id
    found, version = stored
    for name, value in (("cluster_id", cluster_id), ("role", role), ("node_id", node_id)):
        if getattr(found, name) != value:
            raise DataFolderMismatch(
                f"data folder {path} belongs to {name}={getattr(found, name)}, not {name}={value}: "
                "correct the configuration, or use another folder"
            )
    if version != FORMAT:
        _write_identity(path, found)
    return found.directory_id


def _write_identity(path: Path, own: Identity) -> None:
    content = {"format": FORMAT, **own._asdict(), "directory_id": own.directory_id.hex()}
    try:
        write_durably(path / IDENTITY_FILE, encode_checked_json(content))
    except OSError as error:
        raise _unusable(path, error) from error
