"""Reads of many tasks: nothing counts before every part was read."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.external_commits import PARTS_MAX, ReadId, ReadTallies
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

TP = TopicPartition("orders", 0)
READ = ReadId("g", b"r")


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(n)))))
def test_the_last_part_completes_the_read_in_whatever_order(
    parts: tuple[int, Sequence[int]],
) -> None:
    count, order = parts
    tallies = ReadTallies()
    for done, number in enumerate(order, start=1):
        assert tallies.report(READ, number, count, {TP: 10 * (number + 1)}) == count - done
        assert tallies.report(READ, number, count, {TP: 10 * (number + 1)}) == count - done
    assert tallies.ends(READ) == {TP: 10 * count}


def test_reads_and_groups_are_told_apart() -> None:
    tallies = ReadTallies()
    assert tallies.report(READ, 0, 2, {TP: 1}) == 1
    assert tallies.report(ReadId("g", b"s"), 1, 2, {TP: 2}) == 1
    assert tallies.report(ReadId("h", b"r"), 1, 2, {TP: 2}) == 1


def test_a_read_that_is_forgotten_begins_anew() -> None:
    tallies = ReadTallies()
    assert tallies.report(READ, 0, 1, {TP: 1}) == 0
    tallies.forget(READ)
    tallies.forget(READ)
    assert tallies.report(READ, 0, 2, {TP: 1}) == 1


def test_those_not_heard_of_for_the_longest_make_room() -> None:
    tallies = ReadTallies(reads_max=2)
    for name in (b"a", b"b", b"a", b"c"):
        tallies.report(ReadId("g", name), 0, 2, {TP: 1})
    assert len(tallies) == 2
    assert tallies.report(ReadId("g", b"a"), 1, 2, {TP: 1}) == 0
    assert tallies.report(ReadId("g", b"b"), 1, 2, {TP: 1}) == 1


@pytest.mark.parametrize(
    ("number", "count"), [(-1, 2), (2, 2), (0, 0), (0, 3), (PARTS_MAX, PARTS_MAX + 1)]
)
def test_parts_that_cannot_be_are_refused(number: int, count: int) -> None:
    tallies = ReadTallies()
    tallies.report(READ, 0, 2, {TP: 1})
    with pytest.raises(KafkaError) as refused:
        tallies.report(READ, number, count, {TP: 1})
    assert refused.value.code == errors_pb2.INVALID_REQUEST
