"""Parts of a broker in memory, called without a socket, and the event loops for listener tests."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher, frame_response
from quorate.broker.kafka.connection.requests import ClientSession
from quorate.common.types import Endpoint
from tests.support.kafka_fakes import BROKER, FakeBroker, FakeBrokerInside, fake_broker
from tests.support.kafka_wire import Values, read_answer, request_frame
from tests.support.virtual_time import VirtualTimeLoop

VIRTUAL_TIME = (
    "test_muting.py",
    "test_login_time.py",
    "test_quiet_connections.py",
    "test_memory_trimmer.py",
)

Ask = Callable[[int, int, Values], Coroutine[Any, Any, Any]]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Sockets are tried on uvloop, which a broker runs on, and on asyncio's own loop; who is
    muted or late waits in virtual time."""
    if item.path.name in VIRTUAL_TIME:
        return {"virtual-time": VirtualTimeLoop}
    if "new_certificates" in item.name:
        # asyncio's own loop may lose a connection that is accepted while its server is closed.
        return {"uvloop": uvloop.new_event_loop}
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name in ("test_server.py", "test_sasl.py", "test_tls.py"):
        loops["uvloop"] = uvloop.new_event_loop
    return loops


@pytest.fixture
def inside(tmp_path: Path) -> FakeBrokerInside:
    """One broker at 127.0.0.1:9092 with gRPC on 9192, alone and controller."""
    broker = fake_broker(tmp_path)
    broker.metadata.brokers[BROKER] = FakeBroker(
        Endpoint("127.0.0.1", 9092), Endpoint("127.0.0.1", 9192), "r1"
    )
    broker.metadata.changed()
    return broker


@pytest.fixture
def ask(inside: FakeBrokerInside) -> Ask:
    """Send a request to ``inside`` and return the response: api key, version, values → response."""
    dispatcher = RequestDispatcher(inside.services, api_table())

    async def asking(key: int, version: int, values: Values) -> Any:  # noqa: ANN401
        frame = memoryview(bytearray(request_frame(key, version, values, correlation_id=99)))
        request = dispatcher.decode(frame, ClientSession("10.0.0.9"))
        answer = b"".join(frame_response(request, await request.run()))
        assert int.from_bytes(answer[:4], "big") == len(answer) - 4
        correlation_id, response = read_answer(key, version, answer[4:])
        assert correlation_id == 99
        return response

    return asking
