"""From options and the cluster's answers to ranges."""

import itertools
from collections.abc import Mapping

import pytest

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import OptionError, RangeUnavailable, UnknownTopic
from quorate.spark.offset_ranges import EARLIEST, LATEST, DescribedTopic, OffsetRange
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.read_options import parse_read_options
from quorate.spark.options.topic_subscription import Subscription
from quorate.spark.reading.offset_resolver import OffsetResolver, offset_questions
from quorate.spark.reading.range_planning import (
    check_partitions_named,
    plan_ranges,
    select_partitions,
    split_ranges,
    spread_over_leaders,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
NOW_MS = 1_700_000_000_000
TOPICS = {"a": DescribedTopic(b"A" * 16, 2), "b": DescribedTopic(b"B" * 16, 1)}
EDGES = {
    (A0, EARLIEST): 10,
    (A0, LATEST): 100,
    (A1, EARLIEST): 0,
    (A1, LATEST): 0,
    (B0, EARLIEST): 0,
    (B0, LATEST): 50,
}


def plan(
    given: Mapping[str, str], times: Mapping[tuple[TopicPartition, int], int] | None = None
) -> list[tuple[TopicPartition, int, int]]:
    options = parse_read_options({"kafka.bootstrap.servers": "b:1", **given}, Scope.BATCH)
    partitions = select_partitions(options.subscription, TOPICS)
    check_partitions_named(partitions, options)
    answers = {**EDGES, **(times or {})}
    asked = set(offset_questions(partitions, NOW_MS, options.starting, options.ending))
    offsets = {question: answers[question] for question in asked}
    ranges = plan_ranges(partitions, TOPICS, options, OffsetResolver(offsets, NOW_MS))
    assert all(r.topic_id == TOPICS[r.topic_partition.topic].topic_id for r in ranges)
    return [(r.topic_partition, r.start, r.end) for r in ranges]


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        (Subscription(topics=("b", "a")), [A0, A1, B0]),
        (Subscription(pattern="a|x"), [A0, A1]),
        (Subscription(pattern="."), [A0, A1, B0]),
        (Subscription(pattern="nothing"), []),
        (Subscription(partitions={"b": (0,), "a": (1,)}), [A1, B0]),
    ],
)
def test_partitions_of_a_subscription(
    subscription: Subscription, expected: list[TopicPartition]
) -> None:
    assert select_partitions(subscription, TOPICS) == expected


@pytest.mark.parametrize(
    ("subscription", "message"),
    [
        (Subscription(topics=("a", "x")), "no topic 'x'"),
        (Subscription(partitions={"x": (0,)}), "no topic 'x'"),
        (Subscription(partitions={"a": (0, 2)}), "topic 'a' has no partition 2: .* 0 to 1"),
    ],
)
def test_unknown_topics_and_partitions(subscription: Subscription, message: str) -> None:
    with pytest.raises(UnknownTopic, match=message):
        select_partitions(subscription, TOPICS)


def test_by_default_everything_and_nothing_for_empty_partitions() -> None:
    assert plan({"subscribe": "a,b"}) == [(A0, 10, 100), (B0, 0, 50)]


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        ('{"a":{"0":-2}}', '{"a":{"0":-1}}', [(A0, 10, 100)]),
        ('{"a":{"0":10}}', '{"a":{"0":100}}', [(A0, 10, 100)]),
        ('{"a":{"0":42}}', '{"a":{"0":43}}', [(A0, 42, 43)]),
        ('{"a":{"0":42}}', '{"a":{"0":42}}', []),
        ('{"a":{"0":100}}', '{"a":{"0":-1}}', []),
    ],
)
def test_d2_ranges_are_exactly_what_the_options_say(
    starting: str, ending: str, expected: list[tuple[TopicPartition, int, int]]
) -> None:
    given = {"assign": '{"a":[0]}', "startingOffsets": starting, "endingOffsets": ending}
    assert plan(given) == expected


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        (9, 50, (10, 50)),
        (0, 100, (10, 100)),
        (0, 10, None),
        (3, 7, None),
        (10, 101, (10, 100)),
        (60, 200, (60, 100)),
        (100, 101, None),
        (101, 102, None),
        (5, 300, (10, 100)),
    ],
)
def test_a_range_outside_the_log_names_partition_and_available_range(
    start: int, end: int, left: tuple[int, int] | None
) -> None:
    given = {
        "assign": '{"a":[0]}',
        "startingOffsets": f'{{"a":{{"0":{start}}}}}',
        "endingOffsets": f'{{"a":{{"0":{end}}}}}',
    }
    message = rf"range \[{start}, {end}\) of topic a partition 0 .* the log holds \[10, 100\)"
    with pytest.raises(RangeUnavailable, match=message):
        plan(given)
    assert plan({**given, "failOnDataLoss": "false"}) == ([(A0, *left)] if left else [])


def test_a_start_behind_the_log_is_outside_of_it() -> None:
    given = {"assign": '{"a":[0]}', "startingOffsets": '{"a":{"0":101}}'}
    with pytest.raises(RangeUnavailable, match=r"range \[101, 100\) .* the log holds \[10, 100\)"):
        plan(given)
    assert plan({**given, "failOnDataLoss": "false"}) == []


