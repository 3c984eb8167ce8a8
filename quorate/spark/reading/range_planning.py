"""Plans the ranges of a query from its options and the answers of the cluster. It is pure.

The edges of every partition are asked for, whatever the options say. A range outside the log is
refused here, on the driver, with a message that names the partition and the available range, and
not in the middle of a job.
"""

import heapq
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import OptionError, RangeUnavailable, UnknownTopic
from quorate.spark.offset_ranges import DescribedTopic, OffsetRange
from quorate.spark.options.offset_positions import OffsetBound, Side, is_relative
from quorate.spark.options.read_options import ReadOptions
from quorate.spark.options.topic_subscription import Subscription
from quorate.spark.reading.offset_resolver import OffsetResolver

_logger = logging.getLogger(__name__)


def select_partitions(
    subscription: Subscription, topics: Mapping[str, DescribedTopic]
) -> list[TopicPartition]:
    """Return the partitions that a subscription means, sorted by topic and number.

    Raises:
        UnknownTopic: a topic or partition that the subscription names does not exist.
    """
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        chosen = [topic for topic in topics if pattern.fullmatch(topic)]
    elif subscription.partitions is not None:
        return _assigned_partitions(subscription.partitions, topics)
    else:
        _refuse_unknown_topics(subscription.topics, topics)
        chosen = list(subscription.topics)
    return [
        TopicPartition(topic, partition)
        for topic in sorted(chosen)
        for partition in range(topics[topic].partitions)
    ]


def check_partitions_named(partitions: Sequence[TopicPartition], options: ReadOptions) -> None:
    """Check that bounds by partition name exactly the partitions of the subscription.

    Raises:
        OptionError: names the option's side and the partitions.
    """
    sides: tuple[tuple[Side, OffsetBound], ...] = (
        ("starting", options.starting),
        ("ending", options.ending),
    )
    for side, bound in sides:
        named = bound.partitions
        if named is None:
            continue
        if missing := sorted(set(partitions) - named):
            raise OptionError(
                f"{side} offsets lack {', '.join(map(str, missing))}: name every partition that is "
                "subscribed to, -2 for its earliest and -1 for its latest offset, or use assign"
            )
        if extra := sorted(named - set(partitions)):
            raise OptionError(
                f"{side} offsets name {', '.join(map(str, extra))}, which is not subscribed to"
            )


def plan_ranges(
    partitions: Sequence[TopicPartition],
    topics: Mapping[str, DescribedTopic],
    options: ReadOptions,
    resolver: OffsetResolver,
) -> list[OffsetRange]:
    """Plan one range for each partition with something to read, and split it as the options say.

    Raises:
        RangeUnavailable: a range is not within the log (and failOnDataLoss is on).
        OptionError: a range would start after its end.
    """
    ranges = [
        _range_of(partition, topics[partition.topic].topic_id, options, resolver)
        for partition in partitions
    ]
    return split_ranges(
        [offsets for offsets in ranges if offsets.size > 0],
        min_ranges=options.min_partitions,
        max_size=options.max_records_per_partition,
    )


def split_ranges(
    ranges: Sequence[OffsetRange], *, min_ranges: int | None, max_size: int | None
) -> list[OffsetRange]:
    """Split ranges evenly until none is larger than ``max_size`` and there are ``min_ranges``.

    The range with the largest pieces is split further first, so that no task has much more to do
    than the others. The result has fewer than ``min_ranges`` only if there are fewer offsets.
    """
    pieces = [-(-offsets.size // max_size) if max_size else 1 for offsets in ranges]
    largest_first = [
        (-offsets.size / count, index)
        for index, (offsets, count) in enumerate(zip(ranges, pieces, strict=True))
    ]
    heapq.heapify(largest_first)
    missing = min(min_ranges or 0, sum(offsets.size for offsets in ranges)) - sum(pieces)
    for _ in range(missing):
        _, index = largest_first[0]
        pieces[index] += 1
        heapq.heapreplace(largest_first, (-ranges[index].size / pieces[index], index))
    return [
        piece
        for offsets, count in zip(ranges, pieces, strict=True)
        for piece in _split(offsets, count)
    ]


def spread_over_leaders(
    ranges: Sequence[OffsetRange], leader_of: Callable[[TopicPartition], str | None]
) -> list[OffsetRange]:
    """Order ranges so that neighbours have different leaders; the largest of each leader first.

    Spark starts tasks in this order. So tasks that run at the same time ask different brokers, and
    the task that takes longest is not the last to start.
    """
    by_leader: dict[str | None, list[OffsetRange]] = {}
    for offsets in sorted(ranges, key=lambda offsets: -offsets.size):
        by_leader.setdefault(leader_of(offsets.topic_partition), []).append(offsets)
    turns = itertools.zip_longest(*by_leader.values())
    return [offsets for turn in turns for offsets in turn if offsets is not None]


def _split(offsets: OffsetRange, pieces: int) -> Iterable[OffsetRange]:
    edges = [offsets.start + offsets.size * piece // pieces for piece in range(pieces + 1)]
    for start, end in itertools.pairwise(edges):
        yield OffsetRange(offsets.topic_partition, start, end, offsets.topic_id)


def _range_of(
    partition: TopicPartition, topic_id: bytes, options: ReadOptions, resolver: OffsetResolver
) -> OffsetRange:
    first, behind_last = resolver.edges(partition)
    starting, ending = options.starting.at(partition), options.ending.at(partition)
    start = resolver.resolve(starting, partition, absent_is_latest=options.absent_start_is_latest)
    end = resolver.resolve(ending, partition, absent_is_latest=True)
    if not (first <= start <= behind_last and first <= end <= behind_last):
        if options.fail_on_data_loss:
            raise RangeUnavailable(
                f"{_refusal(partition, start, end, first, behind_last)}. Choose offsets within it, "
                "or set failOnDataLoss=false to read what is left"
            )
        _logger.warning(
            "%s; reading what is left (failOnDataLoss=false)",
            _refusal(partition, start, end, first, behind_last),
        )
        start = min(max(start, first), behind_last)
        end = min(max(end, start), behind_last)
    if start > end:
        if not (is_relative(starting) or is_relative(ending)):
            raise OptionError(
                f"the range of {partition} would start at {start}, after its end {end}"
            )
        start = end
    return OffsetRange(partition, start, end, topic_id)


def _refusal(partition: TopicPartition, start: int, end: int, first: int, behind_last: int) -> str:
    return (
        f"range [{start}, {end}) of topic {partition.topic} partition {partition.partition} is "
        f"not available: the log holds [{first}, {behind_last})"
    )


def _assigned_partitions(
    assigned: Mapping[str, tuple[int, ...]], topics: Mapping[str, DescribedTopic]
) -> list[TopicPartition]:
    _refuse_unknown_topics(sorted(assigned), topics)
    for topic, numbers in assigned.items():
        if numbers[-1] >= topics[topic].partitions:
            raise UnknownTopic(
                f"topic {topic!r} has no partition {numbers[-1]}: its partitions are 0 to "
                f"{topics[topic].partitions - 1}"
            )
    return [
        TopicPartition(topic, number) for topic in sorted(assigned) for number in assigned[topic]
    ]


def _refuse_unknown_topics(names: Iterable[str], topics: Mapping[str, DescribedTopic]) -> None:
    if unknown := [name for name in names if name not in topics]:
        raise UnknownTopic(f"the cluster has no topic {', '.join(map(repr, unknown))}")
