"""The listener on a real socket: a bad peer harms no other, and stopping cuts off no request."""

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.kafka.server import KafkaServer
from quorate.common.types import Endpoint
from tests.support.kafka_fakes import FakeBrokerInside, fake_broker
from tests.support.kafka_wire import (
    WireClient,
    fetching,
    producing,
    read_answer,
    record_batch,
    request_frame,
    sized,
)

API_VERSIONS, PRODUCE, FETCH = 18, 0, 1


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[FakeBrokerInside, Endpoint]]:
    inside = fake_broker(tmp_path, socket_request_max_bytes=1 << 20)
    at = await inside.start()
    yield inside, at
    await inside.server.stop(grace_ms=100)


Running = tuple[FakeBrokerInside, Endpoint]

BAD_FRAMES = {
    "oversized": struct.pack(">i", (1 << 20) + 1),
    "negative": struct.pack(">i", -5),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("1603010200010001fc0303") + bytes(64),
    "unknown api": sized(struct.pack(">hhih", 999, 0, 1, -1)),
    "body cut short": sized(request_frame(3, 1, b"\0\0")),
    "huge array": sized(request_frame(3, 12, b"\xff\xff\xff\xff\x07" + bytes(20))),
    "zeros": bytes(64),
}


@pytest.mark.parametrize("kind", BAD_FRAMES)
async def test_a_bad_frame_closes_that_connection_only_and_says_why(
    running: Running, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, at = running
    good, bad = await WireClient.connect(at), await WireClient.connect(at)
    await good.ask(API_VERSIONS, 0, {})
    with caplog.at_level(logging.WARNING):
        bad.send_bytes(BAD_FRAMES[kind])
        assert await bad.is_closed()
    assert "malformed request: " in caplog.text
    assert "127.0.0.1:" in caplog.text
    assert (await good.ask(API_VERSIONS, 0, {})).error_code == 0
    await good.close()
    await bad.close()


async def test_pipelined_requests_are_answered_in_order_across_apis(running: Running) -> None:
    inside, at = running
    inside.metadata.add_topic("t")
    client = await WireClient.connect(at)
    for number in range(60):
        if number % 3 == 0:
            client.send(PRODUCE, 9, producing(record_batch(1)), correlation_id=number)
        elif number % 3 == 1:
            client.send(FETCH, 12, fetching(max_wait_ms=1), correlation_id=number)
        else:
            client.send(API_VERSIONS, 0, {}, correlation_id=number)
    ids = [int.from_bytes((await client.answer())[:4], "big") for _ in range(60)]
    assert ids == list(range(60))
    await client.close()


async def test_a_long_poll_holds_up_an_answer_but_not_the_append_behind_it(
    running: Running,
) -> None:
    inside, at = running
    inside.metadata.add_topic("t")
    client = await WireClient.connect(at)
    client.send(FETCH, 12, fetching(max_wait_ms=60_000), correlation_id=1)
    client.send(PRODUCE, 9, producing(record_batch(4)), correlation_id=2)
    correlation_id, fetched = read_answer(FETCH, 12, await client.answer())
    assert correlation_id == 1
    assert fetched.responses[0].partitions[0].high_watermark == 4
    correlation_id, produced = read_answer(PRODUCE, 9, await client.answer())
    assert correlation_id == 2
    assert produced.responses[0].partition_responses[0].base_offset == 0
    await client.close()


async def test_acks_0_then_close_is_still_appended(running: Running) -> None:
    inside, at = running
    inside.metadata.add_topic("t")
    client = await WireClient.connect(at)
    client.send(PRODUCE, 9, producing(record_batch(4), acks=0))
    await client.close()
    observer = await WireClient.connect(at)
    response = await observer.ask(FETCH, 12, fetching(max_wait_ms=10_000))
    assert response.responses[0].partitions[0].high_watermark == 4
    await observer.close()


async def test_a_client_that_does_not_read_is_held_back_and_loses_nothing(
    running: Running,
) -> None:
    """It asks for far more than socket buffers hold; the broker must not make it all at once."""
    inside, at = running
    inside.metadata.add_topic("t")
    client = await WireClient.connect(at)
    big = bytes(900_000)
    await client.ask(PRODUCE, 9, producing(record_batch(1, big)))
    made = 0
    original = inside.replicas.fetch

    async def counted(*args: object, **limits: int) -> object:
        nonlocal made
        made += 1
        return await original(*args, **limits)  # type: ignore[arg-type]

    inside.replicas.fetch = counted  # type: ignore[method-assign, assignment]
    for number in range(500):
        client.send(FETCH, 12, fetching(max_bytes=1 << 20), correlation_id=number)
    first = read_answer(FETCH, 12, await client.answer())
    for _ in range(50):
        await asyncio.sleep(0)
    assert made < 300
    ids = [first[0]] + [int.from_bytes((await client.answer())[:4], "big") for _ in range(499)]
    assert ids == list(range(500))
    await client.close()


async def test_stopping_answers_what_is_in_flight_and_accepts_no_more(tmp_path: Path) -> None:
    inside = fake_broker(tmp_path)
    at = await inside.start()
    inside.metadata.add_topic("t")
    idle, polling = await WireClient.connect(at), await WireClient.connect(at)
    await idle.ask(API_VERSIONS, 0, {})
    asking = asyncio.ensure_future(polling.ask(FETCH, 12, fetching(max_wait_ms=300)))
    while not inside.replicas.logs:
        await asyncio.sleep(0)
    await inside.server.stop()
    assert (await asking).responses[0].partitions[0].error_code == 0
    assert await polling.is_closed()
    assert await idle.is_closed()
    with pytest.raises(ConnectionRefusedError):
        await WireClient.connect(at)
    await idle.close()
    await polling.close()


async def test_stopping_cuts_what_takes_longer_than_the_grace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inside = fake_broker(tmp_path)
    at = await inside.start()
    inside.metadata.add_topic("t")
    client = await WireClient.connect(at)
    client.send(FETCH, 12, fetching(max_wait_ms=60_000))
    while not inside.replicas.logs:
        await asyncio.sleep(0)
    await inside.server.stop(grace_ms=1)
    assert await client.is_closed()
    assert "cutting 1 Kafka connections" in caplog.text
    await client.close()


async def test_a_taken_port_is_an_error_that_names_it(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = KafkaServer(fake_broker(tmp_path).services)
        with pytest.raises(OSError, match=str(port)):
            await server.start(Endpoint("127.0.0.1", port))
        await server.stop()


@pytest.mark.parametrize("key", ["max_connections", "max_connections_per_ip"])
async def test_no_more_connections_are_held_than_allowed(
    tmp_path: Path, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    limit: dict[str, Any] = {key: 2}
    inside = fake_broker(tmp_path, **limit)
    at = await inside.start()
    held = [await WireClient.connect(at) for _ in range(2)]
    for client in held:
        assert (await client.ask(API_VERSIONS, 0, {})).error_code == 0
    late = await WireClient.connect(at)
    assert await late.is_closed()
    assert f"{key.replace('_', '.')}=2 connections are open already" in caplog.text
    await late.close()
    assert (await held[0].ask(API_VERSIONS, 0, {})).error_code == 0
    await held.pop().close()
    while len(inside.server._connections) > 1:
        await asyncio.sleep(0)
    held.append(await WireClient.connect(at))
    assert (await held[-1].ask(API_VERSIONS, 0, {})).error_code == 0
    for client in held:
        await client.close()
    await inside.server.stop(grace_ms=100)
    assert not inside.server._by_host
