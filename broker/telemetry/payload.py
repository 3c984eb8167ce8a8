"""Decodes the metrics of a push: decompression and OTLP (KIP-714). This module is pure.

Clients send whatever they like, so all of it is bounded: the bytes that come out of decompression,
the points, and the lengths of names and attributes.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from quorate.broker.log.batches.codecs import UndecodableRecords, decompress
from quorate.broker.telemetry.subscriptions import ClientSubscription
from quorate_proto.v1.otlp_metrics_pb2 import (
    OtlpAnyValue,
    OtlpMetric,
    OtlpMetricsData,
    OtlpNumberDataPoint,
)

COMPRESSION_TYPES: Final = (4, 3, 1, 2)
"""Kafka's numbers of zstd, lz4, gzip and snappy, the best first. 0, no compression, goes always."""

POINTS_MAX: Final = 2_000
"""The most points of one push that are looked at. Clients have a few hundred."""

MESSAGES_MAX: Final = 10_000
"""The most metrics of one push, with scopes and resources."""

NAME_LENGTH_MAX: Final = 256
ATTRIBUTES_MAX: Final = 32
ATTRIBUTES_LENGTH_MAX: Final = 512

_DELTA: Final = 1


class InvalidPayload(ValueError):
    """A push cannot be decompressed or decoded."""


class Point(NamedTuple):
    """One value of one metric. ``attributes`` are written as ``a=b,c=d``, sorted."""

    metric: str
    attributes: str
    value: float
    is_counter: bool
    """True if the value never falls. Otherwise it is the value now."""
    is_delta: bool
    """True if the value is what was added since the push before."""


class Decoded(NamedTuple):
    points: tuple[Point, ...]
    passed_over: int
    """The number of points with too long a name or attributes, or beyond ``POINTS_MAX``. What is
    not subscribed to is not counted.
    """


def decode(
    compression: int, payload: bytes, max_bytes: int, subscription: ClientSubscription
) -> Decoded:
    """Return the points of the metrics that the client is to push.

    Raises:
        InvalidPayload: damaged, or larger than ``max_bytes`` once it is decompressed.
    """
    try:
        data = OtlpMetricsData.FromString(decompress(compression, payload, max_bytes))
    except (UndecodableRecords, DecodeError) as error:
        raise InvalidPayload(str(error)) from error
    points: list[Point] = []
    looked_at = passed_over = 0
    for metric in _metrics(data):
        values = metric.sum.data_points or metric.gauge.data_points
        if not subscription.has(metric.name):
            continue
        if len(metric.name) > NAME_LENGTH_MAX or looked_at + len(values) > POINTS_MAX:
            passed_over += len(values)
            continue
        looked_at += len(values)
        for value in values:
            attributes = _attributes(value)
            if attributes is None:
                passed_over += 1
            else:
                points.append(_point(metric, attributes, value))
    return Decoded(tuple(points), passed_over)


def _metrics(data: OtlpMetricsData) -> Iterator[OtlpMetric]:
    """Yield the metrics. Each message takes time, and an empty one is only two bytes long."""
    messages = _counted(0, len(data.resource_metrics))
    for resource in data.resource_metrics:
        messages = _counted(messages, len(resource.scope_metrics))
        for scope in resource.scope_metrics:
            messages = _counted(messages, len(scope.metrics))
            yield from scope.metrics


def _counted(messages: int, more: int) -> int:
    if messages + more > MESSAGES_MAX:
        raise InvalidPayload(f"it has more than {MESSAGES_MAX} metrics, scopes and resources")
    return messages + more


def _point(metric: OtlpMetric, attributes: str, value: OtlpNumberDataPoint) -> Point:
    return Point(
        metric=metric.name,
        attributes=attributes,
        value=float(value.as_int) if value.HasField("as_int") else value.as_double,
        is_counter=metric.sum.is_monotonic,
        is_delta=metric.sum.aggregation_temporality == _DELTA,
    )


def _attributes(value: OtlpNumberDataPoint) -> str | None:
    """Return the attributes as text, or None if there are too many or they are too long."""
    if len(value.attributes) > ATTRIBUTES_MAX:
        return None
    text = ",".join(sorted(f"{one.key}={_text(one.value)}" for one in value.attributes))
    return text if len(text) <= ATTRIBUTES_LENGTH_MAX else None


def _text(value: OtlpAnyValue) -> str:
    kind = value.WhichOneof("value")
    return "" if kind is None else str(getattr(value, kind))
