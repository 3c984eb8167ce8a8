"""These tests run on virtual time: pauses and time limits cost nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from tests.support.virtual_time import VirtualTimeLoop
from tests.unit.controller.cluster import Cluster


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual-time": VirtualTimeLoop}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three brokers; broker 1 is the controller."""
    cluster = Cluster()
    await cluster.start_brokers(1, 2, 3)
    yield cluster
    await cluster.stop()
