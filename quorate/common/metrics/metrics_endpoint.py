"""``GET /metrics``: the page that Prometheus scrapes, in its text format; and the health pages.

``GET /metrics?name[]=A&name[]=B`` has only the named figures: those of all partitions of a large
broker take a while to write out.

``GET /healthz`` answers 200 while the process works at all. ``GET /readyz`` answers 200 if it
serves, and 503 with the reason if it does not.

It is plain HTTP without a password, so it listens only where the operator says. The samples are
gathered on the event loop, which owns the numbers, and written out in a thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as PrometheusFamily
from prometheus_client.registry import Collector

from quorate.common.configuration import ConfigKey, parse_endpoint
from quorate.common.escaping import escaped_lines
from quorate.common.metrics.family import BUCKETS_S, Distribution, Family, MetricKind, Sample
from quorate.common.types import Endpoint

METRICS_LISTENER: Final = ConfigKey(
    name="metrics.listener",
    type=str,
    default="",
    doc="host:port where Prometheus finds this process's figures at /metrics, and health checks "
    "/healthz and /readyz; empty: nowhere. Whoever reaches it may read them.",
)

REQUEST_BYTES_MAX: Final = 8 << 10
REQUEST_TIMEOUT_S: Final = 5.0
_HINT: Final = b"figures are at /metrics, health is at /healthz and /readyz\n"

WhyUnready = Callable[[], Awaitable[str]]
"""Returns why this process does not serve now; empty if it does."""

log = logging.getLogger(__name__)


class MetricsEndpoint:
    """An HTTP server with the page of figures and the two pages of health."""

    def __init__(
        self, gather: Callable[[], Awaitable[Sequence[Sample]]], why_unready: WhyUnready
    ) -> None:
        """Create the endpoint; ``gather`` is called for every scrape, ``why_unready`` for every
        look at the readiness."""
        self._gather = gather
        self._why_unready = why_unready
        self._server: asyncio.Server | None = None

    async def start(self, listener: Endpoint) -> Endpoint:
        """Listen, and return the address, with the actual port if port 0 was asked for.

        Raises:
            OSError: the address cannot be used.
        """
        self._server = await asyncio.start_server(
            self._serve, listener.host, listener.port, limit=REQUEST_BYTES_MAX
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        log.info("%s on %s:%d", METRICS_LISTENER.name, host, port)
        return Endpoint(host, port)

    async def stop(self) -> None:
        """Close the server; a scrape under way is cut off."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(request.partition(b"\r\n")[0]))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            log.debug("a scrape was not finished", exc_info=True)
        finally:
            writer.close()

    async def _answer(self, request_line: bytes) -> bytes:
        method, _, rest = request_line.partition(b" ")
        path, _, query = rest.partition(b" ")[0].partition(b"?")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", _HINT)
        head_only = method == b"HEAD"
        if path == b"/healthz":
            return _response("200 OK", b"ok\n", head_only=head_only)
        if path == b"/readyz":
            return _readiness(await self._why_unready(), head_only=head_only)
        if path != b"/metrics":
            return _response("404 Not Found", _HINT)
        samples = _chosen(await self._gather(), query)
        body = await asyncio.to_thread(exposition, samples)
        return _response("200 OK", body, CONTENT_TYPE, head_only=head_only)


def _chosen(samples: Sequence[Sample], query: bytes) -> Sequence[Sample]:
    """Return the samples that a query string names, or all if it names none."""
    names = frozenset(parse_qs(query.decode("latin-1")).get("name[]", ()))
    return [one for one in samples if one.family.name in names] if names else samples


def _readiness(why_unready: str, *, head_only: bool) -> bytes:
    if not why_unready:
        return _response("200 OK", b"ready\n", head_only=head_only)
    body = f"not ready: {escaped_lines(why_unready)}\n".encode()
    return _response("503 Service Unavailable", body, head_only=head_only)


def _response(
    status: str, body: bytes, content_type: str = "text/plain", *, head_only: bool = False
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + (b"" if head_only else body)


def metrics_listener(value: str) -> Endpoint | None:
    """Return the address to listen on, or None if there is none.

    Raises:
        ConfigError: not host:port.
    """
    return parse_endpoint(METRICS_LISTENER.name, value) if value else None


# Samples in Prometheus' text format, with what the process itself uses beside them.


__all__ = ["CONTENT_TYPE", "exposition"]

_BOUNDS: Final = (*(f"{bound:g}" for bound in BUCKETS_S), "+Inf")


class _Samples(Collector):
    """The samples as prometheus_client wants them: family by family."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_family: dict[Family, list[Sample]] = {}
        for sample in samples:
            self._by_family.setdefault(sample.family, []).append(sample)

    def collect(self) -> Iterator[PrometheusFamily]:
        for family, samples in self._by_family.items():
            yield _converted(family, samples)


def exposition(samples: Iterable[Sample]) -> bytes:
    """Return the text of a scrape. Many samples take a while, so call it outside of the
    event loop.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(samples))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _converted(family: Family, samples: Sequence[Sample]) -> PrometheusFamily:
    converted: GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
    if family.kind is MetricKind.HISTOGRAM:
        converted = HistogramMetricFamily(family.name, family.doc, labels=family.labels)
        for sample in samples:
            assert isinstance(sample.value, Distribution)
            converted.add_metric(_shown(sample.labels), _cumulative(sample.value), sample.value.sum)
        return converted
    of_kind = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
    converted = of_kind(family.name, family.doc, labels=family.labels)
    for sample in samples:
        assert not isinstance(sample.value, Distribution)
        converted.add_metric(_shown(sample.labels), sample.value)
    return converted


def _shown(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return labels without control characters. prometheus_client escapes what its format needs."""
    return tuple(map(escaped_lines, labels))


def _cumulative(distribution: Distribution) -> list[tuple[str, float]]:
    """Return bucket counts as Prometheus wants them: each counts the values at or below
    its bound.
    """
    buckets, below = [], 0
    for bound, count in zip(_BOUNDS, distribution.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return buckets
