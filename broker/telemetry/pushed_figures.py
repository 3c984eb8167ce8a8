"""The metrics that clients pushed, as Prometheus sees them, in bounded numbers (KIP-714).

The first clients have labels of their own. Those beyond a limit share the labels ``overflow``:
their counters are added up, and their other values, which would have no meaning together, are
passed over.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quorate.broker.telemetry.client_instances import ClientInstance
from quorate.broker.telemetry.payload import Decoded, Point
from quorate.common.metrics.family import Family, MetricKind, Sample

INSTANCES_SHOWN_MAX: Final = 200
"""The most clients with labels of their own. Others get their place when they are forgotten."""

SERIES_MAX: Final = 250
"""The most series of one client, and of all those that overflow."""

LABEL_LENGTH_MAX: Final = 256

OVERFLOW: Final = "overflow"

_LABELS: Final = ("metric", "client_id", "client_instance_id", "attributes")

PUSHED_VALUES: Final = Family(
    "quorate_client_telemetry_value",
    MetricKind.GAUGE,
    "client-telemetry",
    "pushed-value",
    "Values that clients pushed last (KIP-714), by the name that the client gives the metric.",
    _LABELS,
)
PUSHED_COUNTERS: Final = Family(
    "quorate_client_telemetry_total",
    MetricKind.COUNTER,
    "client-telemetry",
    "pushed-counter",
    "Counters of clients (KIP-714), added up over their pushes to this broker.",
    _LABELS,
)
POINTS_PASSED_OVER: Final = Family(
    "quorate_client_telemetry_points_passed_over_total",
    MetricKind.COUNTER,
    "client-telemetry",
    "points-passed-over",
    "Pushed values that are not shown: too many or too long, or of clients beyond the first 200.",
)


class Labels(NamedTuple):
    """The labels of one client."""

    client_id: str
    instance_id: str


_OVERFLOW_LABELS: Final = Labels(OVERFLOW, OVERFLOW)


@dataclass(slots=True)
class ClientSeries:
    """The series of one client, by metric and attributes."""

    labels: Labels
    expires_ms: int = 0
    values: dict[tuple[str, str], float] = field(default_factory=dict)
    counters: dict[tuple[str, str], float] = field(default_factory=dict)

    def take(self, point: Point) -> bool:
        """Take a value over, and return whether there was room for it."""
        series = self.counters if point.is_counter else self.values
        key = (point.metric, point.attributes)
        if key not in series and len(self.counters) + len(self.values) >= SERIES_MAX:
            return False
        if point.is_delta:
            series[key] = series.get(key, 0.0) + point.value
        else:
            series[key] = point.value
        return True

    def samples(self) -> Iterator[Sample]:
        for family, series in ((PUSHED_VALUES, self.values), (PUSHED_COUNTERS, self.counters)):
            for (metric, attributes), value in series.items():
                yield Sample(family, value, (metric, *self.labels, attributes))


class PushedFigures:
    """What the clients of one broker pushed."""

    def __init__(self, instances_shown_max: int = INSTANCES_SHOWN_MAX) -> None:
        self._instances_shown_max = instances_shown_max
        self._series: dict[uuid.UUID, ClientSeries] = {}
        self._overflow = ClientSeries(_OVERFLOW_LABELS)
        self.passed_over = 0

    def take(self, instance: ClientInstance, decoded: Decoded) -> None:
        """Take over what a client has pushed. It is shown until the instance expires."""
        self.passed_over += decoded.passed_over
        series = self._series.get(instance.instance_id)
        if series is None and len(self._series) < self._instances_shown_max:
            series = ClientSeries(Labels(instance.client_id[:LABEL_LENGTH_MAX], instance.label))
            self._series[instance.instance_id] = series
        if series is None:
            self._take_overflow(decoded)
            return
        series.expires_ms = instance.expires_ms
        for point in decoded.points:
            if not series.take(point):
                self.passed_over += 1

    def forget_expired(self, now_ms: int) -> None:
        """Forget clients that have pushed nothing for long: their values are no longer true."""
        expired = [one for one, known in self._series.items() if known.expires_ms <= now_ms]
        for instance_id in expired:
            del self._series[instance_id]

    def samples(self) -> Iterator[Sample]:
        for series in (*self._series.values(), self._overflow):
            yield from series.samples()
        yield Sample(POINTS_PASSED_OVER, self.passed_over)

    def _take_overflow(self, decoded: Decoded) -> None:
        for point in decoded.points:
            added = point.is_counter and point.is_delta
            if not added or not self._overflow.take(point._replace(attributes="")):
                self.passed_over += 1
