"""The lock file that LMDB keeps beside an environment, for journals and for the log alike."""

import os
from pathlib import Path
from typing import Final

_LOCK_FILE_BYTES: Final = 8192
"""What LMDB makes of it, with its own number of readers; a larger one is taken as it is."""


def lock_file(path: Path) -> Path:
    """Of the environment in the file ``path``."""
    return path.with_name(path.name + "-lock")


def allocate_lock_file(path: Path) -> None:
    """Have the blocks of the lock file that LMDB maps beside the environment ``path``.

    LMDB leaves it sparse and writes it through its map: on a full disk that is a SIGBUS, which
    ends the process. Called before every open.

    Raises:
        OSError: there is no room.
    """
    descriptor = os.open(lock_file(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, _LOCK_FILE_BYTES)
    finally:
        os.close(descriptor)
