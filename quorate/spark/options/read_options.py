"""What a query reads: the options of batch and streaming queries, checked as a whole.

Pure, and complete before anything is opened: what comes out of `read_options_of` either can be
planned or has been refused with a message that names the option and what it may be.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate.spark.errors import OptionError
from quorate.spark.options.connection import Connection, read_connection
from quorate.spark.options.declaration import Option, Scope
from quorate.spark.options.given import GivenOptions
from quorate.spark.options.group_commits import GroupCommits, read_group_commits
from quorate.spark.options.offset_bounds import ByPartition, Everywhere, OffsetBound
from quorate.spark.options.positions import AtOffset, FromEdge
from quorate.spark.options.subscription import Subscription
from quorate.spark.options.table import (
    ASSIGN,
    ENDING_OFFSETS,
    ENDING_OFFSETS_BY_TIMESTAMP,
    ENDING_TIMESTAMP,
    FAIL_ON_DATA_LOSS,
    FRAME_TIMEOUT_MS,
    INCLUDE_HEADERS,
    MAX_RECORDS_PER_PARTITION,
    MIN_PARTITIONS,
    STARTING_OFFSETS,
    STARTING_OFFSETS_BY_TIMESTAMP,
    STARTING_STRATEGY,
    STARTING_TIMESTAMP,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
)
from quorate.spark.ranges import EARLIEST, LATEST

_FROM_EARLIEST = Everywhere(FromEdge(EARLIEST))
_FROM_LATEST = Everywhere(FromEdge(LATEST))
_SUBSCRIPTIONS = (SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """A query's options, all checked."""

    connection: Connection
    subscription: Subscription
    starting: OffsetBound = _FROM_EARLIEST
    ending: OffsetBound = _FROM_LATEST
    absent_start_is_latest: bool = False
    """No record at or after the starting time: start at the latest offset; else fail."""
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    frame_timeout_ms: int = FRAME_TIMEOUT_MS.default
    """How long one frame of a range may take before the leader is asked again."""
    commits: GroupCommits | None = None


def parse_read_options(options: Mapping[str, str], scope: Scope) -> ReadOptions:
    """Check the options of a batch or a streaming query.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    return read_options_of(GivenOptions(options, scope))


def read_options_of(given: GivenOptions) -> ReadOptions:
    """
    Raises:
        OptionError: names the option, its value and what to do.
    """
    parsed = ReadOptions(
        connection=read_connection(given),
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
    """A start at the very end, or an end at the very start, is a mistake."""
    forbidden = FromEdge(edge)
    if forbidden not in bound.positions:
        return
    where = f"{forbidden} ({edge})"
    if isinstance(bound, ByPartition):
        where += f" for {next(p for p in sorted(bound.partitions) if bound.at(p) == forbidden)}"
    raise OptionError(f"option {option.name} is {where}: a batch query would read nothing")


def _refuse_unequal_sides(starting: OffsetBound, ending: OffsetBound) -> None:
    """What can be said without asking the cluster: equal partitions, and start <= end."""
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
