"""``GET /metrics``: where Prometheus scrapes a process.

Plain HTTP without a password, so it listens where the operator says, and nowhere by itself. The
figures are gathered on the event loop, whose they are, and written out in a thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from metadata_log.configuration import ConfigKey, parse_endpoint
from metadata_log.types import Endpoint
from quorum.metrics.exposition import CONTENT_TYPE, exposition
from quorum.metrics.family import Sample

METRICS_LISTENER: Final = ConfigKey(
    name="metrics.listener",
    type=str,
    default="",
    doc="host:port where Prometheus finds this process's figures at /metrics; empty: nowhere. "
    "Whoever reaches it may read them.",
)

REQUEST_BYTES_MAX: Final = 8 << 10
REQUEST_TIMEOUT_S: Final = 5.0
_HINT: Final = b"figures are at /metrics\n"

log = logging.getLogger(__name__)


class MetricsEndpoint:
    """An HTTP server with one page."""

    def __init__(self, gather: Callable[[], Awaitable[Sequence[Sample]]]) -> None:
        """``gather``: called for every scrape."""
        self._gather = gather
        self._server: asyncio.Server | None = None

    async def start(self, listener: Endpoint) -> Endpoint:
        """Listen; returns where, with the port that was given for port 0.

        Raises:
            OSError: the address cannot be used.
        """
        self._server = await asyncio.start_server(
            self._serve, listener.host, listener.port, limit=REQUEST_BYTES_MAX
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        log.info("%s on %s:%d", METRICS_LISTENER.name, host, port)
        return Endpoint(host, port)

    async def stop(self) -> None:
        """Close; a scrape under way is cut off."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(request.partition(b"\r\n")[0]))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            log.debug("a scrape was not finished", exc_info=True)
        finally:
            writer.close()

    async def _answer(self, request_line: bytes) -> bytes:
        method, _, rest = request_line.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", _HINT)
        if path != b"/metrics":
            return _response("404 Not Found", _HINT)
        body = await asyncio.to_thread(exposition, await self._gather())
        return _response("200 OK", body, CONTENT_TYPE, head_only=method == b"HEAD")


def _response(
    status: str, body: bytes, content_type: str = "text/plain", *, head_only: bool = False
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + (b"" if head_only else body)


def metrics_listener(value: str) -> Endpoint | None:
    """Where to listen; None: nowhere.

    Raises:
        ConfigError: not host:port.
    """
    return parse_endpoint(METRICS_LISTENER.name, value) if value else None
