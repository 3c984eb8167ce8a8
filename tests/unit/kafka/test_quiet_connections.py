"""Quiet connections are closed: after a time, and sooner if others need their memory."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from quorate.broker.kafka.connection.connection import KafkaConnection
from quorate.broker.kafka.connection.connection_limits import SharedMemory
from quorate.broker.kafka.connection.memory_pressure import PATIENCE_S
from quorate.broker.kafka.connection.requests import RequestThrottle
from quorate.broker.kafka.server import KafkaServer
from quorate.broker.quota.client_memory import ClientMemory, RequestMemory, ResponseMemory
from quorate.broker.security.listener_security import OPEN_LISTENER
from tests.support.kafka_fakes import fake_broker
from tests.support.kafka_wire import sized
from tests.support.virtual_time import pass_time
from tests.unit.kafka.test_connection import Bench, FakeTransport, settle

IDLE_MS = 600_000
LATE_S = IDLE_MS / 1_000 / 32
"""The time by which a connection may be closed too late."""

Accepted = Callable[[], tuple[KafkaConnection, FakeTransport]]


@pytest.fixture
def accepted(tmp_path: Path) -> Accepted:
    """Connections of a server that closes those that are idle."""
    server = KafkaServer(fake_broker(tmp_path, connections_max_idle_ms=IDLE_MS).services)

    def accept() -> tuple[KafkaConnection, FakeTransport]:
        server._idle.start()
        connection, transport = server._connection(OPEN_LISTENER), FakeTransport()
        connection.connection_made(cast("asyncio.Transport", transport))
        return connection, transport

    return accept


def receive(connection: KafkaConnection, data: bytes) -> None:
    while data:
        buffer = connection.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


API_VERSIONS = sized(b"\0\x12\0\0\0\0\0\x01\xff\xff")


async def test_an_idle_connection_is_closed_in_time_and_not_before(accepted: Accepted) -> None:
    _, transport = accepted()
    await pass_time(IDLE_MS / 1_000 - 1)
    assert not transport.closed
    await pass_time(1 + LATE_S)
    assert transport.closed


async def test_each_request_begins_the_time_anew(accepted: Accepted) -> None:
    connection, transport = accepted()
    for _ in range(5):
        await pass_time(IDLE_MS / 1_000 - 1)
        receive(connection, API_VERSIONS)
        await settle()
    assert transport.written
    assert not transport.closed
    await pass_time(IDLE_MS / 1_000 + LATE_S)
    assert transport.closed


async def test_bytes_that_trickle_in_are_no_progress(accepted: Accepted) -> None:
    connection, transport = accepted()
    receive(connection, sized(bytes(1 << 20))[:100])
    for _ in range(100):
        await pass_time(IDLE_MS / 1_000 / 50)
        if transport.closed:
            break
        receive(connection, b"x" * 100)
    assert transport.closed


async def test_a_large_request_over_a_slow_line_is_progress(accepted: Accepted) -> None:
    connection, transport = accepted()
    receive(connection, sized(bytes(10 << 20))[:100])
    for _ in range(20):
        await pass_time(IDLE_MS / 1_000 / 2)
        receive(connection, bytes(64 << 10))
    assert not transport.closed


async def test_a_connection_for_which_something_is_carried_out_is_not_quiet() -> None:
    bench = Bench()
    bench.receive("fetch1")
    await pass_time(10_000)
    assert bench.connection.quiet_s(now()) == 0
    bench.script.finish("fetch1")
    await settle()
    await pass_time(10)
    assert bench.connection.quiet_s(now()) == pytest.approx(10)


async def test_half_a_request_behind_a_long_poll_is_the_clients_turn() -> None:
    bench = Bench()
    bench.receive("fetch1")
    await pass_time(10_000)
    bench.receive_bytes(sized(b"r2      ")[:5])
    await pass_time(7)
    assert bench.connection.quiet_s(now()) == pytest.approx(7)


async def test_a_muted_client_is_not_quiet() -> None:
    bench = Bench()
    bench.script.throttles["r1"] = throttle = RequestThrottle()
    throttle.at_least(1_000_000)
    bench.receive("r1")
    bench.script.finish("r1")
    await pass_time(900)
    assert bench.connection.quiet_s(now()) == 0


async def test_what_is_not_read_is_the_clients_turn_whatever_is_carried_out() -> None:
    bench = Bench()
    bench.receive("r1", "fetch2")
    bench.transport.unread_bytes = 100_000
    bench.connection.pause_writing()
    await pass_time(100)
    assert bench.connection.quiet_s(now()) == pytest.approx(100)
    bench.transport.unread_bytes -= 1
    assert bench.connection.quiet_s(now()) == 0
    await pass_time(5)
    assert bench.connection.quiet_s(now()) == pytest.approx(5)


async def test_one_that_does_not_read_is_cut_because_a_close_would_wait_for_it() -> None:
    bench = Bench()
    bench.receive("r1")
    bench.connection.pause_writing()
    bench.connection.close("quiet")
    assert bench.transport.aborted


async def test_one_that_is_closing_and_does_not_go_is_cut() -> None:
    bench = Bench()
    bench.connection.close("idle")
    assert bench.transport.closed
    assert not bench.transport.aborted
    bench.connection.close("still there")
    assert bench.transport.aborted


def now() -> float:
    return asyncio.get_running_loop().time()


def short_of_memory(tmp_path: Path) -> tuple[KafkaServer, ClientMemory]:
    inside = fake_broker(tmp_path, queued_max_request_bytes=1 << 20, connections_max_idle_ms=-1)
    return KafkaServer(inside.services), inside.services.memory


def reading(transport: FakeTransport) -> bool:
    return transport.reading


def accept(server: KafkaServer) -> tuple[KafkaConnection, FakeTransport]:
    connection, transport = server._connection(OPEN_LISTENER), FakeTransport()
    connection.connection_made(cast("asyncio.Transport", transport))
    return connection, transport


async def test_who_stops_within_large_requests_makes_room_for_who_does_not(tmp_path: Path) -> None:
    server, memory = short_of_memory(tmp_path)
    stalled = [accept(server) for _ in range(2)]
    for connection, _ in stalled:
        receive(connection, sized(bytes(900_000))[:1000])
    good, good_transport = accept(server)
    receive(good, sized(bytes(800_000))[:1000])
    assert reading(good_transport) is False
    await pass_time(PATIENCE_S - 1)
    assert not any(transport.closed for _, transport in stalled)
    await pass_time(2)
    assert all(transport.closed for _, transport in stalled)
    for connection, _ in stalled:
        connection.connection_lost(None)
    assert reading(good_transport)
    await pass_time(PATIENCE_S * 2)
    assert not good_transport.closed
    assert memory.requests.held_bytes == 800_000


async def test_nobody_is_closed_for_memory_that_nobody_waits_for(tmp_path: Path) -> None:
    server, _ = short_of_memory(tmp_path)
    connection, transport = accept(server)
    receive(connection, sized(bytes(900_000))[:1000])
    await pass_time(1_000)
    assert not transport.closed


async def test_while_requests_hold_too_much_each_connection_has_one(tmp_path: Path) -> None:
    bounds = ClientMemory(RequestMemory(10), ResponseMemory(100))
    memory = SharedMemory(bounds)
    first, second = Bench(memory=memory), Bench(memory=memory)
    first.receive("r1")
    second.receive("r2")
    assert bounds.requests.held_bytes == 16
    await settle()
    assert first.script.started == ["r1"]
    assert second.script.started == ["r2"]
    assert not first.transport.reading or not second.transport.reading
    first.script.finish("r1")
    second.script.finish("r2")
    await settle()
    assert first.transport.reading
    assert second.transport.reading
    assert bounds.requests.held_bytes == 0


async def test_while_answers_hold_too_much_nothing_is_started_beside_others() -> None:
    bounds = ClientMemory(RequestMemory(), ResponseMemory(100))
    bench = Bench(memory=SharedMemory(bounds))
    bounds.responses.change(100)
    bench.receive("r1", "r2")
    await settle()
    assert bench.script.started == ["r1"]
    bench.script.finish("r1")
    await settle()
    assert bench.script.started == ["r1", "r2"]


async def test_a_connection_that_is_lost_lets_go_with_its_work() -> None:
    bounds = ClientMemory()
    bench = Bench(memory=SharedMemory(bounds), in_flight_requests=1)
    bench.receive("r1", "r2", "r3")
    bench.receive_bytes(sized(bytes(2 << 20 >> 1))[:9])
    await settle()
    assert bench.script.started == ["r1"]
    assert bounds.requests.held_bytes > 24
    bench.connection.connection_lost(None)
    assert bounds.requests.held_bytes == 8
    bench.script.finish("r1")
    await settle()
    assert bounds.requests.held_bytes == 0


async def test_a_connection_reads_on_once_others_have_let_go() -> None:
    memory = SharedMemory(ClientMemory(RequestMemory(10), ResponseMemory()))
    first, second = Bench(memory=memory), Bench(memory=memory)
    first.receive("r1")
    second.receive("r2")
    await settle()
    assert [reading(first.transport), reading(second.transport)] == [True, False]
    first.script.finish("r1")
    await settle()
    assert reading(second.transport)
    assert second.answered() == []


async def test_a_connection_that_is_lost_beyond_the_limit_makes_way_for_the_next_one() -> None:
    memory = SharedMemory(ClientMemory(RequestMemory(100_000), ResponseMemory()))
    holder, beyond, waiting = (Bench(memory=memory) for _ in range(3))
    for bench in (holder, beyond, waiting):
        bench.receive_bytes(sized(bytes(90_000))[:1_000])
    assert [reading(beyond.transport), reading(waiting.transport)] == [True, False]
    beyond.connection.connection_lost(None)
    assert reading(waiting.transport)
