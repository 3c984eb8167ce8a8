"""From where a stream is and what there is to its next batch, and what counts as lost."""

import re

import pytest

from quorate.common.topic_partition import TopicPartition
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.streaming.log_view import LogEdges, LogView
from quorate.spark.streaming.micro_batch_planning import (
    Loss,
    begin_next_batch,
    missing_from_subscription,
    next_offsets,
    plan_batch,
)
from quorate.spark.streaming.stream_checkpoint import StreamOffsets

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OLD, NEW = b"\x01" * 16, b"\x02" * 16
Edges = dict[TopicPartition, tuple[int, int]]


def view(edges: Edges, topic_id: bytes = OLD) -> LogView:
    return LogView(
        {partition: LogEdges(*pair) for partition, pair in edges.items()},
        {partition.topic: topic_id for partition in edges},
    )


def at(offsets: dict[TopicPartition, int], topic_id: bytes = OLD) -> StreamOffsets:
    return StreamOffsets(offsets, {partition.topic: topic_id for partition in offsets})


def told(losses: object) -> str:
    assert isinstance(losses, list | tuple)
    return "; ".join(loss.what for loss in losses)


@pytest.mark.parametrize(
    ("start", "edges", "begins"),
    [
        ({A0: 5}, {A0: (0, 9)}, {A0: 5}),
        ({A0: 9}, {A0: (9, 9)}, {A0: 9}),
        ({A0: 5}, {A0: (5, 5)}, {A0: 5}),
        # New partitions of a topic, and new topics, begin at their earliest.
        ({A0: 5}, {A0: (0, 9), A1: (0, 3), B0: (0, 0)}, {A0: 5, A1: 0, B0: 0}),
        ({}, {A0: (0, 9)}, {A0: 0}),
    ],
)
def test_a_batch_begins_where_the_last_one_ended(
    start: dict[TopicPartition, int], edges: Edges, begins: dict[TopicPartition, int]
) -> None:
    step = begin_next_batch(at(start), view(edges))
    assert step.begins == begins
    assert not step.losses


@pytest.mark.parametrize(
    ("start", "edges", "begins", "message", "may_heal"),
    [
        ({A0: 3}, {A0: (4, 9)}, {A0: 4}, r"offsets \[3, 4\) of a-0: the log holds \[4, 9\)", False),
        ({A0: 10}, {A0: (4, 9)}, {A0: 9}, r"a-0 held offsets up to 10 before", True),
        (
            {A0: 3},
            {A0: (0, 9), A1: (2, 9)},
            {A0: 3, A1: 2},
            "a-1 is new to the query, and its offsets before 2 have been removed",
            False,
        ),
        ({A0: 3, B0: 1}, {A0: (0, 9)}, {A0: 3}, "topic b partition 0 is deleted, or no", True),
        ({A0: 3, A1: 1}, {A0: (0, 9)}, {A0: 3}, "topic a partition 1 is deleted", True),
        ({A0: 3, A1: 1}, {}, {}, "topic a partition 0, 1 is deleted", True),
    ],
)
def test_losses(
    start: dict[TopicPartition, int],
    edges: Edges,
    begins: dict[TopicPartition, int],
    message: str,
    may_heal: bool,
) -> None:
    step = begin_next_batch(at(start), view(edges))
    assert step.begins == begins
    (loss,) = step.losses
    assert re.search(message, loss.what)
    assert loss.may_heal == may_heal


def test_a_topic_created_anew_begins_at_its_earliest() -> None:
    step = begin_next_batch(at({A0: 3, A1: 8}), view({A0: (2, 9)}, NEW))
    assert step.begins == {A0: 2}
    (loss,) = step.losses
    assert re.search(
        f"topic a was deleted and created anew: .* {OLD.hex()} and is {NEW.hex()}", loss.what
    )


def test_a_topic_created_anew_with_as_many_records_is_something_new() -> None:
    start, logs = at({A0: 9}), view({A0: (0, 9)}, NEW)
    assert next_offsets(start, begin_next_batch(start, logs), logs, at_most=None) == at(
        {A0: 9}, NEW
    )


