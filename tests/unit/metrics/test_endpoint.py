"""The page that Prometheus scrapes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from quorate.common.configuration import ConfigError
from quorate.common.metrics.family import Family, MetricKind, Metrics, Sample
from quorate.common.metrics.metrics_endpoint import (
    REQUEST_BYTES_MAX,
    MetricsEndpoint,
    metrics_listener,
)
from quorate.common.types import Endpoint

FAMILY = Family("quorate_answer", MetricKind.GAUGE, "Test", "Answer", "Of everything.")
OTHER = Family("quorate_question", MetricKind.GAUGE, "Test", "Question", "Not known.")


class Health:
    """A process with something to say of its readiness."""

    why = ""

    async def why_unready(self) -> str:
        return self.why


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
async def address(health: Health) -> AsyncIterator[Endpoint]:
    metrics = Metrics()
    metrics.add(lambda: [Sample(FAMILY, 42), Sample(OTHER, 6)])
    endpoint = MetricsEndpoint(metrics.gathered, health.why_unready)
    yield await endpoint.start(Endpoint("127.0.0.1", 0))
    await endpoint.stop()


async def ask(address: Endpoint, request: bytes) -> tuple[bytes, bytes]:
    """The status line and the body."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.partition(b"\r\n")[0], body


async def test_figures_are_at_metrics(address: Endpoint) -> None:
    status, body = await ask(address, b"GET /metrics?x=1 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert status == b"HTTP/1.1 200 OK"
    assert b"\nquorate_answer 42.0\n" in body


@pytest.mark.parametrize("name", [b"name[]", b"name%5B%5D"])
async def test_only_the_named_figures_are_written_out(address: Endpoint, name: bytes) -> None:
    request = b"GET /metrics?%s=quorate_question&%s=none HTTP/1.1\r\n\r\n" % (name, name)
    _, body = await ask(address, request)
    assert b"\nquorate_question 6.0\n" in body
    assert b"quorate_answer" not in body


async def test_a_head_has_no_body(address: Endpoint) -> None:
    assert await ask(address, b"HEAD /metrics HTTP/1.1\r\n\r\n") == (b"HTTP/1.1 200 OK", b"")


async def test_a_process_is_healthy_while_it_answers_and_ready_while_it_serves(
    address: Endpoint, health: Health
) -> None:
    ready = b"GET /readyz HTTP/1.1\r\n\r\n"
    assert await ask(address, ready) == (b"HTTP/1.1 200 OK", b"ready\n")
    health.why = "it knows no leader\x1b[2J"
    assert await ask(address, ready) == (
        b"HTTP/1.1 503 Service Unavailable",
        b"not ready: it knows no leader\\x1b[2J\n",
    )
    head = b"HEAD /readyz HTTP/1.1\r\n\r\n"
    assert await ask(address, head) == (b"HTTP/1.1 503 Service Unavailable", b"")
    healthy = b"GET /healthz HTTP/1.1\r\n\r\n"
    assert await ask(address, healthy) == (b"HTTP/1.1 200 OK", b"ok\n")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
    ],
)
async def test_anything_else_is_told_where_they_are(
    address: Endpoint, request_head: bytes, status: bytes
) -> None:
    assert await ask(address, request_head) == (
        status,
        b"figures are at /metrics, health is at /healthz and /readyz\n",
    )


@pytest.mark.parametrize("junk", [b"x" * (2 * REQUEST_BYTES_MAX), b"\x16\x03\x01\r\n\r\n"])
async def test_junk_costs_nothing_but_its_connection(address: Endpoint, junk: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        await ask(address, junk)
    status, _ = await ask(address, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert status == b"HTTP/1.1 200 OK"


def test_a_listener_that_is_no_address_is_refused() -> None:
    assert metrics_listener("") is None
    assert metrics_listener("127.0.0.1:9464") == Endpoint("127.0.0.1", 9464)
    with pytest.raises(ConfigError, match=r"metrics\.listener=9464: must be host:port"):
        metrics_listener("9464")
