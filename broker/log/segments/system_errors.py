"""Determines the error of the operating system behind an error of LMDB, and whether it is about
access."""

import errno
import os
from pathlib import Path
from typing import Final

import lmdb

_NO_ACCESS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def system_code(error: BaseException) -> int | None:
    """Return the system's error code behind ``error`` or its cause, or LMDB's own error code."""
    if isinstance(error, OSError):
        return error.errno
    if isinstance(error, lmdb.Error):
        return getattr(error, "code", None)
    return None if error.__cause__ is None else system_code(error.__cause__)


def refuse_system_error(path: Path, error: lmdb.Error) -> None:
    """Raise an OSError if a file may not be written, or if its disk fails. Such a file is not
    damaged: nothing must be restored or set aside.

    Raises:
        OSError: The file may not be written, or its disk fails.
    """
    code = system_code(error)
    if code in _NO_ACCESS:
        raise OSError(code, f"{os.strerror(code)}: make it writable for this broker", str(path))
    if code == errno.EIO:
        advice = "cannot write log directory: its disk fails; repair it, then start this broker"
        raise OSError(code, f"{os.strerror(code)}: {advice}", str(path))


def check_writable(directory: Path, probe: str) -> None:
    """Check that files can be created in ``directory``, by creating ``probe`` and removing it.

    Raises:
        OSError: Files cannot be created, for another reason than a full disk.
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
