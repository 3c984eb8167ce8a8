"""Where a range starts and ends, as the options say it: by edge, by offset or by time.

One side of the range is described by at most one of three options; where several are given, the
order of Spark's Kafka source decides: ``startingTimestamp`` before ``startingOffsetsByTimestamp``
before ``startingOffsets``, the same for the ending.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from quorate.spark.errors import OptionError
from quorate.spark.ranges import EARLIEST, LATEST, TopicPartition

Side = Literal["starting", "ending"]
PartitionValues = Mapping[TopicPartition, int]

STRATEGIES = ("error", "latest")


@dataclass(frozen=True, slots=True)
class AtEdge:
    """The earliest or the latest offset of every partition."""

    offset: int
    """`EARLIEST` or `LATEST`."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; `EARLIEST` and `LATEST` stand for the edges."""

    offsets: PartitionValues


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first offset whose record is at or after a time: one time for all, or one for each."""

    everywhere_ms: int | None = None
    timestamps_ms: PartitionValues | None = None
    absent_is_latest: bool = True
    """No such record: take the latest offset; else fail."""


OffsetBound = AtEdge | AtOffsets | AtTimestamp


def parse_bound(side: Side, option: Callable[[str], str | None]) -> OffsetBound:
    """One side of the range from the options; ``option(name)`` gives a value or None.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    absent_is_latest = side == "ending" or _strategy(option) == "latest"
    name = f"{side}Timestamp"
    if (text := option(name)) is not None:
        return AtTimestamp(everywhere_ms=_timestamp(name, text), absent_is_latest=absent_is_latest)
    name = f"{side}OffsetsByTimestamp"
    if (text := option(name)) is not None:
        timestamps_ms = parse_partition_values(name, text, '{"topicA":{"0":1700000000000}}')
        _refuse_negative(name, timestamps_ms)
        return AtTimestamp(timestamps_ms=timestamps_ms, absent_is_latest=absent_is_latest)
    name = f"{side}Offsets"
    return _parse_offsets(side, name, option(name))


def partitions_of(bound: OffsetBound) -> frozenset[TopicPartition] | None:
    """The partitions that a bound names one by one; None if it holds for whichever there are."""
    if isinstance(bound, AtOffsets):
        return frozenset(bound.offsets)
    if isinstance(bound, AtTimestamp) and bound.timestamps_ms is not None:
        return frozenset(bound.timestamps_ms)
    return None


def parse_partition_values(name: str, text: str, example: str) -> dict[TopicPartition, int]:
    """``{"topicA":{"0":23,"1":-1}}`` as one number for each partition."""
    values: dict[TopicPartition, int] = {}
    for topic, by_partition in json_object(name, text, example).items():
        if not isinstance(by_partition, dict):
            raise OptionError(f"option {name}: {topic!r} needs partitions, as in {example}")
        for partition_text, value in by_partition.items():
            partition = TopicPartition(topic, _partition_number(name, topic, partition_text))
            if isinstance(value, bool) or not isinstance(value, int):
                raise OptionError(f"option {name}: {value!r} for {partition} is no whole number")
            values[partition] = value
    if not values:
        raise OptionError(f"option {name} names no partition: {text!r}; write it as {example}")
    return values


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


def _parse_offsets(side: Side, name: str, text: str | None) -> AtEdge | AtOffsets:
    own_edge, other_edge = (EARLIEST, LATEST) if side == "starting" else (LATEST, EARLIEST)
    edges = {"earliest": EARLIEST, "latest": LATEST}
    if text is None:
        return AtEdge(own_edge)
    if (edge := edges.get(text.strip().lower())) is not None:
        if edge == other_edge:
            raise OptionError(f"option {name} is {text!r}: a batch query would read nothing")
        return AtEdge(edge)
    if not text.lstrip().startswith("{"):
        own_name = "earliest" if side == "starting" else "latest"
        raise OptionError(
            f"option {name} is {text!r}: it must be {own_name!r} or JSON like "
            '{"topicA":{"0":23,"1":42}}'
        )
    offsets = parse_partition_values(name, text, '{"topicA":{"0":23,"1":42}}')
    for partition, offset in offsets.items():
        if offset == other_edge:
            edge_name = "latest (-1)" if other_edge == LATEST else "earliest (-2)"
            raise OptionError(
                f"option {name}: {edge_name} for {partition}: a batch query would read nothing"
            )
        if offset < 0 and offset != own_edge:
            raise OptionError(f"option {name}: {offset} for {partition} is no offset")
    return AtOffsets(offsets)


def _strategy(option: Callable[[str], str | None]) -> str:
    name = "startingOffsetsByTimestampStrategy"
    strategy = (option(name) or "error").lower()
    if strategy not in STRATEGIES:
        raise OptionError(
            f"option {name} is {strategy!r}: it must be one of {', '.join(STRATEGIES)}"
        )
    return strategy


def _timestamp(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise OptionError(f"option {name} is {text!r}: it must be ms since 1970, a whole number")
    return int(text)


def _refuse_negative(name: str, timestamps_ms: PartitionValues) -> None:
    for partition, timestamp_ms in timestamps_ms.items():
        if timestamp_ms < 0:
            raise OptionError(f"option {name}: {timestamp_ms} for {partition} is no time (ms)")


def _partition_number(name: str, topic: str, text: str) -> int:
    if not text.isdecimal():
        raise OptionError(f"option {name}: {text!r} of topic {topic!r} is no partition number")
    return int(text)
