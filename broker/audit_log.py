"""The audit trail as a file of JSON lines, one per change of one resource (F5).

Opened for each write, so that it may be renamed away at any time and begins anew. Written in a
thread of its own; what comes while one write is under way goes out with the next.
"""

import asyncio
import json
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from broker.controller.door import AuditEntry

log = logging.getLogger(__name__)

_MODE: Final = 0o640


class AuditLog:
    """Appends to ``path``. Keeps the cluster going where it cannot: that is logged,
    with what would have been in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-log")

    async def keep(self, entries: Sequence[AuditEntry]) -> None:
        """Returns once they are in the file, or are known not to be."""
        lines = "".join(f"{json.dumps(entry)}\n" for entry in entries).encode()
        kept = asyncio.get_running_loop().create_future()
        self._waiting.append((lines, kept))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="audit-log")
        await kept

    async def close(self) -> None:
        """What was handed over is written first."""
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
                    await loop.run_in_executor(self._thread, self._append, lines)
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

    def _append(self, lines: bytes) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _MODE)
        try:
            left = memoryview(lines)
            while left:
                left = left[os.write(file, left) :]
        finally:
            os.close(file)
