"""Live updates: the sections of an open page that have changed, as server-sent events.

A stream makes the page again every few seconds, for as long as somebody looks at it, and sends what
differs from what the browser has.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from quorate.broker.console.browser_checks import SECURITY_HEADERS
from quorate.broker.console.pages.page import Page

log = logging.getLogger(__name__)

STREAMS_MAX: Final = 100
STREAMS_OF_ONE_MAX: Final = 20
STREAM_S_MAX: Final = 1_800.0
"""The time after which a stream ends. A browser that still shows the page opens another."""

MakeAgain = Callable[[], Awaitable[Page]]


class LiveUpdates:
    """The streams of one console."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End all streams."""
        self._stopping.set()

    @contextmanager
    def counted(self, person: str) -> Iterator[bool]:
        """Count a stream of a person. The value is False if there are too many."""
        self._of[person] += 1
        try:
            yield self._of[person] <= STREAMS_OF_ONE_MAX and self._of.total() <= STREAMS_MAX
        finally:
            self._of[person] -= 1
            if not self._of[person]:
                del self._of[person]

    async def send(self, request: web.Request, make: MakeAgain) -> web.StreamResponse:
        """Send the sections of the page that ``make`` makes, whenever they have changed."""
        response = web.StreamResponse(
            headers={
                **SECURITY_HEADERS,
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
            }
        )
        await response.prepare(request)
        sent: dict[str, str] = {}
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + STREAM_S_MAX
        try:
            while loop.time() < ends_s and not self._stopping.is_set():
                page = await make()
                await response.write(changed_sections(page, sent))
                if not page.live_every_s or await self._stops_within(page.live_every_s):
                    break
        except ConnectionError:
            log.debug("a browser left a live page")
        return response

    async def _stops_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True


def changed_sections(page: Page, sent: dict[str, str]) -> bytes:
    """Return the events for the live sections that differ from what was ``sent``, and note them.

    Without any, it is a comment, which shows that the broker is there.
    """
    events = []
    for section in page.sections:
        if section.live and sent.get(section.name) != section.html:
            sent[section.name] = section.html
            data = json.dumps({"name": section.name, "html": section.html})
            events.append(f"event: section\ndata: {data}\n\n")
    return "".join(events).encode() or b": same\n\n"
