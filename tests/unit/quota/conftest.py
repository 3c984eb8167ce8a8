"""These tests run on virtual time: pauses and time limits cost nothing."""

import asyncio
from collections.abc import Callable, Mapping

from tests.support.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual-time": VirtualTimeLoop}
