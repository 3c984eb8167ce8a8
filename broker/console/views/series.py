"""Series of figures as a chart shows them. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from quorate.common.types import BrokerId

POINTS_MAX: Final = 120
"""The points of a line: with more, a browser only draws what nobody sees."""


class Line(NamedTuple):
    """One line of a chart. NaN stands where nothing was measured."""

    label: str
    values: Sequence[float]


def thinned(values: Sequence[float], points_max: int = POINTS_MAX) -> list[float]:
    """Return at most ``points_max`` values: the largest of each stretch, so no peak is lost."""
    if len(values) <= points_max:
        return list(values)
    step = math.ceil(len(values) / points_max)
    begin = len(values) % step  # So that the newest stretch is whole.
    first = [values[:begin]] if begin else []
    stretches = [*first, *(values[at : at + step] for at in range(begin, len(values), step))]
    return [max(known) if (known := _known(one)) else math.nan for one in stretches]


def added(series: Sequence[Sequence[float]]) -> list[float]:
    """Return the sum of series that end at the same time; the shorter ones began later.

    Where none has a value, there is none.
    """
    length = max(map(len, series), default=0)
    padded = [[math.nan] * (length - len(one)) + list(one) for one in series]
    return [
        math.fsum(known) if (known := _known(column)) else math.nan
        for column in zip(*padded, strict=True)
    ]


def last(values: Sequence[float]) -> float | None:
    """Return the newest value that is known among the last three, or None."""
    return next((value for value in reversed(values[-3:]) if not math.isnan(value)), None)


def total_now(by_broker: Mapping[BrokerId, Sequence[float]]) -> float | None:
    """Return the sum of the newest values, or None if there is none."""
    known = [value for values in by_broker.values() if (value := last(values)) is not None]
    return math.fsum(known) if known else None


def is_growing(values: Sequence[float], least: float, since: int = 60) -> bool:
    """Return whether a figure is ``least`` at least, and higher than ``since`` values ago by a
    tenth.
    """
    known = _known(values[-since:])
    return len(known) > 3 and known[-1] >= least and known[-1] > 1.1 * known[0]


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]
