"""Recovery of memory from connections that stall, and from the C library."""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from quorate.broker.kafka.connection.connection import KafkaConnection
from quorate.broker.metrics.client_metrics import MEMORY, ClientFigures
from quorate.broker.quota.client_memory import ClientMemory, ResponseMemory

STALLED_CHECK_INTERVAL_S: Final = 1.0
PATIENCE_S: Final = 10.0
"""The time for which a connection may be quiet while others wait for the memory that it holds."""

TRIM_CHECK_INTERVAL_S: Final = 10.0
WORTH_BYTES: Final = 64 << 20
"""The size of a burst of responses from which on a trim is worth its cost."""


class StalledConnectionCloser:
    """Closes quiet connections that hold memory while others wait for it.

    A client that never reads its responses, or stops within a large request, would otherwise make
    others wait until ``connections.max.idle.ms`` have passed.
    """

    def __init__(
        self,
        memory: ClientMemory,
        connections: Collection[KafkaConnection],
        figures: ClientFigures,
    ) -> None:
        self._memory = memory
        self._connections = connections
        self._figures = figures
        self._timer: asyncio.TimerHandle | None = None
        memory.notify_waiting(self._start_timer)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(STALLED_CHECK_INTERVAL_S, self._check)

    def _check(self) -> None:
        self._timer = None
        if not self._memory.is_waited_for:
            return
        self._start_timer()
        now_s = asyncio.get_running_loop().time()
        requests = self._memory.requests.is_waited_for
        responses = self._memory.responses.is_waited_for
        for one in tuple(self._connections):
            held_bytes = requests * one.request_bytes + responses * one.response_bytes
            if held_bytes and one.quiet_s(now_s) >= PATIENCE_S:
                self._close(one)

    def _close(self, connection: KafkaConnection) -> None:
        self._figures.closed_for(MEMORY)
        connection.close(
            f"it holds {connection.request_bytes} bytes of requests and "
            f"{connection.response_bytes} of answers while others wait for memory, and nothing has "
            f"moved on it for {PATIENCE_S:g} s: it stopped within a request, or does not read its "
            "answers",
            logging.WARNING,
        )


class MemoryTrimmer:
    """Calls ``trim`` on a thread after a burst of large responses.

    It does so after an interval in which responses held much less memory than before. The C library
    keeps freed memory, because large frames and responses come again and again. It never returns by
    itself the memory that lies between live objects.
    """

    def __init__(self, memory: ResponseMemory, trim: Callable[[], object]) -> None:
        self._memory = memory
        self._trim = trim
        self._highest_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the periodic checks."""
        if self._timer is None:
            self._check_later()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TRIM_CHECK_INTERVAL_S, self._check)

    def _check(self) -> None:
        self._check_later()
        lately_bytes = self._memory.take_highest()
        if self._highest_bytes >= WORTH_BYTES and lately_bytes < self._highest_bytes // 4:
            asyncio.get_running_loop().run_in_executor(None, self._trim)
            self._highest_bytes = lately_bytes
        self._highest_bytes = max(self._highest_bytes, lately_bytes)
