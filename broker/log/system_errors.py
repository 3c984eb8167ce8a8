"""What the operating system says behind an error of LMDB's, and whether it is about access."""

import errno
import os
from pathlib import Path
from typing import Final

import lmdb

_NO_ACCESS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def system_code(error: BaseException) -> int | None:
    """The system's code behind ``error``, or behind what it was raised from; or one of LMDB's."""
    if isinstance(error, OSError):
        return error.errno
    if isinstance(error, lmdb.Error):
        return getattr(error, "code", None)
    return None if error.__cause__ is None else system_code(error.__cause__)


def refuse_without_access(path: Path, error: lmdb.Error) -> None:
    """A file that may not be written is not damaged: nothing is to be restored or set aside.

    Raises:
        OSError: it may not be written.
    """
    code = system_code(error)
    if code in _NO_ACCESS:
        raise OSError(code, f"{os.strerror(code)}: make it writable for this broker", str(path))


def check_writable(directory: Path, probe: str) -> None:
    """See that files can be created in ``directory``, by creating ``probe`` and removing it.

    Raises:
        OSError: they cannot be, for another reason than that the disk is full.
    """
    path = directory / probe
    try:
        path.touch()
        path.unlink()
    except OSError as error:
        if error.errno in _NO_ACCESS:
            advice = f"{error.strerror}: make the log directory writable for this broker"
            raise OSError(error.errno, advice, str(directory)) from error
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
