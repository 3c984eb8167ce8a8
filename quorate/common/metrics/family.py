"""Metric families, and the metrics of one process.

A family is declared once, with its meaning and Kafka's name for it. The parts of a process keep
plain numbers and report them when they are asked: between two scrapes a metric costs nothing,
except for the few that count as they go (`Counter`, `Timings`).
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import add
from typing import Final, NamedTuple

BUCKETS_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""The upper bounds of a distribution's buckets, in seconds; the last bucket has none."""


class MetricKind(StrEnum):
    """The type of a metric: how its values behave."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """It only grows, and begins at 0 with the process; its name ends in ``_total``."""
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics of one meaning, told apart by labels.

    ``name`` is for Prometheus, with the unit last. ``group`` and ``kafka_name`` are type and name
    of Kafka's MBean with the same meaning; where Kafka has none, they are names of ours.
    """

    name: str
    kind: MetricKind
    group: str
    kafka_name: str
    doc: str
    labels: tuple[str, ...] = ()


class Distribution(NamedTuple):
    """The number of values in each bucket (one more than `BUCKETS_S`), and the sum of the
    values."""

    counts: tuple[int, ...]
    sum: float


class Sample(NamedTuple):
    """One value; ``labels`` are in the order of its family's."""

    family: Family
    value: float | Distribution
    labels: tuple[str, ...] = ()


class Timings:
    """A distribution of seconds that is still being counted."""

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BUCKETS_S, seconds)] += 1
        self._sum += seconds

    @property
    def distribution(self) -> Distribution:
        return Distribution(tuple(self._counts), self._sum)


def total(parts: Iterable[Distribution]) -> Distribution:
    """Return the distribution of all that was counted in ``parts``, at least one."""
    first, *others = parts
    for one in others:
        counts = tuple(map(add, first.counts, one.counts))
        first = Distribution(counts, first.sum + one.sum)
    return first


SAMPLES_AT_ONCE: Final = 1_000

Source = Callable[[], Iterable[Sample]]


class Metrics:
    """All metrics of one process."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        """Ask ``source`` at each scrape from now on."""
        self._sources.append(source)

    def __iter__(self) -> Iterator[Sample]:
        for source in self._sources:
            yield from source()

    async def gathered(self) -> list[Sample]:
        """Return all samples. Other tasks run in between, since there may be 100,000 samples."""
        samples = []
        for sample in self:
            samples.append(sample)
            if not len(samples) % SAMPLES_AT_ONCE:
                await asyncio.sleep(0)
        return samples
