"""A real listener for unmodified clients, with a broker in memory behind it."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from quorate.common.types import Endpoint
from tests.support.kafka_fakes import FakeBrokerInside, fake_broker


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[str]:
    """Bootstrap address of a real listener on uvloop, in a thread, with a broker in memory."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="kafka-listener")
    thread.start()

    async def start() -> tuple[FakeBrokerInside, Endpoint]:
        inside = fake_broker(tmp_path)
        return inside, await inside.start()

    inside, at = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    yield str(at)
    asyncio.run_coroutine_threadsafe(inside.server.stop(grace_ms=2000), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()