def test_an_end_before_the_log_is_outside_of_it() -> None:
    given = {"assign": '{"a":[0]}', "endingOffsets": '{"a":{"0":5}}'}
    with pytest.raises(RangeUnavailable, match=r"range \[10, 5\) .* the log holds \[10, 100\)"):
        plan(given)
    assert plan({**given, "failOnDataLoss": "false"}) == []


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_start_after_the_end_is_a_mistake_whatever_is_lost(fail: str) -> None:
    given = {"subscribe": "b", "startingTimestamp": "9", "endingTimestamp": "5"}
    with pytest.raises(OptionError, match="b-0 would start at 30, after its end 20"):
        plan({**given, "failOnDataLoss": fail}, {(B0, 5): 20, (B0, 9): 30})


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        ("latest-30", "latest", [(A0, 70, 100), (B0, 20, 50)]),
        ("latest-60", "latest", [(A0, 40, 100), (B0, 0, 50)]),
        ("earliest+60", "latest", [(A0, 70, 100)]),
        ("earliest", "earliest+20", [(A0, 10, 30), (B0, 0, 20)]),
        ("earliest+40", "latest-40", [(A0, 50, 60)]),
        ("latest-9", "latest-9", []),
    ],
)
def test_relative_ranges_never_leave_the_log(
    starting: str, ending: str, expected: list[tuple[TopicPartition, int, int]]
) -> None:
    given = {"subscribe": "a,b", "startingOffsets": starting, "endingOffsets": ending}
    assert plan(given) == expected


def test_relative_positions_of_single_partitions() -> None:
    given = {
        "subscribe": "a",
        "startingOffsets": '{"a":{"0":"latest-5","1":"-10m"}}',
        "endingOffsets": '{"a":{"0":98,"1":-1}}',
    }
    assert plan(given, {(A1, NOW_MS - 600_000): -1}) == [(A0, 95, 98)]


def test_so_long_before_now() -> None:
    given = {"subscribe": "b", "startingOffsets": "-2h", "endingOffsets": "-10m"}
    two_hours, ten_minutes = NOW_MS - 7_200_000, NOW_MS - 600_000
    assert plan(given, {(B0, two_hours): 20, (B0, ten_minutes): 30}) == [(B0, 20, 30)]
    # Nothing in all that time: nothing to read, and no error.
    assert plan(given, {(B0, two_hours): -1, (B0, ten_minutes): -1}) == []


def test_longer_ago_than_there_was_time_is_the_beginning_of_time() -> None:
    given = {"subscribe": "b", "startingOffsets": "-99999d"}
    assert plan(given, {(B0, 0): 0}) == [(B0, 0, 50)]


def test_ranges_by_time() -> None:
    given = {"subscribe": "b", "startingTimestamp": "5", "endingTimestamp": "9"}
    assert plan(given, {(B0, 5): 20, (B0, 9): 30}) == [(B0, 20, 30)]
    assert plan(given, {(B0, 5): 20, (B0, 9): -1}) == [(B0, 20, 50)]
    with pytest.raises(
        RangeUnavailable, match=r"no record of topic b partition 0 .* at or after 5 ms"
    ):
        plan(given, {(B0, 5): -1, (B0, 9): -1})
    latest = {**given, "startingOffsetsByTimestampStrategy": "latest"}
    assert plan(latest, {(B0, 5): -1, (B0, 9): -1}) == []


@pytest.mark.parametrize(
    ("starting", "message"),
    [
        ('{"a":{"0":10}}', "starting offsets lack a-1"),
        ('{"a":{"0":10,"1":0,"2":0}}', "starting offsets name a-2"),
    ],
)
def test_offsets_name_exactly_the_partitions_subscribed_to(starting: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        plan({"subscribe": "a", "startingOffsets": starting})


@pytest.mark.parametrize(
    ("sizes", "min_ranges", "max_size", "expected"),
    [
        ([10, 1], None, None, [10, 1]),
        ([10, 1], None, 4, [3, 3, 4, 1]),
        ([10, 10], 4, None, [5, 5, 5, 5]),
        ([90, 10], 10, None, [10] * 10),
        ([10, 10, 10], 5, None, [5, 5, 5, 5, 10]),
        ([100, 1], 4, None, [33, 33, 34, 1]),
        ([1000, 7, 3], 9, 400, [142, 143, 143, 143, 143, 143, 143, 7, 3]),
        ([3, 2], 99, None, [1] * 5),
        ([2], 10, None, [1, 1]),
        ([10, 10], 1, None, [10, 10]),
        ([8], 2, 2, [2, 2, 2, 2]),
        ([], 3, 2, []),
    ],
)
def test_splitting(
    sizes: list[int], min_ranges: int | None, max_size: int | None, expected: list[int]
) -> None:
    ranges = [OffsetRange(TopicPartition("a", n), 7, 7 + size) for n, size in enumerate(sizes)]
    pieces = split_ranges(ranges, min_ranges=min_ranges, max_size=max_size)
    assert [piece.size for piece in pieces] == expected
    for whole in ranges:
        own = [piece for piece in pieces if piece.topic_partition == whole.topic_partition]
        assert own[0].start == whole.start
        assert own[-1].end == whole.end
        assert all(a.end == b.start for a, b in itertools.pairwise(own))


@pytest.mark.parametrize(
    ("leaders", "sizes", "expected"),
    [
        ("AB", [5, 5, 5, 5], [0, 1, 2, 3]),
        ("A", [5, 9, 5], [1, 0, 2]),
        ("AABB", [5, 5, 5, 5], [0, 2, 1, 3]),
        ("AABB", [1, 9, 5, 2], [1, 2, 0, 3]),
        ("AAAB", [1, 1, 1, 1], [0, 3, 1, 2]),
        ("", [], []),
    ],
)
def test_neighbours_have_different_leaders_and_the_largest_come_first(
    leaders: str, sizes: list[int], expected: list[int]
) -> None:
    ranges = [OffsetRange(TopicPartition("a", n), 0, size) for n, size in enumerate(sizes)]
    spread = spread_over_leaders(ranges, lambda tp: leaders[tp.partition % len(leaders)])
    assert [offsets.topic_partition.partition for offsets in spread] == expected
