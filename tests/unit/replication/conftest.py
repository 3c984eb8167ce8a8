"""A broker's replica manager over logs in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.support.broker_replicas import BrokerReplicas


@pytest.fixture
async def broker() -> AsyncIterator[BrokerReplicas]:
    broker = await BrokerReplicas().start()
    yield broker
    await broker.close()
