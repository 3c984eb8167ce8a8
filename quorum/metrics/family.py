"""What a figure is called, and the figures of one process.

A family is declared once, with its meaning and Kafka's name for it. The parts of a process keep
plain numbers and tell them when they are asked: between two looks a figure costs nothing, but for
the few that count as they go (`Counter`, `Timings`).
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

BUCKETS_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds of a distribution's buckets, in seconds; the last one has none."""


class Kind(StrEnum):
    """How a figure behaves."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """Only grows, and begins at 0 with the process; its name ends in ``_total``."""
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """Figures of one meaning, told apart by labels.

    ``name``: for Prometheus, unit last. ``group`` and ``kafka_name``: Kafka's type and name of what
    means the same, as its MBeans have them; those without one have names of ours there.
    """

    name: str
    kind: Kind
    group: str
    kafka_name: str
    doc: str
    labels: tuple[str, ...] = ()


class Distribution(NamedTuple):
    """How often a value fell into each bucket (one more than `BUCKETS_S`), and the values' sum."""

    counts: tuple[int, ...]
    sum: float


class Sample(NamedTuple):
    """One figure; ``labels`` in the order of its family's."""

    family: Family
    value: float | Distribution
    labels: tuple[str, ...] = ()


class Timings:
    """A distribution in the making, of seconds."""

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


SAMPLES_AT_ONCE: Final = 1_000

Source = Callable[[], Iterable[Sample]]


class Metrics:
    """All figures of one process."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        """Ask ``source`` from now on."""
        self._sources.append(source)

    def __iter__(self) -> Iterator[Sample]:
        for source in self._sources:
            yield from source()

    async def gathered(self) -> list[Sample]:
        """All of them; others run in between, since there may be 100,000 of them."""
        samples = []
        for sample in self:
            samples.append(sample)
            if not len(samples) % SAMPLES_AT_ONCE:
                await asyncio.sleep(0)
        return samples
