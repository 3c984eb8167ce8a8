"""Where in a partition: at an offset, at a time, or relative to its edges or to now.

Written as Spark's Kafka source has it (``earliest``, ``latest``, 23, -1 latest, -2 earliest), and
relative: ``latest-100`` is a hundred offsets before the end, ``earliest+50`` fifty after the start,
``-10m`` the first record of the last ten minutes. Relative positions never leave the log: a
partition with 30 records has its ``latest-100`` at its start.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from quorate.durations import parse_duration_ms
from quorate.spark.options.declaration import kind_of
from quorate.spark.ranges import EARLIEST, LATEST

POSITION_SAYS = "earliest, latest, relative (latest-100, earliest+50, -10m)"
TIME_SAYS = "ms since 1970, or ISO 8601 with a zone (2026-01-31T12:00:00Z)"

_EDGES = {"earliest": EARLIEST, "latest": LATEST}
_FROM_EDGE = re.compile(r"(?:(earliest)(?: *\+ *(\d+))?|(latest)(?: *- *(\d+))?)", re.ASCII | re.I)


@dataclass(frozen=True, slots=True)
class FromEdge:
    """So many offsets after the earliest, or before the latest, offset."""

    edge: int
    """`EARLIEST` or `LATEST`."""
    distance: int = 0

    def __str__(self) -> str:
        name, sign = ("earliest", "+") if self.edge == EARLIEST else ("latest", "-")
        return f"{name}{sign}{self.distance}" if self.distance else name


@dataclass(frozen=True, slots=True)
class AtOffset:
    """An offset as it is."""

    offset: int

    def __str__(self) -> str:
        return str(self.offset)


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first offset whose record is at or after a time."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class BeforeNow:
    """The first offset whose record is at most so old when the query is planned."""

    age_ms: int


Position = FromEdge | AtOffset | AtTime | BeforeNow


def parse_position(text: str) -> Position:
    """``earliest``, ``latest-100``, ``-10m``.

    Raises:
        ValueError: anything else.
    """
    text = text.strip()
    if match := _FROM_EDGE.fullmatch(text):
        edge = match[1] or match[3]
        return FromEdge(_EDGES[edge.lower()], int(match[2] or match[4] or 0))
    if text.startswith("-") and not text[-1].isdecimal():
        return BeforeNow(parse_duration_ms(text[1:].strip()))
    raise ValueError(text)


LogPosition = AtOffset | FromEdge
"""Where in a log without partitions and without times of its own."""


def _parse_log_position(text: str) -> LogPosition:
    if text.isascii() and text.isdecimal():
        return AtOffset(int(text))
    position = parse_position(text)
    if not isinstance(position, FromEdge):
        raise ValueError(text)
    return position


LOG_POSITION = kind_of(
    "a metadata offset, earliest, latest, or relative (latest-100, earliest+50)",
    _parse_log_position,
)


def is_relative(position: Position) -> bool:
    """Whether it depends on how long the log is, or how late it is, how much lies behind it."""
    return isinstance(position, BeforeNow) or (
        isinstance(position, FromEdge) and position.distance > 0
    )


def position_of_number(offset: int) -> Position:
    """An offset as JSON has it: -1 is the latest, -2 the earliest.

    Raises:
        ValueError: another negative number.
    """
    if offset in (EARLIEST, LATEST):
        return FromEdge(offset)
    if offset < 0:
        raise ValueError(offset)
    return AtOffset(offset)


def parse_time_ms(text: str) -> int:
    """``1700000000000`` or ``2026-01-31T12:00:00Z``.

    Raises:
        ValueError: anything else; a time without a zone too, which means another moment to each.
    """
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return int(text)
    time = datetime.fromisoformat(text)
    if time.tzinfo is None or time.timestamp() < 0:
        raise ValueError(text)
    return round(time.timestamp() * 1000)
