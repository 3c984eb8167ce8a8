"""The bodies of requests: bounded in size and time, and read only for clients that are known."""

import asyncio
from typing import Final

from aiohttp import web

from quorate.broker.http.http_routes import HttpRefusal

BODY_BYTES_MAX: Final = 1 << 20
"""The largest body, also after it was unpacked (Content-Encoding)."""
BODY_TIMEOUT_S: Final = 20.0
BODIES_AT_ONCE: Final = 64
"""The bodies of one listener that are received at the same time; others wait for their turn."""


class BodyReader:
    """Reads the bodies of the requests of one listener."""

    def __init__(self, *, at_once: int = BODIES_AT_ONCE, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._timeout_s = timeout_s

    async def read(self, request: web.Request) -> bytes:
        """Return the body of a request; it is empty for a request without one.

        Raises:
            HttpRefusal: it is too large, or took too long.
        """
        if not request.can_read_body:
            return b""
        try:
            async with asyncio.timeout(self._timeout_s), self._turns:
                return await request.read()
        except TimeoutError:
            raise HttpRefusal(
                408, 408, f"the body did not come within {self._timeout_s:g} s"
            ) from None
        except web.HTTPRequestEntityTooLarge:
            raise HttpRefusal(413, 413, f"the body is larger than {BODY_BYTES_MAX} bytes") from None
