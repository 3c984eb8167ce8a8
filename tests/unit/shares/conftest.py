"""Session timeouts and retention pass in virtual time."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.support.virtual_time import VirtualTimeLoop
from tests.unit.coordinator.memory_log import Place


@pytest.fixture
def place() -> Place:
    return Place()


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual-time": VirtualTimeLoop}
