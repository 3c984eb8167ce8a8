"""The lock file that LMDB keeps beside an environment, for journals and for the log alike."""

import os
from pathlib import Path
from typing import Final

from quorate.common.files.private_files import FILE_MODE

_LOCK_FILE_BYTES: Final = 8192
"""The size that LMDB gives the file for its default number of readers. It accepts a larger one."""


def lock_file(path: Path) -> Path:
    """Return the lock file of the environment in the file ``path``."""
    return path.with_name(path.name + "-lock")


def allocate_lock_file(path: Path) -> None:
    """Allocate the blocks of the lock file that LMDB maps beside the environment ``path``.

    LMDB leaves the file sparse and writes it through its map: on a full disk that is a SIGBUS,
    which ends the process. Call this before every open.

    Raises:
        OSError: there is no room.
    """
    descriptor = os.open(lock_file(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        os.posix_fallocate(descriptor, 0, _LOCK_FILE_BYTES)
    finally:
        os.close(descriptor)
