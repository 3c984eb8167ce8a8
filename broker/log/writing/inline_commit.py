"""Commits without an fsync (``log.flush=os``): copies into the page cache, on the event loop, which
is cheaper than to pass them to a thread."""

import asyncio
from collections.abc import Callable
from typing import Any

from quorate.broker.log.writing.disk_space import DiskReserve
from quorate.broker.log.writing.group_commit import CommitCallbacks, GroupCommit
from quorate.broker.log.writing.journal import Journal
from quorate.broker.log.writing.write_operations import WriteOperation


class InlineCommit(GroupCommit):
    """Commits on the event loop, after the callbacks that appended."""

    def __init__(
        self, journal: Journal, group_bytes: int, reserve: DiskReserve, callbacks: CommitCallbacks
    ) -> None:
        super().__init__(journal, group_bytes, reserve, callbacks)
        self._scheduled = False
        self._failed = False
        self._retry: asyncio.TimerHandle | None = None
        if self._is_stalled:
            self._retry_later()

    def submit(self, work: WriteOperation) -> None:
        self._queue.append(work)
        self._schedule()

    async def close(self) -> None:
        if self._is_stalled:
            self._schedule()
        while self._scheduled:
            await asyncio.sleep(0)
        if self._retry is not None:
            self._retry.cancel()

    def _tell(self, callback: Callable[..., None], *about: Any) -> None:  # noqa: ANN401 - any
        callback(*about)

    def _schedule(self) -> None:
        if not self._scheduled and not self._failed:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _retry_later(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._loop.call_later(self._retry_s, self._schedule)

    def _run(self) -> None:
        """Commit one group per iteration of the event loop, which takes about a millisecond at
        most."""
        self._scheduled = False
        try:
            if self._is_stalled:
                self._failed = not self._look_for_room()
            elif self._queue:
                self._failed = not self._attempt()
        finally:
            if self._is_stalled and not self._failed:
                self._retry_later()
            elif self._queue:
                self._schedule()
