"""The free space on a store's disk: how a full disk is detected, what is kept in reserve, and what
is refused.

A full disk is no failure. Nothing half-written stays (LMDB aborts the transaction), reads continue,
and the same operation succeeds once there is space. A *reserve* file keeps blocks of the disk for
the operations that free space, which have to write a little first. The blocks are released when the
disk is full. The disk counts as no longer full when they can be allocated again.
"""

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

import lmdb

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.segments.system_errors import system_code
from quorate.common.files.private_files import FILE_MODE
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

OnRoom = Callable[[bool], None]
"""Called with False when the disk is full, and with True when there is space again."""

RESERVE_FILE: Final = "reserve"

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The error codes for a full device, an exceeded quota, and a limit on the size of files."""

_ASKED_BYTES: Final = 1 << 20
"""The number of bytes that are allocated as a test, to tell a full disk from a broken one."""


class DiskReserve:
    """Blocks of the disk that nobody else can take. It may be used from several threads."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self.directory = directory
        self.size_bytes = size_bytes
        self.is_held = False
        self._path = directory / RESERVE_FILE
        self._lock = threading.Lock()

    def free_bytes(self) -> int:
        """Return the bytes that the file system has left for this process."""
        return DiskUsage.of(self.directory).free_bytes

    def make_way(self) -> None:
        """Release the reserve if little space is left. This is called before a store opens, which
        writes a little."""
        if self.directory.exists() and self.free_bytes() < self.size_bytes:
            self.release()

    def release(self) -> None:
        """Give the blocks back to the disk."""
        with self._lock:
            self.is_held = False
            self._path.unlink(missing_ok=True)

    def hold(self) -> bool:
        """Keep the blocks of an earlier run, or allocate them. Return False if there is no space.

        Raises:
            OSError: The disk fails in another way.
        """
        if not self._path.exists():
            return self.regain()
        with self._lock:
            self.is_held = self._allocate(self.size_bytes)
            return self.is_held

    @property
    def regained_bytes(self) -> int:
        """Return how much space must be free for the reserve to be allocated again."""
        return 2 * self.size_bytes

    def regain(self) -> bool:
        """Allocate the blocks again. Return False if there is no space.

        As much must be free beside them. On a disk that is as full as before, the reserve's own
        blocks are the only free ones, and the operations that found no space would find none now.

        Raises:
            OSError: The disk fails in another way.
        """
        with self._lock:
            self.is_held = self._allocate(self.regained_bytes)
            if self.is_held:
                os.truncate(self._path, self.size_bytes)
            return self.is_held

    def explains(self, error: BaseException) -> bool:
        """Return whether a write failed only because the disk is full.

        LMDB reports a write that was cut short as EIO, as a broken disk does. Some more space is
        then allocated as a test, which a full disk refuses with the proper error.
        """
        code = system_code(error)
        if code == errno.EIO:
            with self._lock:
                return self._refuses_more()
        return code in _NO_ROOM or isinstance(error, lmdb.MapFullError)

    def _refuses_more(self) -> bool:
        held_bytes = self.size_bytes if self.is_held else 0
        try:
            has_more = self._allocate(held_bytes + _ASKED_BYTES)
        except OSError:
            return False
        if has_more:
            with contextlib.suppress(OSError):
                os.truncate(self._path, held_bytes)
        return not has_more

    def _allocate(self, size_bytes: int) -> bool:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            return False
        finally:
            os.close(descriptor)
        return True


class DiskUsage(NamedTuple):
    """The size of the file system of a log directory, and what this process may still use of it."""

    total_bytes: int
    free_bytes: int

    @classmethod
    def of(cls, directory: Path) -> "DiskUsage":
        """Return the usage now.

        Raises:
            OSError: the disk does not tell.
        """
        found = os.statvfs(directory)
        return cls(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def disk_usages(directories: Iterable[Path]) -> list[DiskUsage]:
    """Return the usage of each file system that holds some of the folders. A disk that has failed
    may not tell, and is left out."""
    found: dict[int, DiskUsage] = {}
    for directory in directories:
        with contextlib.suppress(OSError):
            found[os.stat(directory).st_dev] = DiskUsage.of(directory)
    return list(found.values())


class DiskSpace:
    """Knows whether the disk of one store is full. It is used on the event loop only."""

    def __init__(self, directory: Path, reserve: DiskReserve, on_room: OnRoom) -> None:
        self.is_full = not reserve.is_held
        self._directory = directory
        self._reserve = reserve
        self._on_room = on_room

    def note_full(self, error: Exception) -> None:
        """Refuse new batches from now on. Deletions continue, with the blocks of the reserve."""
        self.is_full = True
        log.error("%s (%s)", self.message(), error)
        self._on_room(False)

    def note_room(self) -> None:
        """Accept batches again."""
        self.is_full = False
        log.warning("log directory %s has room again and takes batches", self._directory)
        self._on_room(True)

    def refusal(self) -> KafkaError:
        """Return the error for writes while the disk is full."""
        return KafkaError(errors_pb2.KAFKA_STORAGE_ERROR, self.message())

    def message(self) -> str:
        """Return a text that says what is wrong, and what to do."""
        try:
            free = f"{self._reserve.free_bytes()} bytes free"
        except OSError as error:
            free = f"free space unknown: {error}"
        return (
            f"log directory {self._directory} is full ({free}, "
            f"{self._reserve.regained_bytes} needed): batches are refused and reads go on until "
            "there is room; free space, or delete records or topics"
        )