@pytest.mark.parametrize(
    ("at_most", "ends"),
    [(None, {A0: 100, A1: 30}), (130, {A0: 100, A1: 30}), (13, {A0: 22, A1: 21})],
)
def test_where_a_batch_ends(at_most: int | None, ends: dict[TopicPartition, int]) -> None:
    start, logs = at({A0: 10, A1: 20}), view({A0: (0, 100), A1: (0, 30)})
    found = next_offsets(start, begin_next_batch(start, logs), logs, at_most=at_most)
    assert found.offsets == ends
    assert found.since is None


def test_nothing_new_is_the_very_start() -> None:
    # Spark compares text: anything else would run an empty batch, again and again.
    first = StreamOffsets({A0: 9}, {"a": OLD}, since=at({A0: 3}))
    for start in (at({A0: 9}), StreamOffsets({A0: 9}, {"a": OLD}, initial=True), first):
        logs = view({A0: (0, 9)})
        assert next_offsets(start, begin_next_batch(start, logs), logs, at_most=5) is start


def test_d2_the_first_batch_remembers_its_start() -> None:
    start = StreamOffsets({A0: 3}, {"a": OLD}, initial=True)
    logs = view({A0: (0, 9)})
    assert next_offsets(start, begin_next_batch(start, logs), logs, at_most=None).since == start


@pytest.mark.parametrize(
    ("start", "end", "edges", "ranges"),
    [
        ({A0: 3}, {A0: 9}, {A0: (0, 20)}, [(A0, 3, 9)]),
        ({A0: 3, A1: 4}, {A0: 3, A1: 5}, {A0: (0, 3), A1: (0, 5)}, [(A1, 4, 5)]),
        # New in this batch.
        ({A0: 3}, {A0: 9, A1: 4}, {A0: (0, 20), A1: (0, 9)}, [(A0, 3, 9), (A1, 0, 4)]),
        # Newer than this batch.
        ({A0: 3}, {A0: 9}, {A0: (0, 20), A1: (0, 9), B0: (7, 9)}, [(A0, 3, 9)]),
        # A loss that was accepted when the batch was planned.
        ({A0: 9, B0: 1}, {A0: 5}, {A0: (0, 20)}, []),
    ],
)
def test_d2_the_ranges_of_a_batch(
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    edges: Edges,
    ranges: list[tuple[TopicPartition, int, int]],
) -> None:
    found, losses = plan_batch(at(start), at(end), view(edges))
    assert found == [OffsetRange(*each, OLD) for each in ranges]
    assert not losses


@pytest.mark.parametrize(
    ("edges", "topic_id", "ranges", "message"),
    [
        ({A0: (5, 20)}, OLD, [(A0, 5, 9)], r"offsets \[3, 5\) of a-0"),
        ({A0: (15, 20)}, OLD, [], r"offsets \[3, 15\) of a-0"),
        ({A0: (0, 7)}, OLD, [(A0, 3, 7)], "a-0 held offsets up to 9 before"),
        ({}, OLD, [], "topic a partition 0 is deleted"),
        ({A0: (0, 20)}, NEW, [], "topic a was deleted and created anew"),
    ],
)
def test_losses_since_a_batch_was_planned(
    edges: Edges, topic_id: bytes, ranges: list[tuple[TopicPartition, int, int]], message: str
) -> None:
    found, losses = plan_batch(at({A0: 3}), at({A0: 9}), view(edges, topic_id))
    assert found == [OffsetRange(*each, OLD) for each in ranges]
    assert re.search(message, told(losses))


def test_a_batch_over_a_topic_created_anew_before_it_was_planned() -> None:
    found, losses = plan_batch(at({A0: 8}), at({A0: 5}, NEW), view({A0: (0, 9)}, NEW))
    assert found == [OffsetRange(A0, 0, 5, NEW)]
    assert not losses


def test_what_never_was_there() -> None:
    logs = LogView({}, {}, frozenset({"b", "c", A0, A1}))
    assert [loss.what for loss in missing_from_subscription(at({A0: 1, B0: 1}), logs)] == [
        "the cluster has no partition a-1, which is subscribed to",
        "the cluster has no topic c, which is subscribed to",
    ]
    assert all(
        isinstance(loss, Loss) and loss.may_heal for loss in missing_from_subscription(at({}), logs)
    )
