"""The options of batch and streaming queries, checked as a whole.

The checks are pure, and complete before any connection is opened. The result of `read_options_of`
can be planned; everything else has been refused with a message that names the option.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate.spark.errors import OptionError
from quorate.spark.offset_ranges import EARLIEST, LATEST
from quorate.spark.options.connection_options import ConnectionOptions, read_connection_options
from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.offset_positions import (
    AtOffset,
    ByPartition,
    Everywhere,
    FromEdge,
    OffsetBound,
)
from quorate.spark.options.option_declaration import Option, Scope
from quorate.spark.options.option_table import (
    ASSIGN,
    COMMIT_GROUP,
    COMMIT_GROUP_MAY_GO_BACK,
    ENDING_OFFSETS,
    ENDING_OFFSETS_BY_TIMESTAMP,
    ENDING_TIMESTAMP,
    FAIL_ON_DATA_LOSS,
    FRAME_TIMEOUT_MS,
    INCLUDE_HEADERS,
    MAX_OFFSETS_PER_TRIGGER,
    MAX_RECORDS_PER_PARTITION,
    MAX_TRIGGER_DELAY_MS,
    MIN_OFFSETS_PER_TRIGGER,
    MIN_PARTITIONS,
    STARTING_OFFSETS,
    STARTING_OFFSETS_BY_TIMESTAMP,
    STARTING_STRATEGY,
    STARTING_TIMESTAMP,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
)
from quorate.spark.options.topic_subscription import Subscription


@dataclass(frozen=True, slots=True)
class GroupCommits:
    """The consumer group to which the offsets of a query are committed."""

    group_id: str
    may_go_back: bool = False
    """True if an offset below the committed one may be committed."""


def read_group_commits(given: GivenOptions) -> GroupCommits | None:
    """Return the options of group commits, or None if no group is given.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    group_id = given[COMMIT_GROUP]
    if group_id is not None:
        return GroupCommits(group_id, given[COMMIT_GROUP_MAY_GO_BACK])
    if given.has(COMMIT_GROUP_MAY_GO_BACK):
        raise OptionError(
            f"option {COMMIT_GROUP_MAY_GO_BACK.name} is about a group: give {COMMIT_GROUP.name}, "
            "too"
        )
    return None


