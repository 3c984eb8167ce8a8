"""Connections: responses in order, overlapping requests, bounded memory, and logged ends."""

import asyncio
import gc
import logging
import struct
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from quorate.broker.kafka.connection.connection import KafkaConnection
from quorate.broker.kafka.connection.connection_limits import ConnectionLimits, SharedMemory
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher
from quorate.broker.kafka.connection.requests import (
    ClientSession,
    CloseConnection,
    Request,
    RequestThrottle,
)
from quorate.broker.kafka.wire.primitives import Buffers, MalformedRequest
from quorate.broker.quota.client_memory import ClientMemory, ResponseLease
from quorate.broker.quota.client_quota_manager import QuotaTurn
from quorate.broker.security.listener_security import (
    OPEN_LISTENER,
    ListenerSecurity,
    UnmappedCertificate,
)
from quorate.broker.security.principal import KafkaPrincipal
from tests.support.kafka_wire import sized
from tests.unit.test_work_turns import Passes


class FakeTls:
    """The TLS object of a client that has sent ``certificate``."""

    def __init__(self, certificate: bytes) -> None:
        self.certificate = certificate

    def getpeercert(self, *, binary_form: bool) -> bytes:
        assert binary_form
        return self.certificate


class FakeTransport:
    """Records what a connection does to its socket."""

    def __init__(self, certificate: bytes | None = None) -> None:
        self.certificate = certificate
        self.written = bytearray()
        self.pieces = 0
        self.reading = True
        self.closed = False
        self.aborted = False
        self.unread_bytes = 0

    def get_extra_info(self, name: str) -> object:
        if name == "ssl_object" and self.certificate is not None:
            return FakeTls(self.certificate)
        return ("10.0.0.9", 4321) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.pieces += 1
        self.written += data

    def writelines(self, buffers: Buffers) -> None:
        self.pieces += len(buffers)
        self.written += b"".join(buffers)

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class Script(RequestDispatcher):
    """A decoder whose requests finish when the test decides. A frame is its name, in 8 bytes."""

    def __init__(self, memory: ClientMemory) -> None:
        self.memory = memory
        self.decoded = 0
        self.started: list[str] = []
        self.outcomes: dict[str, asyncio.Future[Buffers]] = {}
        self.costs: dict[str, int] = {}
        self.tasks_cancelled: list[str] = []
        self.abandonable = False
        self.alone: set[str] = set()
        self.settled: set[str] = set()
        """The requests that must find the effects of earlier ones."""
        self.runs: dict[str, Callable[[], Coroutine[Any, Any, Buffers]]] = {}
        self.throttles: dict[str, RequestThrottle] = {}
        self.turns: dict[str, QuotaTurn] = {}

    def decode(self, frame: memoryview, session: ClientSession) -> Request:
        assert session.client_host == "10.0.0.9"
        self.decoded += 1
        name = bytes(frame).decode().strip()
        if name.startswith("bad"):
            raise MalformedRequest(f"no such thing as {name}")
        return Request(
            api_name=name,
            correlation_id=int(name.lstrip("abcdefghijklmnopqrstuvwxyz") or 0),
            cost_bytes=self.costs.get(name, 8),
            abandonable=self.abandonable,
            flexible_response_header=False,
            alone=name in self.alone,
            pipelined=name not in self.settled,
            run=self.runs.get(name) or (lambda: self._run_script(name)),
            throttle=self.throttles.setdefault(name, RequestThrottle()),
            lease=ResponseLease(self.memory.responses),
            turn=self.turns.get(name),
        )

    async def _run_script(self, name: str) -> Buffers:
        self.started.append(name)
        try:
            return await self.outcomes.setdefault(name, asyncio.Future())
        except asyncio.CancelledError:
            self.tasks_cancelled.append(name)
            raise

    def finish(self, name: str, body: bytes = b"done") -> None:
        future = self.outcomes.setdefault(name, asyncio.Future())
        future.set_result([body] if body else [])

    def fail(self, name: str, error: Exception) -> None:
        self.outcomes.setdefault(name, asyncio.Future()).set_exception(error)


class Bench:
    """A connection between a scripted decoder and a fake transport."""

    def __init__(
        self,
        *,
        security: ListenerSecurity = OPEN_LISTENER,
        memory: SharedMemory | None = None,
        certificate: bytes | None = None,
        **limits: int,
    ) -> None:
        memory = memory or SharedMemory(ClientMemory())
        self.script = Script(memory.bounds)
        self.transport = FakeTransport(certificate)
        self.events: list[str] = []
        self.connection = KafkaConnection(
            self.script,
            ConnectionLimits(frame_bytes=1 << 20, **limits),
            lambda _: self.events.append("opened"),
            lambda _: self.events.append("closed"),
            memory,
            security,
        )
        self.connection.connection_made(cast("asyncio.Transport", self.transport))

    def receive(self, *names: str) -> None:
        data = b"".join(sized(name.ljust(8).encode()) for name in names)
        self.receive_bytes(data)

    def receive_bytes(self, data: bytes) -> None:
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def answered(self) -> list[int]:
        """Return the correlation ids of the responses written so far."""
        data, ids = bytes(self.transport.written), []
        while data:
            size, correlation_id = struct.unpack_from(">ii", data)
            ids.append(correlation_id)
            data = data[4 + size :]
        return ids


