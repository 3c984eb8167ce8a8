"""Figures of those who come by the Kafka wire."""

from collections.abc import Iterator, Mapping
from typing import Final

from broker.client_memory import ClientMemory
from quorum.metrics.family import Family, Kind, Sample, Timings

REQUEST_TIMES: Final = Family(
    "quorate_request_seconds",
    Kind.HISTOGRAM,
    "RequestMetrics",
    "TotalTimeMs",
    "From a request's start to its answer, with what it waited for (Fetch: data, Produce: acks).",
    ("request",),
)
CONNECTIONS: Final = Family(
    "quorate_connections",
    Kind.GAUGE,
    "socket-server-metrics",
    "connection-count",
    "Open connections of Kafka clients.",
)
CONNECTIONS_ACCEPTED: Final = Family(
    "quorate_connections_accepted_total",
    Kind.COUNTER,
    "socket-server-metrics",
    "connection-creation-total",
    "Connections of Kafka clients that were accepted.",
)
CONNECTIONS_CLOSED: Final = Family(
    "quorate_connections_closed_total",
    Kind.COUNTER,
    "socket-server-metrics",
    "connection-close-total",
    "Connections of Kafka clients that the broker closed: idle for connections.max.idle.ms, over "
    "the limit of connections, or keeping memory that others waited for.",
    ("reason",),
)
REQUEST_BYTES: Final = Family(
    "quorate_request_memory_bytes",
    Kind.GAUGE,
    "SocketServer",
    "MemoryPoolUsed",
    "Memory held by requests of Kafka clients; bounded by queued.max.request.bytes.",
)
RESPONSE_BYTES: Final = Family(
    "quorate_response_memory_bytes",
    Kind.GAUGE,
    "SocketServer",
    "ResponseMemoryUsed",
    "Memory held by answers to clients: to Kafka's and to readers of ranges, each bounded by "
    "queued.max.response.bytes.",
)
MEMORY_WAITS: Final = Family(
    "quorate_memory_waits_total",
    Kind.COUNTER,
    "SocketServer",
    "MemoryPoolDepletedCount",
    "Times that a client had to wait, because requests or answers held all their memory.",
)
IDLE: Final = "idle"
LIMIT: Final = "limit"
MEMORY: Final = "memory"


class ClientFigures:
    """Counted by the listeners of one broker."""

    def __init__(self, memory: ClientMemory | None = None) -> None:
        self._memory = memory or ClientMemory()
        self._closed: dict[str, int] = dict.fromkeys((IDLE, LIMIT, MEMORY), 0)
        self.connections = 0
        self.connections_accepted = 0
        self._request_times: dict[str, Timings] = {}

    @property
    def request_times(self) -> Mapping[str, Timings]:
        return self._request_times

    def accepted(self) -> None:
        """One more connection."""
        self.connections += 1
        self.connections_accepted += 1

    def closed(self) -> None:
        """One connection less."""
        self.connections -= 1

    def closed_for(self, reason: str) -> None:
        """The broker closes one: IDLE, LIMIT or MEMORY."""
        self._closed[reason] += 1

    def served(self, api: str, seconds: float) -> None:
        """A request was answered, or refused."""
        timings = self._request_times.get(api)
        if timings is None:
            timings = self._request_times[api] = Timings()
        timings.observe(seconds)

    def samples(self) -> Iterator[Sample]:
        yield Sample(CONNECTIONS, self.connections)
        yield Sample(CONNECTIONS_ACCEPTED, self.connections_accepted)
        for reason, count in self._closed.items():
            yield Sample(CONNECTIONS_CLOSED, count, (reason,))
        requests, responses = self._memory.requests, self._memory.responses
        yield Sample(REQUEST_BYTES, requests.held_bytes)
        yield Sample(RESPONSE_BYTES, responses.held_bytes + self._memory.ranges.held_bytes)
        yield Sample(MEMORY_WAITS, requests.waits + responses.waits)
        for api, timings in tuple(self._request_times.items()):
            yield Sample(REQUEST_TIMES, timings.distribution, (api,))
