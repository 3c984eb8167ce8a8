"""Metrics of clients that use the Kafka protocol."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, Protocol

from quorate.broker.quota.client_memory import ClientMemory
from quorate.broker.quota.connection_rates import ConnectionRates, unlimited_rates
from quorate.common.metrics.family import Family, MetricKind, Sample, Timings

REQUEST_TIMES: Final = Family(
    "quorate_request_seconds",
    MetricKind.HISTOGRAM,
    "RequestMetrics",
    "TotalTimeMs",
    "From a request's start to its answer, with what it waited for (Fetch: data, Produce: acks).",
    ("request",),
)
CONNECTIONS: Final = Family(
    "quorate_connections",
    MetricKind.GAUGE,
    "socket-server-metrics",
    "connection-count",
    "Open connections of Kafka clients.",
)
CONNECTIONS_ACCEPTED: Final = Family(
    "quorate_connections_accepted_total",
    MetricKind.COUNTER,
    "socket-server-metrics",
    "connection-creation-total",
    "Connections of Kafka clients that were accepted.",
)
CONNECTIONS_CLOSED: Final = Family(
    "quorate_connections_closed_total",
    MetricKind.COUNTER,
    "socket-server-metrics",
    "connection-close-total",
    "Connections of Kafka clients that the broker closed: idle for connections.max.idle.ms, over "
    "the limit of connections, or keeping memory that others waited for.",
    ("reason",),
)
CONNECTIONS_THROTTLED: Final = Family(
    "quorate_connections_throttled_total",
    MetricKind.COUNTER,
    "socket-server-metrics",
    "connection-accept-throttle-count",
    "Connections of Kafka clients that waited or were closed because they came too fast: for "
    "max.connection.creation.rate (broker) or the quota of their address (ip).",
    ("limit",),
)
CONNECTIONS_WAITING: Final = Family(
    "quorate_connections_waiting",
    MetricKind.GAUGE,
    "socket-server-metrics",
    "throttled-connection-count",
    "Connections of Kafka clients that are accepted and wait because they came too fast.",
)
LOGINS_WAITING: Final = Family(
    "quorate_logins_waiting",
    MetricKind.GAUGE,
    "socket-server-metrics",
    "login-queue-size",
    "Logins of all listeners whose passwords wait to be hashed.",
)
LOGINS_REFUSED: Final = Family(
    "quorate_logins_refused_total",
    MetricKind.COUNTER,
    "socket-server-metrics",
    "login-refused-total",
    "Logins that were turned away because too many of their address, or of all, waited.",
)
REQUEST_BYTES: Final = Family(
    "quorate_request_memory_bytes",
    MetricKind.GAUGE,
    "SocketServer",
    "MemoryPoolUsed",
    "Memory held by requests of Kafka clients; bounded by queued.max.request.bytes.",
)
RESPONSE_BYTES: Final = Family(
    "quorate_response_memory_bytes",
    MetricKind.GAUGE,
    "SocketServer",
    "ResponseMemoryUsed",
    "Memory held by answers to clients: to Kafka's and to readers of ranges, each bounded by "
    "queued.max.response.bytes.",
)
MEMORY_WAITS: Final = Family(
    "quorate_memory_waits_total",
    MetricKind.COUNTER,
    "SocketServer",
    "MemoryPoolDepletedCount",
    "Times that a client had to wait, because requests or answers held all their memory.",
)
IDLE: Final = "idle"
LIMIT: Final = "limit"
MEMORY: Final = "memory"


class Logins(Protocol):
    """The logins of one listener; ``security.login_queue.LoginQueue`` implements it."""

    refused: int

    @property
    def waiting(self) -> int: ...


class ClientFigures:
    """Counters of the listeners of one broker."""

    def __init__(
        self, memory: ClientMemory | None = None, rates: ConnectionRates | None = None
    ) -> None:
        self._memory = memory or ClientMemory()
        self._rates = rates or unlimited_rates()
        self._closed: dict[str, int] = dict.fromkeys((IDLE, LIMIT, MEMORY), 0)
        self.logins: list[Logins] = []
        """The logins of each listener that hashes passwords."""
        self.connections = 0
        self.connections_accepted = 0
        self.request_times: defaultdict[str, Timings] = defaultdict(Timings)
        """The times of requests that were answered or refused, by the name of their API."""

    def accepted(self) -> None:
        """Count a connection that was opened."""
        self.connections += 1
        self.connections_accepted += 1

    def closed(self) -> None:
        """Count a connection that was closed."""
        self.connections -= 1

    def closed_for(self, reason: str) -> None:
        """Count a connection that the broker closes for IDLE, LIMIT or MEMORY."""
        self._closed[reason] += 1

    def samples(self) -> Iterator[Sample]:
        yield Sample(CONNECTIONS, self.connections)
        yield Sample(CONNECTIONS_ACCEPTED, self.connections_accepted)
        for reason, count in self._closed.items():
            yield Sample(CONNECTIONS_CLOSED, count, (reason,))
        for limit, count in self._rates.throttled.items():
            yield Sample(CONNECTIONS_THROTTLED, count, (limit,))
        yield Sample(CONNECTIONS_WAITING, self._rates.waiting)
        yield Sample(LOGINS_WAITING, sum(one.waiting for one in self.logins))
        yield Sample(LOGINS_REFUSED, sum(one.refused for one in self.logins))
        requests, responses = self._memory.requests, self._memory.responses
        yield Sample(REQUEST_BYTES, requests.held_bytes)
        yield Sample(RESPONSE_BYTES, responses.held_bytes + self._memory.ranges.held_bytes)
        yield Sample(MEMORY_WAITS, requests.waits + responses.waits)
        for api, timings in tuple(self.request_times.items()):
            yield Sample(REQUEST_TIMES, timings.distribution, (api,))
