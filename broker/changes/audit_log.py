"""The audit log: a file of JSON lines, one per change of one resource (F5).

It is written in a thread of its own; entries that come while a write is under way go out with the
next. ``audit_files`` says when a file is set aside for a new one.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from quorate.broker.changes.audit_files import NO_LIMITS, AuditFiles, AuditLimits

log = logging.getLogger(__name__)

AuditEntry: TypeAlias = dict[str, Any]
"""One line of the audit log, as a JSON object."""

KeepAuditEntries: TypeAlias = Callable[[Sequence[AuditEntry]], Awaitable[None]]
"""Writes entries to the audit log, and returns once they are written. It never raises."""


async def keep_no_entries(_entries: Sequence[AuditEntry]) -> None:
    """Write nothing. A broker without ``audit.log`` uses this."""


class AuditLog:
    """Appends entries to a file.

    If the file cannot be written, the cluster continues. The failure is logged, with the entries
    that would have been written.
    """

    def __init__(
        self,
        path: Path,
        limits: AuditLimits = NO_LIMITS,
        *,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        """``clock_s`` is the wall clock, in seconds since the epoch."""
        self._path = path
        self._files = AuditFiles(path, limits, clock_s)
        self._clock_s = clock_s
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-log")

    async def keep(self, entries: Sequence[AuditEntry]) -> None:
        """Write entries. Return once they are in the file, or are known not to be."""
        now = datetime.fromtimestamp(self._clock_s(), UTC).isoformat(timespec="milliseconds")
        text = "".join(f"{json.dumps({'timestamp': now, **entry})}\n" for entry in entries)
        lines = text.replace("\x7f", "\\u007f").encode()  # The one that JSON does not escape.
        kept = asyncio.get_running_loop().create_future()
        self._waiting.append((lines, kept))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="audit-log")
        await kept

    async def close(self) -> None:
        """Write the entries that are waiting, then stop."""
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                lines = b"".join(part for part, _ in batch)
                try:
                    await loop.run_in_executor(self._thread, self._files.append, lines)
                except OSError as error:
                    log.error(
                        "the audit log %s cannot be written: %s; not in it: %s",
                        self._path,
                        error,
                        lines.decode(),
                    )
                for _, kept in batch:
                    if not kept.done():
                        kept.set_result(None)
        finally:
            self._writing = None
