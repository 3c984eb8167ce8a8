"""A bounded memory of figures: one value per interval and series, for the last hour.

Pure. A series is named by its figure, and what it is about if that is not the broker: ``bytes_in``,
``bytes_in topic events``, ``lag group billing``.
"""

import math
from array import array
from collections.abc import Iterable, Iterator
from typing import Final

VALUES_MAX: Final = 360
"""The values of one series: an hour at one every 10 s."""

SERIES_MAX: Final = 4_000
"""The most series, 1.5 kB each. New ones beyond it are not kept until others are forgotten."""

TOP_MAX: Final = 20
"""The most series that ``largest`` returns."""

UNKNOWN: Final = math.nan
"""Stands where nothing was measured."""


def topic_series(figure: str, topic: str) -> str:
    """Return the name of a series about a topic."""
    return f"{figure} topic {topic}"


def group_series(figure: str, group: str) -> str:
    """Return the name of a series about a consumer group."""
    return f"{figure} group {group}"


def about(name: str) -> tuple[str, str, str]:
    """Return figure, kind and name of what a series is about. A broker's own has no kind."""
    figure, _, rest = name.partition(" ")
    kind, _, entity = rest.partition(" ")
    return figure, kind, entity


class FigureHistory:
    """The series of one broker. All of them have their values at the same times."""

    def __init__(self, values_max: int = VALUES_MAX, series_max: int = SERIES_MAX) -> None:
        self._values_max = values_max
        self._series_max = series_max
        self._series: dict[str, array[float]] = {}
        self._last_put: dict[str, int] = {}
        self._round = -1
        self.last_at_ms = 0
        """The wall clock of the newest values, or 0 before the first."""

    def __len__(self) -> int:
        return len(self._series)

    def begin(self, at_ms: int) -> None:
        """Begin the next interval. Series without a value for an hour are forgotten."""
        self._round += 1
        self.last_at_ms = at_ms
        place = self._round % self._values_max
        old = [name for name, last in self._last_put.items() if self._is_over(last)]
        for name in old:
            del self._series[name], self._last_put[name]
        for values in self._series.values():
            values[place] = UNKNOWN

    def put(self, name: str, value: float) -> None:
        """Set the value of a series in this interval."""
        values = self._series.get(name)
        if values is None:
            if len(self._series) >= self._series_max:
                return
            values = self._series[name] = array("f", [UNKNOWN]) * self._values_max
        values[self._round % self._values_max] = value
        self._last_put[name] = self._round

    def values(self, name: str) -> list[float]:
        """Return the values of a series, the oldest first; empty if there is no such series.

        Intervals before the first one are left out.
        """
        values = self._series.get(name)
        if values is None:
            return []
        kept = min(self._round + 1, self._values_max)
        first = self._round + 1 - kept
        return [values[number % self._values_max] for number in range(first, self._round + 1)]

    def last(self, name: str) -> float:
        """Return the newest value of a series, ``UNKNOWN`` if there is none."""
        values = self._series.get(name)
        return UNKNOWN if values is None else values[self._round % self._values_max]

    def largest(self, figure: str, kind: str, allowed: Iterable[str]) -> list[str]:
        """Return the series of a figure and kind with the largest values now, at most ``TOP_MAX``.

        ``allowed`` are the names from which to choose.
        """
        found = ((self.last(name), name) for name in allowed if about(name)[:2] == (figure, kind))
        known = [(value, name) for value, name in found if value > 0]
        return [name for _, name in sorted(known, reverse=True)[:TOP_MAX]]

    def names(self) -> Iterator[str]:
        """Return the names of all series."""
        return iter(tuple(self._series))

    def _is_over(self, last_round: int) -> bool:
        return last_round <= self._round - self._values_max
