"""Where a range starts or ends: one position for all partitions, or one for each.

One side of the range is described by at most one of three options; where several are given, the
order of Spark's Kafka source decides: ``startingTimestamp`` before ``startingOffsetsByTimestamp``
before ``startingOffsets``, the same for the ending.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from quorate.spark.errors import OptionError
from quorate.spark.options.declaration import Kind, kind_of
from quorate.spark.options.positions import (
    POSITION_SAYS,
    TIME_SAYS,
    AtTime,
    Position,
    parse_position,
    parse_time_ms,
    position_of_number,
)
from quorate.spark.ranges import TopicPartition

Side = Literal["starting", "ending"]

_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":"latest-100"}}'
_TIMES_EXAMPLE = '{"topicA":{"0":1700000000000}}'


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same position in whichever partitions there are."""

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
    """A position for each partition: exactly those that are read."""

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
    """The JSON object in an option's value."""
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


OFFSETS = Kind(
    f"{POSITION_SAYS}, or JSON {_OFFSETS_EXAMPLE} (-2 earliest, -1 latest)", _parse_offsets
)
TIMES = Kind(f"JSON {_TIMES_EXAMPLE}; times as in startingTimestamp", _parse_times)
TIME = kind_of(TIME_SAYS, lambda text: Everywhere(AtTime(parse_time_ms(text))))


def _position_in_json(value: int | str) -> Position:
    return position_of_number(value) if isinstance(value, int) else parse_position(value)


def _time_in_json(value: int | str) -> Position:
    return AtTime(parse_time_ms(str(value)))


def _by_partition(
    name: str, text: str, example: str, noun: str, position_of: Callable[[int | str], Position]
) -> ByPartition:
    """``{"topicA":{"0":23,"1":"latest-100"}}`` as one position for each partition."""
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
