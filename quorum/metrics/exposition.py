"""Samples in Prometheus' text format, with what the process itself uses beside them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as PrometheusFamily
from prometheus_client.registry import Collector

from quorum.metrics.family import BUCKETS_S, Distribution, Family, Kind, Sample

__all__ = ["CONTENT_TYPE", "exposition"]

_BOUNDS: Final = (*(f"{bound:g}" for bound in BUCKETS_S), "+Inf")


class _Samples(Collector):
    """What was told, as prometheus_client wants it: family by family."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_family: dict[Family, list[Sample]] = {}
        for sample in samples:
            self._by_family.setdefault(sample.family, []).append(sample)

    def collect(self) -> Iterator[PrometheusFamily]:
        for family, samples in self._by_family.items():
            yield _converted(family, samples)


def exposition(samples: Iterable[Sample]) -> bytes:
    """The text that a scrape gets. Takes a while for many samples: not for the event loop."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(samples))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _converted(family: Family, samples: Sequence[Sample]) -> PrometheusFamily:
    converted: GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
    if family.kind is Kind.HISTOGRAM:
        converted = HistogramMetricFamily(family.name, family.doc, labels=family.labels)
        for sample in samples:
            assert isinstance(sample.value, Distribution)
            converted.add_metric(sample.labels, _cumulative(sample.value), sample.value.sum)
        return converted
    of_kind = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    converted = of_kind(family.name, family.doc, labels=family.labels)
    for sample in samples:
        assert not isinstance(sample.value, Distribution)
        converted.add_metric(sample.labels, sample.value)
    return converted


def _cumulative(distribution: Distribution) -> list[tuple[str, float]]:
    """Prometheus counts what is at or below each bound."""
    buckets, below = [], 0
    for bound, count in zip(_BOUNDS, distribution.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return buckets
