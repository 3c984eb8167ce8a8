"""Positions in partitions: at an offset, at a time, or relative to an edge of the log or to now.

They are written as in Spark's Kafka source (``earliest``, ``latest``, 23, -1 for latest, -2 for
earliest), or relative: ``latest-100`` is a hundred offsets before the end, ``earliest+50`` is fifty
after the start, and ``-10m`` is the first record of the last ten minutes. Relative positions never
leave the log: in a partition with 30 records, ``latest-100`` is the start.

A bound of a range is one position for all partitions, or one for each. Three options can describe
each side of a range. If several are given, the order of Spark's Kafka source decides:
``startingTimestamp`` before ``startingOffsetsByTimestamp`` before ``startingOffsets``, and the same
for the ending.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from quorate.common.durations import parse_duration_ms
from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import OptionError
from quorate.spark.offset_ranges import EARLIEST, LATEST
from quorate.spark.options.option_declaration import OptionKind, option_kind

POSITION_SAYS = "earliest, latest, relative (latest-100, earliest+50, -10m)"
TIME_SAYS = "ms since 1970, or ISO 8601 with a zone (2026-01-31T12:00:00Z)"

_EDGES = {"earliest": EARLIEST, "latest": LATEST}
_FROM_EDGE = re.compile(r"(?:(earliest)(?: *\+ *(\d+))?|(latest)(?: *- *(\d+))?)", re.ASCII | re.I)


@dataclass(frozen=True, slots=True)
class FromEdge:
    """The position a number of offsets after the earliest offset, or before the latest one."""

    edge: int
    """`EARLIEST` or `LATEST`."""
    distance: int = 0

    def __str__(self) -> str:
        name, sign = ("earliest", "+") if self.edge == EARLIEST else ("latest", "-")
        return f"{name}{sign}{self.distance}" if self.distance else name


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The position at a given offset."""

    offset: int

    def __str__(self) -> str:
        return str(self.offset)


@dataclass(frozen=True, slots=True)
class AtTime:
    """The position of the first record at or after a time."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class BeforeNow:
    """The position of the first record that has at most a given age when the query is planned."""

    age_ms: int


Position = FromEdge | AtOffset | AtTime | BeforeNow


def parse_position(text: str) -> Position:
    """Parse a position such as ``earliest``, ``latest-100`` or ``-10m``.

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
"""A position in the metadata log, which has no partitions and no index of times."""


def _parse_log_position(text: str) -> LogPosition:
    if text.isascii() and text.isdecimal():
        return AtOffset(int(text))
    position = parse_position(text)
    if not isinstance(position, FromEdge):
        raise ValueError(text)
    return position


LOG_POSITION = option_kind(
    "a metadata offset, earliest, latest, or relative (latest-100, earliest+50)",
    _parse_log_position,
)


def is_relative(position: Position) -> bool:
    """Return True if the number of offsets behind the position depends on the log or the time."""
    return isinstance(position, BeforeNow) or (
        isinstance(position, FromEdge) and position.distance > 0
    )


def position_of_number(offset: int) -> Position:
    """Return the position of a number in JSON: -1 is the latest offset, -2 the earliest.

    Raises:
        ValueError: another negative number.
    """
    if offset in (EARLIEST, LATEST):
        return FromEdge(offset)
    if offset < 0:
        raise ValueError(offset)
    return AtOffset(offset)


def parse_time_ms(text: str) -> int:
    """Parse a time such as ``1700000000000`` or ``2026-01-31T12:00:00Z``.

    Raises:
        ValueError: anything else. A time without a zone is refused, too, because it would be
            another moment on every machine.
    """
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return int(text)
    time = datetime.fromisoformat(text)
    if time.tzinfo is None or time.timestamp() < 0:
        raise ValueError(text)
    return round(time.timestamp() * 1000)


Side = Literal["starting", "ending"]

_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":"latest-100"}}'
_TIMES_EXAMPLE = '{"topicA":{"0":1700000000000}}'


@dataclass(frozen=True, slots=True)
class Everywhere:
    """A bound with the same position in all partitions, whichever there are."""

    position: Position

    @property
    def partitions(self) -> None:
        return None

    @property
    def positions(self) -> tuple[Position, ...]:
        return (self.position,)

    def at(self, partition: TopicPartition) -> Position:
        return self.position


@dataclass(frozen=True, slots=True)
class ByPartition:
    """A bound with a position for each partition. It must name exactly those that are read."""

    by_partition: Mapping[TopicPartition, Position]

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.by_partition)

    @property
    def positions(self) -> tuple[Position, ...]:
        return tuple(self.by_partition.values())

    def at(self, partition: TopicPartition) -> Position:
        return self.by_partition[partition]


OffsetBound = Everywhere | ByPartition


def json_object(name: str, text: str, example: str) -> dict[str, object]:
    """Return the JSON object in an option's value.

    Raises:
        OptionError: the value is no JSON object; the message shows an example.
    """
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise OptionError(
            f"option {name} is no JSON ({error}): {text!r}; as in {example}"
        ) from None
    if not isinstance(parsed, dict):
        raise OptionError(f"option {name} is no JSON object: {text!r}; write it as {example}")
    return parsed


def _parse_offsets(name: str, text: str) -> OffsetBound:
    if text.lstrip().startswith("{"):
        return _by_partition(name, text, _OFFSETS_EXAMPLE, "offset", _position_in_json)
    try:
        return Everywhere(parse_position(text))
    except ValueError:
        raise OptionError(
            f"option {name} is {text!r}: it must be {POSITION_SAYS} or JSON like {_OFFSETS_EXAMPLE}"
        ) from None


def _parse_times(name: str, text: str) -> OffsetBound:
    return _by_partition(name, text, _TIMES_EXAMPLE, "time", _time_in_json)


OFFSETS = OptionKind(
    f"{POSITION_SAYS}, or JSON {_OFFSETS_EXAMPLE} (-2 earliest, -1 latest)", _parse_offsets
)
TIMES = OptionKind(f"JSON {_TIMES_EXAMPLE}; times as in startingTimestamp", _parse_times)
TIME = option_kind(TIME_SAYS, lambda text: Everywhere(AtTime(parse_time_ms(text))))


def _position_in_json(value: int | str) -> Position:
    return position_of_number(value) if isinstance(value, int) else parse_position(value)


def _time_in_json(value: int | str) -> Position:
    return AtTime(parse_time_ms(str(value)))


def _by_partition(
    name: str, text: str, example: str, noun: str, position_of: Callable[[int | str], Position]
) -> ByPartition:
    """Parse JSON such as ``{"topicA":{"0":23,"1":"latest-100"}}``."""
    positions: dict[TopicPartition, Position] = {}
    for topic, by_partition in json_object(name, text, example).items():
        if not isinstance(by_partition, dict):
            raise OptionError(f"option {name}: {topic!r} needs partitions, as in {example}")
        for number, value in by_partition.items():
            partition = TopicPartition(topic, _partition_number(name, topic, number))
            try:
                if isinstance(value, bool) or not isinstance(value, int | str):
                    raise ValueError
                positions[partition] = position_of(value)
            except ValueError:
                raise OptionError(
                    f"option {name}: {value!r} for {partition} is no {noun}; as in {example}"
                ) from None
    if not positions:
        raise OptionError(f"option {name} names no partition: {text!r}; write it as {example}")
    return ByPartition(positions)


def _partition_number(name: str, topic: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise OptionError(f"option {name}: {text!r} of topic {topic!r} is no partition number")
    return int(text)
