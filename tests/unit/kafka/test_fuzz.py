"""Arbitrary requests cause no crash and no hang, use bounded memory, and need authentication."""

import asyncio
import concurrent.futures
import dataclasses
import functools
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.connection import KafkaConnection
from quorate.broker.kafka.connection.connection_limits import ConnectionLimits, SharedMemory
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher, frame_response
from quorate.broker.kafka.connection.requests import ClientSession, CloseConnection
from quorate.broker.kafka.wire.primitives import MalformedRequest
from quorate.broker.quota.client_memory import ClientMemory
from quorate.broker.security import login_queue
from quorate_proto.v1 import admin_pb2
from tests.support.kafka_fakes import FakeBrokerInside, FakeConfigs, fake_broker
from tests.support.kafka_fuzz import Fuzzer
from tests.support.kafka_wire import (
    by_topic_ids,
    fetching,
    producing,
    record_batch,
    request_frame,
)
from tests.support.waiting import async_let_time_pass
from tests.unit.kafka.test_codec import REQUESTS, TOPIC_ID
from tests.unit.kafka.test_connection import FakeTransport
from tests.unit.kafka.test_sasl import guarded_broker

BODIES = {
    **REQUESTS,
    0: by_topic_ids(producing(record_batch(3), record_batch(1)), {"t": TOPIC_ID}),
    1: by_topic_ids({**fetching(partitions=(0, 1)), "max_wait": 0}, {"t": TOPIC_ID}),
}
PEAK_BYTES = 48 << 20
PATIENCE_S = 0.2
"""A long poll may last for days."""


async def run_all(inside: FakeBrokerInside, seed: int, times: int) -> dict[str, int]:
    """Send each API and version ``times`` times, and return the outcomes of the requests."""
    fuzzer = Fuzzer(seed, api_table(), BODIES)
    dispatcher = RequestDispatcher(inside.services, api_table())
    ended = {"malformed": 0, "refused": 0, "answered": 0}
    for case in fuzzer.cases * times:
        frame = fuzzer.frame(case)
        try:
            request = dispatcher.decode(memoryview(bytearray(frame)), ClientSession("fuzz"))
        except MalformedRequest:
            ended["malformed"] += 1
            continue
        try:
            answer = frame_response(request, await asyncio.wait_for(request.run(), PATIENCE_S))
        except (CloseConnection, KafkaError, TimeoutError):
            ended["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{case}: {frame.hex()}: {error!r}") from error
        else:
            ended["answered"] += 1
            assert sum(map(len, answer)) < PEAK_BYTES
    return ended


class NamedConfigs(FakeConfigs):
    """Returns an outcome for each entity of a request, by its name."""

    async def describe(
        self, request: admin_pb2.DescribeConfigsRequest
    ) -> admin_pb2.DescribeConfigsResponse:
        results = [
            admin_pb2.DescribedConfig(entity_name=one.entity_name) for one in request.entities
        ]
        return admin_pb2.DescribeConfigsResponse(results=results)


def serving(tmp_path: Path) -> FakeBrokerInside:
    """A broker whose topic t has two partitions, with an outcome for each entity of a request."""
    inside = fake_broker(tmp_path, auto_create_topics_enable=False)
    inside.services = dataclasses.replace(inside.services, configs=NamedConfigs())
    inside.metadata.add_topic("t", 2)
    return inside


async def bounded(inside: FakeBrokerInside, seed: int, times: int) -> dict[str, int]:
    tracemalloc.start()
    try:
        ended = await run_all(inside, seed, times)
        assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES
    finally:
        tracemalloc.stop()
    return ended


async def test_no_request_brings_a_handler_down(tmp_path: Path) -> None:
    inside = serving(tmp_path)
    ended = await bounded(inside, seed=1, times=4)
    assert all(ended.values()), ended


def stranger(inside: FakeBrokerInside, door: Any) -> tuple[KafkaConnection, FakeTransport]:  # noqa: ANN401
    connection = KafkaConnection(
        RequestDispatcher(inside.services, api_table()),
        ConnectionLimits(frame_bytes=1 << 20),
        lambda _: None,
        lambda _: None,
        SharedMemory(ClientMemory()),
        door,
    )
    transport = FakeTransport()
    connection.connection_made(cast("asyncio.Transport", transport))
    return connection, transport


def receive(connection: KafkaConnection, transport: FakeTransport, data: bytes) -> None:
    while data and not transport.closed:
        buffer = connection.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


def conversation(chance: random.Random, fuzzer: Fuzzer) -> list[bytes]:
    """Frames of a stranger: SASL in any order, damaged or not, among other requests."""
    known = [
        handshake(chance.randint(0, 1), chance.choice(MECHANISMS)),
        authenticate(chance.randint(0, 2), chance.choice(TOKENS)),
        chance.choice(TOKENS),
        request_frame(18, 0, b""),
        fuzzer.frame(chance.choice([case for case in fuzzer.cases if case[0] in (17, 18, 36)])),
        fuzzer.frame(chance.choice(fuzzer.cases)),
        chance.randbytes(chance.randint(0, 80)),
    ]
    frames = []
    for frame in chance.choices(known, k=chance.randint(1, 8)):
        size = len(frame) if chance.random() < 0.95 else chance.randint(-5, (1 << 31) - 1)
        frames.append(struct.pack(">I", size & 0xFFFFFFFF) + frame)
    return frames


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "", "x" * 200)
TOKENS = (
    b"",
    b"\0alice\0wrong",
    b"\0ghost\0secret",
    b"n,,n=alice,r=abc",
    b"n,,n=ghost,r=abc,tokenauth=true",
    b"c=biws,r=abcnonce-of-the-broker,p=" + b"A" * 44,
    b"c=biws,r=abcnonce-of-the-broker,p=" + b"A" * 88,
    b"\xff" * 20,
    b"," * 2_000,
    b"n,," * 1_000,
)


@functools.cache
def handshake(version: int, mechanism: str) -> bytes:
    return request_frame(17, version, {"mechanism": mechanism})


@functools.cache
def authenticate(version: int, token: bytes) -> bytes:
    return request_frame(36, version, {"auth_bytes": token})


async def talk(inside: FakeBrokerInside, door: Any, seed: int, times: int) -> int:  # noqa: ANN401
    chance = random.Random(seed)
    fuzzer = Fuzzer(seed, api_table(), BODIES)
    frames = 0
    for _ in range(times):
        connection, transport = stranger(inside, door)
        for frame in conversation(chance, fuzzer):
            frames += 1
            receive(connection, transport, frame)
            if chance.random() < 0.5:
                await async_let_time_pass(0.001, "frames come apart or together")
        await async_let_time_pass(0.01, "what was received is answered meanwhile")
        if not transport.closed:
            connection.connection_lost(None)
        assert not connection._session.is_authenticated
        assert len(transport.written) < 64 << 10
    assert not inside.forwarder.asked
    assert not inside.replicas.produced
    return frames


class NoThreads:
    """Passwords are checked at once: virtual time has no place for threads."""

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(function(*args))
        except Exception as error:  # noqa: BLE001 - handed to who waits
            future.set_exception(error)
        return future


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_queue, "ThreadPoolExecutor", lambda *_args, **_names: NoThreads())


@pytest.mark.usefixtures("at_once")
async def test_no_stranger_gets_in_or_brings_the_listener_down(tmp_path: Path) -> None:
    inside, door = guarded_broker(tmp_path)
    assert await talk(inside, door, 1, 80) > 150
