"""Figures of those who come by the Kafka wire."""

from collections.abc import Iterator, Mapping
from typing import Final

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


class ClientFigures:
    """Counted by the listeners of one broker."""

    def __init__(self) -> None:
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

    def served(self, api: str, seconds: float) -> None:
        """A request was answered, or refused."""
        timings = self._request_times.get(api)
        if timings is None:
            timings = self._request_times[api] = Timings()
        timings.observe(seconds)

    def samples(self) -> Iterator[Sample]:
        yield Sample(CONNECTIONS, self.connections)
        yield Sample(CONNECTIONS_ACCEPTED, self.connections_accepted)
        for api, timings in tuple(self._request_times.items()):
            yield Sample(REQUEST_TIMES, timings.distribution, (api,))