_FROM_EARLIEST = Everywhere(FromEdge(EARLIEST))
_FROM_LATEST = Everywhere(FromEdge(LATEST))
_SUBSCRIPTIONS = (SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The checked options of a batch query, and those of reading in a streaming query."""

    connection: ConnectionOptions
    subscription: Subscription
    starting: OffsetBound = _FROM_EARLIEST
    ending: OffsetBound = _FROM_LATEST
    absent_start_is_latest: bool = False
    """If no record is at or after the starting time: True starts at the latest offset, False fails
    the query."""
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    frame_timeout_ms: int = FRAME_TIMEOUT_MS.default
    """The time that one frame of a range may take before the read is started again."""
    commits: GroupCommits | None = None


def parse_read_options(options: Mapping[str, str], scope: Scope) -> ReadOptions:
    """Check the options of a batch or a streaming query.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    return read_options_of(GivenOptions(options, scope))


def read_options_of(given: GivenOptions) -> ReadOptions:
    """Check given options.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    parsed = ReadOptions(
        connection=read_connection_options(given),
        subscription=_subscription(given),
        starting=_starting(given),
        ending=_ending(given),
        absent_start_is_latest=given[STARTING_STRATEGY] == "latest",
        fail_on_data_loss=given[FAIL_ON_DATA_LOSS],
        include_headers=given[INCLUDE_HEADERS],
        min_partitions=given[MIN_PARTITIONS],
        max_records_per_partition=given[MAX_RECORDS_PER_PARTITION],
        frame_timeout_ms=given[FRAME_TIMEOUT_MS],
        commits=read_group_commits(given),
    )
    _refuse_unequal_sides(parsed.starting, parsed.ending)
    return parsed


def _subscription(given: GivenOptions) -> Subscription:
    found = [option for option in _SUBSCRIPTIONS if given.has(option)]
    subscription = given[found[0]] if len(found) == 1 else None
    if subscription is None:
        names = [option.name for option in found]
        told = f"{' and '.join(names)} are given" if names else "none is given"
        known = ", ".join(option.name for option in _SUBSCRIPTIONS)
        raise OptionError(f"exactly one of {known} is needed: {told}")
    return subscription


def _starting(given: GivenOptions) -> OffsetBound:
    for option in (STARTING_TIMESTAMP, STARTING_OFFSETS_BY_TIMESTAMP, STARTING_OFFSETS):
        if (bound := given[option]) is not None:
            if given.scope is Scope.BATCH:
                _refuse_edge(option, bound, LATEST)
            return bound
    return _FROM_EARLIEST if given.scope is Scope.BATCH else _FROM_LATEST


def _ending(given: GivenOptions) -> OffsetBound:
    for option in (ENDING_TIMESTAMP, ENDING_OFFSETS_BY_TIMESTAMP, ENDING_OFFSETS):
        if (bound := given[option]) is not None:
            _refuse_edge(option, bound, EARLIEST)
            return bound
    return _FROM_LATEST


def _refuse_edge(option: Option[OffsetBound | None], bound: OffsetBound, edge: int) -> None:
    """Refuse a start at the end of the log, or an end at its start: both are mistakes."""
    forbidden = FromEdge(edge)
    if forbidden not in bound.positions:
        return
    where = f"{forbidden} ({edge})"
    if isinstance(bound, ByPartition):
        where += f" for {next(p for p in sorted(bound.partitions) if bound.at(p) == forbidden)}"
    raise OptionError(f"option {option.name} is {where}: a batch query would read nothing")


def _refuse_unequal_sides(starting: OffsetBound, ending: OffsetBound) -> None:
    """Check what needs no cluster: both bounds name the same partitions, and start <= end."""
    if not (isinstance(starting, ByPartition) and isinstance(ending, ByPartition)):
        return
    if difference := sorted(starting.partitions ^ ending.partitions):
        raise OptionError(
            "starting and ending offsets must name the same partitions: only one side names "
            f"{', '.join(map(str, difference))}"
        )
    for partition in sorted(starting.partitions):
        start, end = starting.at(partition), ending.at(partition)
        if isinstance(start, AtOffset) and isinstance(end, AtOffset) and end.offset < start.offset:
            raise OptionError(
                f"endingOffsets {end} of {partition} is before startingOffsets {start}"
            )


@dataclass(frozen=True, slots=True)
class MicroBatchLimits:
    """The limits of a micro-batch, in offsets. None means no limit."""

    at_most: int | None = None
    at_least: int | None = None
    """A batch waits until there are so many offsets, but not longer than `delay_ms_max`."""
    delay_ms_max: int = 0


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The checked options of a streaming query."""

    reading: ReadOptions
    limits: MicroBatchLimits = MicroBatchLimits()


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Check the options of a streaming query.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    return stream_options_of(GivenOptions(options, Scope.STREAM))


def stream_options_of(given: GivenOptions) -> StreamOptions:
    """Check the given options of a streaming query.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    limits = MicroBatchLimits(
        at_most=given[MAX_OFFSETS_PER_TRIGGER],
        at_least=given[MIN_OFFSETS_PER_TRIGGER],
        delay_ms_max=given[MAX_TRIGGER_DELAY_MS],
    )
    at_most, at_least = limits.at_most, limits.at_least
    if at_most is not None and at_least is not None and at_most < at_least:
        raise OptionError(
            f"option {MIN_OFFSETS_PER_TRIGGER.name} is {at_least}, which is more than "
            f"{MAX_OFFSETS_PER_TRIGGER.name}, {at_most}"
        )
    return StreamOptions(read_options_of(given), limits)
