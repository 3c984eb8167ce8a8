"""The event loops of the tests: what waits for seconds does so in virtual time."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.support.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.path.name == "test_signing_keys.py":
        return {"virtual-time": VirtualTimeLoop}
    return {"asyncio": asyncio.new_event_loop}
