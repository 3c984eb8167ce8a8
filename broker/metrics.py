"""Metrics: figures that parts of a broker tell when they are asked; they cost nothing before."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class Metric(NamedTuple):
    """One figure, named as Kafka does: group ControllerMutation, name tokens, tag user=alice."""

    group: str
    name: str
    value: float
    tags: tuple[tuple[str, str], ...] = ()


class Metrics:
    """All figures of one broker."""

    def __init__(self) -> None:
        self._sources: list[Callable[[], Iterable[Metric]]] = []

    def add(self, source: Callable[[], Iterable[Metric]]) -> None:
        """Ask ``source`` from now on."""
        self._sources.append(source)

    def __iter__(self) -> Iterator[Metric]:
        for source in self._sources:
            yield from source()
