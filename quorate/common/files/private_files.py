"""Files that only their owner may read: data folders hold keys, credentials and records.

A process sets the umask once, when it starts. Folders are made with their mode. What an earlier
release, or somebody else, has made wider is narrowed where it is used.
"""

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
_UMASK: Final = 0o077


def keep_files_private() -> None:
    """Give nobody else a right to what this process makes from now on."""
    os.umask(_UMASK)


@contextmanager
def private_files() -> Iterator[None]:
    """Give nobody else a right to what is made meanwhile. For commands, which may also write files
    that are meant for others.
    """
    before = os.umask(_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def make_private_folder(path: Path) -> None:
    """Make the folder, and those above it that are missing, unless it is there.

    Raises:
        OSError: it cannot be made.
    """
    with private_files():
        path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


class Narrowed(NamedTuple):
    """The result of taking away the rights that others had to a folder."""

    changed: int
    """The number of files and folders that others have no rights to any more."""
    left: tuple[Path, ...]
    """The files and folders that could not be changed, or must not be: they are somebody else's."""


def narrow(folder: Path) -> Narrowed:
    """Take away the rights that others have to a folder, and to everything in it.

    Symbolic links are not followed. A folder with the sticky bit is shared by intention, as /tmp
    is: it is left as it is.
    """
    changed = 0
    left = []
    for path in _everything(folder):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue  # Its owner is at work.
        if stat.S_ISLNK(status.st_mode) or not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            continue
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder and status.st_mode & stat.S_ISVTX:
            left.append(path)
            continue
        allowed = FOLDER_MODE if is_folder else FILE_MODE
        try:
            path.chmod(status.st_mode & allowed)
            changed += 1
        except FileNotFoundError:
            continue
        except PermissionError:
            left.append(path)
    return Narrowed(changed, tuple(left))


def _everything(folder: Path) -> Iterator[Path]:
    yield folder
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(parent, name)


def describe_narrowed(folder: Path, narrowed: Narrowed) -> str | None:
    """Return one line about what was narrowed, or None if there is nothing to say."""
    said = []
    if narrowed.changed:
        said.append(
            f"other users had rights to {narrowed.changed} files and folders, and have none now"
        )
    if narrowed.left:
        others = f" and {len(narrowed.left) - 1} others" if len(narrowed.left) > 1 else ""
        said.append(f"other users have rights to {narrowed.left[0]}{others}: run chmod go= on it")
    return f"{folder}: {'; '.join(said)}" if said else None


def keep_folder_private(folder: Path) -> None:
    """Narrow the data folder of this process, and log it in one line."""
    said = describe_narrowed(folder, narrow(folder))
    if said is not None:
        log.warning("%s", said)
