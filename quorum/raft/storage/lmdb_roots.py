"""Checks that LMDB itself does not make when it opens a file, made before it does (P10).

LMDB keeps two root pages and takes the one with the higher transaction number. They have no
checksum: where the newer one's number is damaged, LMDB goes on from the older root and has silently
forgotten a commit, perhaps a vote. But LMDB writes them in turn, each transaction the next number,
so the two always differ by exactly one. (This also shows an fsync that failed once, and was
followed by one that succeeded: the root between the two never reached the disk.)

Damage further down cannot be seen in the roots; some of it ends the process that reads it, as LMDB
reads by memory map. ``require_readable`` lets a child process read first.
"""

import errno
import faulthandler
import os
import resource
import signal
import struct
from pathlib import Path
from typing import Final

import lmdb

from quorate.common.files.data_folder import REPLACE
from quorate.common.files.lmdb_lock_file import allocate_lock_file
from quorate.quorum.raft.storage.journal import JournalCorrupt, JournalError

MAP_BYTES: Final = 64 << 30
"""The size of virtual address space, not of disk: the file grows as needed."""

_ROOT_START: Final = 16
"""The offset of the root after the page's header."""
_ROOT = struct.Struct("<II8x8xI44x48x8xQ")
"""Magic, version, address, map size, two databases (the first begins with the page size), last
page, transaction."""
_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1


def check_roots(path: Path) -> None:
    """Check that the file begins with two roots that LMDB wrote one after the other.

    Raises:
        JournalCorrupt: it does not.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        first, page_size = _read_root(path, file.read(_ROOT_START + _ROOT.size))
        file.seek(page_size)
        second, _ = _read_root(path, file.read(_ROOT_START + _ROOT.size))
    if abs(first - second) != 1:
        raise JournalCorrupt(
            f"journal {path} is damaged: its two roots are of writes {first} and {second}, not of "
            f"one and the next, so what it would be read as may be too old. {REPLACE}"
        )


def _read_root(path: Path, page: bytes) -> tuple[int, int]:
    """Return the transaction number and the page size."""
    if len(page) < _ROOT_START + _ROOT.size:
        raise JournalCorrupt(f"journal {path} is truncated: its roots are not there. {REPLACE}")
    magic, version, page_size, transaction = _ROOT.unpack_from(page, _ROOT_START)
    if (magic, version) != (_MAGIC, _VERSION):
        raise JournalCorrupt(
            f"journal {path} is damaged: it does not begin as LMDB files do. {REPLACE}"
        )
    return transaction, page_size


def require_readable(path: Path) -> None:
    """Read all of the file in a child process, and try a write there that is not committed.

    Call it only while this process has one thread. Errors that the child gets as exceptions are
    left to the process that opens the file next.

    Raises:
        JournalCorrupt: that ended the child, or the roots are wrong.
        JournalError: it cannot be read.
    """
    try:
        check_roots(path)  # LMDB would start anew in an empty file.
        allocate_lock_file(path)  # A full disk would end the child as damage does.
    except OSError as error:
        raise JournalError(why_not_opened(path, error)) from error
    child = os.fork()
    if child == 0:
        _touch_everything(path)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise JournalCorrupt(
            f"journal {path} is damaged or truncated: reading it ends the process with "
            f"{signal.Signals(os.WTERMSIG(status)).name}. {REPLACE}"
        )


def why_not_opened(path: Path, error: Exception) -> str:
    """Return what to do about the error."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            f"cannot open journal {path}: {error}. Free space on its disk, then start this voter "
            "again: what it acknowledged is in the journal"
        )
    return (
        f"cannot open journal {path}: {error}. Let this user read and write it, or, if it is "
        f"damaged: {REPLACE}"
    )


def _touch_everything(path: Path) -> None:
    """Read everything, in the child; this function does not return."""
    try:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        env = lmdb.open(str(path), subdir=False, max_dbs=2, map_size=MAP_BYTES, create=False)
        with env.begin(buffers=True) as txn:
            for name in (b"entries", b"meta"):
                for _, value in txn.cursor(env.open_db(name, txn=txn, create=False)):
                    bytes(value[-1:])
        with env.begin(write=True) as txn:
            txn.put(b"entries of no log", bytes(1 << 16))
            txn.abort()
    except Exception:  # noqa: BLE001
        pass
    finally:
        os._exit(0)
