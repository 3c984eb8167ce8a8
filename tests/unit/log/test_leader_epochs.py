"""Leader-epoch histories: known ends, truncation, and epochs that contradict each other."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.log.state.leader_epoch_cache import (
    NO_EPOCH,
    NO_OFFSET,
    EpochEnd,
    LeaderEpochCache,
)
from quorate.common.types import LeaderEpoch

LOG_END = 30


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (0, (0, 13)),
        (1, (0, 13)),
        (2, (2, 17)),
        (3, (2, 17)),
        (4, (4, LOG_END)),
        (5, (NO_EPOCH, NO_OFFSET)),
        (-1, (NO_EPOCH, NO_OFFSET)),
    ],
)
def test_scenario_12_an_epoch_ends_where_the_next_known_one_begins(
    epoch: int, expected: tuple[int, int]
) -> None:
    history = LeaderEpochCache([(0, 10), (2, 13), (4, 17)])
    assert history.end_offset_for(LeaderEpoch(epoch), LOG_END) == expected


def test_epoch_older_than_all_known_ends_where_the_oldest_begins() -> None:
    history = LeaderEpochCache([(3, 7), (5, 9)])
    assert history.end_offset_for(LeaderEpoch(1), LOG_END) == EpochEnd(LeaderEpoch(1), 7)


def test_empty_history_knows_no_end() -> None:
    assert LeaderEpochCache().end_offset_for(LeaderEpoch(0), LOG_END) == (NO_EPOCH, NO_OFFSET)


def test_scenario_12_truncating_the_end_forgets_epochs_that_begin_there_or_later() -> None:
    history = LeaderEpochCache([(2, 6), (3, 8), (4, 11)])
    history.truncate_from_end(9)
    assert history.entries == [(2, 6), (3, 8)]
    history.truncate_from_end(8)
    assert history.entries == [(2, 6)]


def test_scenario_12_truncating_the_start_keeps_the_epoch_in_force_there() -> None:
    history = LeaderEpochCache([(2, 6), (3, 8), (4, 11)])
    history.truncate_from_start(9)
    assert history.entries == [(3, 9), (4, 11)]


def test_truncating_the_start_before_everything_changes_nothing() -> None:
    history = LeaderEpochCache([(2, 6)])
    history.truncate_from_start(5)
    assert history.entries == [(2, 6)]


def test_an_epoch_begins_once() -> None:
    history = LeaderEpochCache([(1, 5)])
    history.assign(LeaderEpoch(1), 9)
    assert history.entries == [(1, 5)]


def test_an_epoch_without_records_gives_way_to_the_next_at_the_same_offset() -> None:
    history = LeaderEpochCache([(1, 5)])
    history.assign(LeaderEpoch(2), 5)
    assert history.entries == [(2, 5)]


def test_entries_that_contradict_a_new_one_go() -> None:
    history = LeaderEpochCache([(1, 5), (4, 8), (6, 12)])
    history.assign(LeaderEpoch(5), 7)
    assert history.entries == [(1, 5), (5, 7)]


def test_kip101_an_older_epoch_goes_on_where_a_later_one_began_and_wrote_nothing() -> None:
    """This replica led in epoch 5 for a moment; the leader of 6 has more of epoch 4."""
    history = LeaderEpochCache([(2, 20), (4, 50), (5, 100)])
    history.assign(LeaderEpoch(4), 100)
    assert history.entries == [(2, 20), (4, 50)]
    assert history.end_offset_for(LeaderEpoch(2), 101) == (2, 50)


def test_an_epoch_that_begins_earlier_than_was_known_begins_there() -> None:
    history = LeaderEpochCache([(1, 5), (4, 50)])
    history.assign(LeaderEpoch(4), 40)
    assert history.entries == [(1, 5), (4, 40)]


def test_unknown_epoch_is_ignored() -> None:
    history = LeaderEpochCache()
    history.assign(LeaderEpoch(-1), 5)
    assert history.latest_epoch == NO_EPOCH
    assert history.latest_start_offset == NO_OFFSET


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), max_size=30))
def test_epochs_and_starts_always_grow(assignments: list[tuple[int, int]]) -> None:
    history = LeaderEpochCache()
    for epoch, start in assignments:
        history.assign(LeaderEpoch(epoch), start)
        assert history.latest_epoch == epoch
        entries = history.entries
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
