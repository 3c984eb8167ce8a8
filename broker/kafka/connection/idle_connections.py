"""Closing of connections that have been idle for ``connections.max.idle.ms``, with one timer for
all.

The connections are kept in a timer wheel. Each is in the slot at which it is checked next. The
check finds how long the connection has been quiet by then, and so when to check it again. Traffic
on a connection costs the wheel nothing. A quiet connection is closed late by up to the time of one
slot.
"""

import asyncio
import logging
import math
from typing import Final

from quorate.broker.config.listeners import CONNECTIONS_MAX_IDLE_MS
from quorate.broker.kafka.connection.connection import KafkaConnection
from quorate.broker.metrics.client_metrics import IDLE, ClientFigures

_SLOTS: Final = 64
"""The number of slots. Half of them cover the idle time."""


class IdleExpiryManager:
    """Closes connections that were quiet for ``idle_ms``. With a negative time it closes none."""

    def __init__(self, idle_ms: int, figures: ClientFigures) -> None:
        self._idle_ms = idle_ms
        self._idle_s = idle_ms / 1_000
        self._figures = figures
        self._slot_s = max(self._idle_s / (_SLOTS // 2), 0.001)
        self._slots: list[dict[KafkaConnection, None]] = [{} for _ in range(_SLOTS)]
        self._slot_of: dict[KafkaConnection, int] = {}
        self._now = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the periodic checks."""
        if self._idle_s >= 0 and self._timer is None:
            self._check_later()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, connection: KafkaConnection) -> None:
        """Watch a connection on which something has just moved."""
        self._put(connection, self._idle_s)

    def discard(self, connection: KafkaConnection) -> None:
        slot = self._slot_of.pop(connection, None)
        if slot is not None:
            self._slots[slot].pop(connection, None)

    def _put(self, connection: KafkaConnection, left_s: float) -> None:
        ahead = min(max(1, math.ceil(left_s / self._slot_s)), _SLOTS - 1)
        slot = (self._now + ahead) % _SLOTS
        self._slot_of[connection] = slot
        self._slots[slot][connection] = None

    def _check_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._slot_s, self._check)

    def _check(self) -> None:
        self._check_later()
        self._now = (self._now + 1) % _SLOTS
        due, self._slots[self._now] = self._slots[self._now], {}
        now_s = asyncio.get_running_loop().time()
        for connection in due:
            left_s = self._idle_s - connection.quiet_s(now_s)
            self._put(connection, left_s)
            if left_s <= 0:
                self._close(connection)

    def _close(self, connection: KafkaConnection) -> None:
        self._figures.closed_for(IDLE)
        reason = f"nothing has moved on it for {CONNECTIONS_MAX_IDLE_MS.name}={self._idle_ms}"
        connection.close(reason, logging.INFO)
