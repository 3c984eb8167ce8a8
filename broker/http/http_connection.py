"""One HTTP connection: it is counted, refused beyond the limits, and cut if it does not read.

aiohttp's own handler of the connection is behind it, and bounds the heads of requests and the time
until they are there.
"""

import asyncio
from collections import Counter
from typing import Final, cast

from quorate.broker.kafka.connection.connection_limits import ConnectionCounts
from quorate.common.grpc_support.refusal_log import RefusalLog

READ_NOTHING_S: Final = 30.0
"""A client that reads nothing of an answer for this long is cut off: the answer is held for it."""


class ConnectionRegister:
    """The open connections of one listener."""

    def __init__(self, counts: ConnectionCounts, refusals: RefusalLog) -> None:
        self._counts = counts
        self._refusals = refusals
        self._by_host: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._by_host.total()

    def admit(self, host: str) -> bool:
        """Count a connection. Return whether it is within the limits; ``remove`` it later."""
        self._by_host[host] += 1
        limit = self._counts.exceeded(len(self), host, self._by_host[host])
        if limit is not None:
            self._refusals.refused(host, f"{limit} connections are open already")
        return limit is None

    def remove(self, host: str) -> None:
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


class HttpConnection(asyncio.Protocol):
    """Passes everything on to ``inner``, unless the connection is refused."""

    def __init__(self, register: ConnectionRegister, inner: asyncio.Protocol) -> None:
        self._register = register
        self._inner = inner
        self._transport: asyncio.Transport
        self._host = ""
        self._is_admitted = False
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self._host = str(address[0]) if address else ""
        self._is_admitted = self._register.admit(self._host)
        if self._is_admitted:
            self._inner.connection_made(transport)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_admitted:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._is_admitted else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()
        loop = asyncio.get_running_loop()
        self._stalled = loop.call_later(READ_NOTHING_S, self._transport.abort)

    def resume_writing(self) -> None:
        self._cancel()
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        self._register.remove(self._host)
        if self._is_admitted:
            self._inner.connection_lost(exc)

    def _cancel(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
