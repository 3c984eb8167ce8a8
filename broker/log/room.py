"""Room on the disk: how its lack shows, what is kept in reserve, and which work makes some.

A full disk is no failure: nothing half-written stays (LMDB aborts the transaction), reads go on,
and the same work succeeds once there is room. A *reserve* file keeps blocks of the disk for what
makes room, which has to write a little first: its blocks are given back when the disk is full,
and there is room again when they can be had once more.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import lmdb

from broker.log.system_errors import system_code
from broker.log.work import Creation, Deletion, Truncation, Work

RESERVE_FILE: Final = "reserve"

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""A full device, a full quota, and a limit on the size of files."""

_ASKED_BYTES: Final = 1 << 20
"""How much more the disk is asked for, to tell a full one from a broken one."""


class Reserve:
    """Blocks of the disk that nobody else can take. Safe to use from several threads."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self.directory = directory
        self.size_bytes = size_bytes
        self.is_held = False
        self._path = directory / RESERVE_FILE
        self._lock = threading.Lock()

    def free_bytes(self) -> int:
        """Bytes that the file system has left for this process."""
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    def make_way(self) -> None:
        """Before a store opens, which writes a little: give the reserve up where little is left."""
        if self.directory.exists() and self.free_bytes() < self.size_bytes:
            self.release()

    def release(self) -> None:
        """Give the blocks back."""
        with self._lock:
            self.is_held = False
            self._path.unlink(missing_ok=True)

    def hold(self) -> bool:
        """Keep the blocks of an earlier run, or have them anew; False: there is no room.

        Raises:
            OSError: the disk fails in another way.
        """
        if not self._path.exists():
            return self.regain()
        with self._lock:
            self.is_held = self._allocate(self.size_bytes)
            return self.is_held

    @property
    def regained_bytes(self) -> int:
        """How much has to be free for the reserve to be regained."""
        return 2 * self.size_bytes

    def regain(self) -> bool:
        """Have the blocks; False: there is no room.

        Only where as much is free beside them: their own blocks are all that a disk has free that
        is as full as before, and what found no room then would find none now.

        Raises:
            OSError: the disk fails in another way.
        """
        with self._lock:
            self.is_held = self._allocate(self.regained_bytes)
            if self.is_held:
                os.truncate(self._path, self.size_bytes)
            return self.is_held

    def explains(self, error: BaseException) -> bool:
        """Whether a failed write failed for want of room alone.

        LMDB reports a write that was cut short as EIO, as a broken disk does: then the disk is
        asked for some more, which a full one refuses with its proper name.
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
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            return False
        finally:
            os.close(descriptor)
        return True


def makes_room(work: Work) -> bool:
    """Whether ``work`` may go ahead of what waits for room, so that segments can be unlinked.

    Deletions: nothing that waits is for them but batches that are dropped already. A later start
    of a log: it lies in what is durable, before everything that waits.
    """
    return isinstance(work, Deletion) or (isinstance(work, Truncation) and work.moves_start_alone)


def room_first(works: Iterable[Work]) -> tuple[list[Work], list[Work]]:
    """``works`` as (what makes room, what has to wait), each in its order.

    A partition that is deleted before it was entered into the table is never entered.
    """
    first: list[Work] = []
    waiting: list[Work] = []
    for work in works:
        (first if makes_room(work) else waiting).append(work)
    gone = {number for work in first if isinstance(work, Deletion) for number in work.numbers}
    still = [
        work for work in waiting if not (isinstance(work, Creation) and work.row.number in gone)
    ]
    return first, still
