"""Each check of a pipeline's history refuses the history that it is there for."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.pipeline.copier import decode_copy, encode_copy
from tests.support.pipeline.history import (
    Copy,
    Fate,
    Transaction,
    all_or_nothing,
    all_read,
    copied_in_order,
    copied_once,
    never_back,
    offsets_fit,
    shown_early,
    taken_over_where_left,
    transactions,
)
from tests.support.pipeline.journal import Event, Journal, Kind, Place, count, events

INPUT: list[Place] = [(0, 0), (0, 1), (0, 2), (1, 0)]
OUTPUT = [
    Copy((0, 0), 0, "a"),
    Copy((0, 1), 1, "a"),
    Copy((1, 0), 0, "a"),
    Copy((0, 2), 5, "b"),
]
TOLD = {
    "a": Transaction("a", frozenset([(0, 0), (0, 1), (1, 0)]), Fate.COMMITTED),
    "b": Transaction("b", frozenset([(0, 2)]), Fate.UNKNOWN),
    "c": Transaction("c", frozenset([(0, 1), (0, 2)]), Fate.NOT_COMMITTED),
}


def test_a_pipeline_as_it_should_be() -> None:
    assert copied_once(INPUT, OUTPUT) == []
    assert copied_in_order(OUTPUT) == []
    assert all_or_nothing(TOLD, OUTPUT) == []
    assert offsets_fit({0: 3, 1: 1}, OUTPUT) == []
    assert shown_early(OUTPUT[:2], OUTPUT) == []


def test_a_record_that_was_not_copied_is_lost() -> None:
    assert copied_once(INPUT, OUTPUT[1:]) == ["lost: 1, as (0, 0)"]


def test_a_record_that_was_copied_in_two_transactions_is_there_twice() -> None:
    again = Copy((0, 1), 9, "d")
    assert copied_once(INPUT, [*OUTPUT, again]) == ["copied twice: 1, as (0, 1)"]


def test_a_copy_of_a_record_that_was_taken_back_is_made_of_nothing() -> None:
    assert copied_once(INPUT[1:], OUTPUT) == ["made of nothing: 1, as (0, 0)"]


def test_copies_of_one_partition_keep_their_order() -> None:
    late = [Copy((0, 1), 0, "a"), Copy((0, 0), 1, "a"), Copy((1, 0), 0, "a")]
    (violation,) = copied_in_order(late)
    assert violation.startswith("order lost: in output 0 the copy of (0, 0) at offset 1")


@pytest.mark.parametrize(
    ("output", "violation"),
    [
        (OUTPUT[1:], "transaction a was committed: 2 of 3 records are there"),
        (OUTPUT[3:], "transaction a was committed: 0 of 3 records are there"),
        (
            [*OUTPUT, Copy((0, 2), 9, "c")],
            "transaction c was not committed: 1 records are there",
        ),
        ([*OUTPUT, Copy((0, 3), 9, "e")], "transaction e was begun by nobody"),
    ],
)
def test_of_a_transaction_all_is_there_or_nothing(output: Sequence[Copy], violation: str) -> None:
    assert all_or_nothing(TOLD, output) == [violation]


def test_a_transaction_that_nobody_knows_the_end_of_is_not_torn() -> None:
    told = {"a": Transaction("a", TOLD["a"].sources, Fate.UNKNOWN)}
    assert all_or_nothing(told, OUTPUT[:3]) == []
    assert all_or_nothing(told, []) == []
    assert all_or_nothing(told, OUTPUT[:2]) == ["transaction a is torn: 2 of 3 records"]


@pytest.mark.parametrize("committed", [{0: 2, 1: 1}, {0: 4, 1: 1}, {1: 1}])
def test_offsets_are_neither_ahead_of_copies_nor_behind(committed: dict[int, int]) -> None:
    (violation,) = offsets_fit(committed, OUTPUT)
    assert violation.startswith(f"input 0: {committed.get(0)} is committed")


def test_committed_offsets_do_not_go_back_even_over_a_sample_that_failed() -> None:
    assert never_back([{0: 3, 1: 0}, {0: 3}, {0: 4, 1: 0}]) == []
    assert never_back([{0: 3}, {}, {0: 2}, {0: 3}]) == [
        "partition 0: offset 2 was committed in sample 2, and 3 before"
    ]


def test_what_was_shown_stays() -> None:
    taken_back = Copy((0, 7), 9, "c")
    moved = Copy((0, 0), 1, "a")
    assert shown_early([*OUTPUT, taken_back, moved], OUTPUT) == [
        f"shown, and then gone: 2, as {taken_back}"
    ]


def event(kind: Kind, at_s: float, *places: Place, transaction: str = "") -> Event:
    return Event(kind=kind, at_s=at_s, places=places, transaction=transaction)


FIRST = [
    event(Kind.ASSIGNED, 1, (0, 0)),
    event(Kind.READ, 2, (0, 0), (0, 1)),
    event(Kind.OFFSETS_COMMITTING, 3, (0, 2)),
    event(Kind.OFFSETS_COMMITTED, 4, (0, 2)),
    event(Kind.READ, 5, (0, 2), (0, 3)),
    event(Kind.OFFSETS_COMMITTING, 6, (0, 4)),
]


def test_what_no_member_read_is_lost_to_the_group() -> None:
    assert all_read([(0, 0), (0, 3)], [FIRST]) == []
    assert all_read([(0, 3), (0, 4)], [FIRST]) == ["never read: 1, as (0, 4)"]


@pytest.mark.parametrize("first", [2, 4])
def test_a_member_goes_on_where_a_commit_says_that_was_answered_or_may_have_been(
    first: int,
) -> None:
    second = [event(Kind.ASSIGNED, 7, (0, 0)), event(Kind.READ, 8, (0, first))]
    assert taken_over_where_left([FIRST, second]) == []


@pytest.mark.parametrize(
    ("second", "violation"),
    [
        ([(0, 3)], "partition 0: read from 3, which nobody had committed"),
        ([(0, 0)], "partition 0: read from 0, after commit 2"),
        ([(0, 4), (0, 6)], "partition 0: 6 was read after 4"),
        ([(0, 4), (0, 4)], "partition 0: 4 was read after 4"),
    ],
)
def test_a_member_that_takes_over_reads_nothing_again_and_passes_over_nothing(
    second: Sequence[Place], violation: str
) -> None:
    journal = [event(Kind.ASSIGNED, 7, (0, 0)), event(Kind.READ, 8, *second)]
    assert taken_over_where_left([FIRST, journal]) == [violation]


def test_a_commit_that_was_answered_after_the_assignment_binds_nobody() -> None:
    second = [event(Kind.ASSIGNED, 3.5, (0, 0)), event(Kind.READ, 8, (0, 0))]
    assert taken_over_where_left([FIRST, second]) == []


@pytest.mark.parametrize(
    ("kinds", "fate"),
    [
        ([Kind.BEGUN], Fate.NOT_COMMITTED),
        ([Kind.BEGUN, Kind.ABORTING], Fate.NOT_COMMITTED),
        ([Kind.BEGUN, Kind.COMMITTING], Fate.UNKNOWN),
        ([Kind.BEGUN, Kind.COMMITTING, Kind.COMMITTED], Fate.COMMITTED),
        ([Kind.BEGUN, Kind.COMMITTING, Kind.ABORTING], Fate.UNKNOWN),
        ([Kind.BEGUN, Kind.COMMITTING, Kind.ABORTING, Kind.ABORTED], Fate.NOT_COMMITTED),
    ],
)
def test_what_is_known_of_a_transaction(kinds: Sequence[Kind], fate: Fate) -> None:
    journal = [event(kind, at, (0, at), transaction="t") for at, kind in enumerate(kinds)]
    assert transactions(journal) == {"t": Transaction("t", frozenset([(0, 0)]), fate)}


def test_a_journal_that_ends_in_half_a_line_holds_all_lines_before(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.note(Kind.BEGUN, transaction="t", places=((0, 1),))
    journal.note(Kind.READ, places=((0, 1),), keys=("k",))
    journal.close()
    path.write_bytes(path.read_bytes() + b'{"kind": "comm')
    assert (count(path, Kind.READ), count(path, Kind.COMMITTED)) == (1, 0)
    begun, read = events(path)
    assert (begun.kind, begun.transaction, begun.places) == (Kind.BEGUN, "t", ((0, 1),))
    assert (read.kind, read.keys) == (Kind.READ, ("k",))
    assert begun.at_s <= read.at_s


def test_a_copy_says_what_it_was_made_of() -> None:
    assert decode_copy(encode_copy("copier-1/3/7", 2, 41), 50) == Copy((2, 41), 50, "copier-1/3/7")