async def settle() -> None:
    """Lets every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_answers_keep_the_order_of_requests() -> None:
    bench = Bench()
    bench.receive("r1", "r2", "r3")
    await settle()
    bench.script.finish("r3")
    bench.script.finish("r2")
    await settle()
    assert bench.answered() == []
    bench.script.finish("r1")
    await settle()
    assert bench.answered() == [1, 2, 3]


async def test_a_waiting_request_does_not_hold_up_the_work_of_later_ones() -> None:
    bench = Bench()
    bench.receive("fetch1")
    await settle()
    bench.receive("r2")
    await settle()
    assert bench.script.started == ["fetch1", "r2"]
    assert bench.transport.reading


async def test_requests_start_in_the_order_they_came() -> None:
    bench = Bench()
    names = [f"r{index}" for index in range(50)]
    bench.receive(*names)
    await settle()
    assert bench.script.started == names


async def test_no_answer_is_written_for_acks_0() -> None:
    bench = Bench()
    bench.receive("r1", "r2")
    bench.script.finish("r1", b"")
    bench.script.finish("r2")
    await settle()
    assert bench.answered() == [2]


async def test_too_many_requests_in_flight_stop_reading_until_some_are_answered() -> None:
    bench = Bench(in_flight_requests=2)
    bench.receive("r1", "r2", "r3", "r4")
    await settle()
    assert bench.script.started == ["r1", "r2"]
    assert not bench.transport.reading
    bench.script.finish("r1")
    await settle()
    assert bench.script.started == ["r1", "r2", "r3"]
    assert not bench.transport.reading
    bench.script.finish("r2")
    await settle()
    assert bench.transport.reading


async def test_too_many_bytes_in_flight_stop_reading() -> None:
    bench = Bench(in_flight_bytes=100)
    bench.script.costs = {"r1": 60, "r2": 60}
    bench.receive("r1", "r2")
    await settle()
    assert bench.script.started == ["r1"]
    assert not bench.transport.reading
    bench.script.finish("r1")
    await settle()
    assert bench.script.started == ["r1", "r2"]
    assert bench.transport.reading


async def test_one_request_above_the_limit_still_runs() -> None:
    bench = Bench(in_flight_bytes=100)
    bench.script.costs = {"r1": 1000}
    bench.receive("r1")
    await settle()
    assert bench.script.started == ["r1"]


async def test_a_client_that_does_not_read_gets_no_further_answers_made() -> None:
    bench = Bench()
    bench.receive("r1", "r2")
    bench.connection.pause_writing()
    bench.script.finish("r1")
    bench.receive("r3")
    await settle()
    assert bench.answered() == []
    assert bench.script.started == ["r1", "r2"]
    assert not bench.transport.reading
    bench.connection.resume_writing()
    await settle()
    assert bench.answered() == [1]
    assert bench.script.started == ["r1", "r2", "r3"]
    assert bench.transport.reading


async def test_a_large_answer_is_written_in_pieces_and_a_small_one_joined() -> None:
    bench = Bench()
    bench.receive("r1", "r2")
    bench.script.outcomes["r1"] = asyncio.Future()
    bench.script.outcomes["r1"].set_result([b"small", b"records"])
    bench.script.finish("r2", bytes(1 << 20))
    await settle()
    assert bench.transport.pieces == 1 + 2
    assert bench.answered() == [1, 2]


async def test_a_malformed_request_closes_with_peer_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    with caplog.at_level(logging.WARNING):
        bench.receive("r1", "bad2", "r3")
    await settle()
    assert bench.transport.closed
    assert "10.0.0.9:4321" in caplog.text
    assert "no such thing as bad2" in caplog.text
    assert bench.script.started == ["r1"], "what came before it is carried out"


async def test_issue_17_many_small_requests_in_one_buffer_start_a_few_at_a_time() -> None:
    bench = Bench()
    names = [f"r{number}" for number in range(200)]
    with Passes() as passes:
        bench.receive(*names)
        assert bench.script.decoded <= 17
        before = -1
        while len(bench.script.started) > before:
            before = len(bench.script.started)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(bench.script.started) <= 16 * passes.count
    assert len(bench.script.started) == 128, "as many as may be in flight"
    for name in names:
        bench.script.finish(name)
    await settle()
    for _ in range(20):
        await settle()
    assert bench.script.started == names
    assert bench.transport.reading


async def test_a_large_request_is_finished_before_the_next_one_starts() -> None:
    bench = Bench()
    bench.script.alone = {"r2"}
    bench.receive("r1", "r2", "r3")
    await settle()
    assert bench.script.started == ["r1", "r2"]
    assert not bench.transport.reading
    bench.script.finish("r1")
    await settle()
    assert bench.script.started == ["r1", "r2"]
    bench.script.finish("r2")
    await settle()
    assert bench.script.started == ["r1", "r2", "r3"]


async def test_a_request_that_must_find_the_effect_of_an_unfinished_one_waits() -> None:
    bench = Bench()
    bench.script.settled = {"list3"}
    bench.receive("r1", "r2", "list3", "r4")
    await settle()
    assert bench.script.started == ["r1", "r2"]
    bench.script.finish("r2")
    await settle()
    assert bench.script.started == ["r1", "r2"]
    bench.script.finish("r1")
    await settle()
    assert bench.script.started == ["r1", "r2", "list3", "r4"]


async def test_a_request_without_an_effect_is_not_waited_for() -> None:
    bench = Bench()
    bench.script.abandonable = True
    bench.script.settled = {"list2"}
    bench.receive("fetch1", "list2")
    await settle()
    assert bench.script.started == ["fetch1", "list2"]


async def test_the_memory_of_a_failed_request_is_free_at_once() -> None:
    class Body:
        """What a request holds."""

    async def fail() -> Buffers:
        body = Body()
        bodies.append(weakref.ref(body))
        raise CloseConnection("no")

    bodies: list[weakref.ref[Body]] = []
    bench = Bench()
    bench.script.runs["r1"] = fail
    gc.disable()
    try:
        bench.receive("r1")
        await settle()
        assert bench.transport.closed
        assert bodies[0]() is None
    finally:
        gc.enable()


async def test_nothing_that_comes_after_the_close_is_started() -> None:
    bench = Bench()
    bench.receive("bad1")
    assert bench.transport.closed
    bench.receive("r2")  # A closing TLS transport delivers what it had received.
    await settle()
    assert bench.script.started == []


async def test_a_certificate_that_is_nobodys_asks_for_nothing_while_it_is_closed_out() -> None:
    class Unmapped(ListenerSecurity):
        def principal_of_certificate(self, certificate_der: bytes) -> KafkaPrincipal:
            raise UnmappedCertificate("fits no rule")

    bench = Bench(security=Unmapped(), certificate=b"DER")
    assert bench.transport.closed
    bench.receive("r1")
    await settle()
    assert bench.script.started == []


async def test_an_oversized_frame_closes_with_its_size(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.receive_bytes(struct.pack(">i", 2 << 20))
    assert bench.transport.closed
    assert f"frame size {2 << 20}" in caplog.text


async def test_nothing_is_written_after_the_connection_was_closed() -> None:
    bench = Bench()
    bench.receive("r1")
    await settle()
    bench.receive("bad2")
    bench.script.finish("r1")
    await settle()
    assert bench.answered() == []


async def test_a_handler_that_asks_for_it_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.receive("r1")
    bench.script.fail("r1", CloseConnection("acks=0 and not the leader"))
    await settle()
    assert bench.transport.closed
    assert "acks=0 and not the leader" in caplog.text


async def test_a_fault_of_ours_costs_the_connection_and_is_logged_with_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.receive("r1")
    bench.script.fail("r1", ZeroDivisionError("oops"))
    await settle()
    assert bench.transport.closed
    (traced,) = [record for record in caplog.records if record.exc_info]
    assert "r1 for 10.0.0.9:4321 failed" in traced.getMessage()


async def test_a_client_that_leaves_takes_its_fetches_along_but_not_its_appends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.receive("r1")
    bench.script.abandonable = True
    bench.receive("fetch2")
    await settle()
    bench.connection.connection_lost(None)
    await settle()
    assert bench.script.tasks_cancelled == ["fetch2"]
    bench.script.fail("r1", RuntimeError("disk"))
    await settle()
    assert bench.events == ["opened", "closed"]
    assert "disk" in caplog.text


async def test_an_append_received_just_before_the_client_left_is_carried_out() -> None:
    bench = Bench()
    bench.receive("r1")
    bench.connection.connection_lost(None)
    await settle()
    assert bench.script.started == ["r1"]


async def test_drain_answers_what_is_in_flight_then_closes() -> None:
    bench = Bench(in_flight_requests=1)
    bench.receive("r1", "r2")
    await settle()
    bench.connection.drain()
    assert not bench.transport.reading
    bench.script.finish("r1")
    await settle()
    assert not bench.transport.closed
    bench.script.finish("r2")
    await settle()
    assert bench.answered() == [1, 2]
    assert bench.transport.closed


async def test_drain_of_an_idle_connection_closes_at_once() -> None:
    bench = Bench()
    bench.connection.drain()
    assert bench.transport.closed


async def test_abort_cuts() -> None:
    bench = Bench()
    bench.receive("r1")
    await settle()
    bench.connection.abort()
    bench.script.finish("r1")
    await settle()
    assert bench.transport.aborted
    assert bench.answered() == []


async def test_a_peer_without_an_address_is_accepted() -> None:
    """A peer whose address the kernel no longer knows must not fail the accept."""

    class Peerless(FakeTransport):
        def get_extra_info(self, name: str) -> Any:  # noqa: ANN401
            return None

    bounds = ClientMemory()
    connection = KafkaConnection(
        Script(bounds),
        ConnectionLimits(frame_bytes=100),
        lambda _: None,
        lambda _: None,
        SharedMemory(bounds),
    )
    connection.connection_made(cast("asyncio.Transport", Peerless()))
    assert connection.peer == "?"
