"""Where replicas go."""

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.controller.managers.placement import PlacementStart, place, start_of
from quorate.common.types import BrokerId


def racks(*names: str) -> dict[BrokerId, str]:
    return {BrokerId(number): name for number, name in enumerate(names)}


@given(
    names=st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=8),
    partitions=st.integers(1, 40),
    data=st.data(),
    first=st.integers(0, 2**16),
    stride=st.integers(0, 2**16),
)
def test_c4_at_most_one_replica_per_broker_and_leaders_spread_evenly(
    names: list[str], partitions: int, data: st.DataObject, first: int, stride: int
) -> None:
    replication_factor = data.draw(st.integers(1, len(names)))
    brokers = racks(*names)
    placed = place(brokers, partitions, replication_factor, PlacementStart(first, stride))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == replication_factor
        assert set(replicas) <= set(brokers)
        if all(names):
            spread = {brokers[one] for one in replicas}
            assert len(spread) == min(replication_factor, len(set(names))), "racks come first"
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min((leaders[one] for one in brokers), default=0) <= 1


def evenly(*, brokers: int, racks: int) -> dict[BrokerId, str]:
    """As many brokers in each rack; 0 racks: none has one."""
    return {BrokerId(n): f"rack {n % racks}" if racks else "" for n in range(brokers)}


equal_racks = st.tuples(st.integers(1, 4), st.integers(0, 4)).map(
    lambda sizes: evenly(brokers=sizes[0] * (sizes[1] or 1), racks=sizes[1])
)
starts = st.builds(PlacementStart, st.integers(0, 2**16), st.integers(0, 2**16))


def load(placed: Sequence[Sequence[BrokerId]], brokers: Iterable[BrokerId]) -> list[int]:
    """Replicas on each broker."""
    replicas = Counter(one for ids in placed for one in ids)
    return [replicas[broker] for broker in brokers]


@given(brokers=equal_racks, rounds=st.integers(1, 4), start=starts, data=st.data())
def test_c4_equal_racks_carry_the_same_number_of_replicas(
    brokers: dict[BrokerId, str], rounds: int, start: PlacementStart, data: st.DataObject
) -> None:
    """KIP-36: over racks, and over the brokers in them."""
    replication_factor = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, rounds * len(brokers), replication_factor, start)
    assert set(load(placed, brokers)) == {rounds * replication_factor}


@given(
    brokers=equal_racks,
    known=st.integers(1, 20),
    rounds=st.integers(1, 3),
    start=starts,
    data=st.data(),
)
def test_c14_what_is_added_keeps_leaders_and_racks_balanced(
    brokers: dict[BrokerId, str],
    known: int,
    rounds: int,
    start: PlacementStart,
    data: st.DataObject,
) -> None:
    replication_factor = data.draw(st.integers(1, len(brokers)))
    before = place(brokers, known, replication_factor, start)
    going_on = start_of(brokers, before[0])
    assert going_on is not None
    count = rounds * len(brokers) + -known % len(brokers)
    added = place(brokers, count, replication_factor, going_on, first_partition=known)
    leaders = Counter(replicas[0] for replicas in (*before, *added))
    assert len({leaders[one] for one in brokers}) == 1
    replicas_each = load((*before, *added), brokers)
    assert max(replicas_each) - min(replicas_each) <= replication_factor
    for replicas in added:
        assert len(set(replicas)) == replication_factor
        if all(brokers.values()):
            spread = {brokers[one] for one in replicas}
            assert len(spread) == min(replication_factor, len(set(brokers.values())))


@given(count=st.integers(2, 6), known=st.integers(1, 20), added=st.integers(1, 20), start=starts)
def test_c14_a_topic_that_grew_is_as_one_created_so(
    count: int, known: int, added: int, start: PlacementStart
) -> None:
    brokers = evenly(brokers=count, racks=0)
    at_once = place(brokers, known + added, 2, start)
    going_on = start_of(brokers, at_once[0])
    assert going_on is not None
    assert place(brokers, added, 2, going_on, first_partition=known) == at_once[known:]


def test_c14_stripes_of_brokers_that_are_gone_cannot_be_gone_on_with() -> None:
    assert start_of(racks("", "", ""), (BrokerId(1), BrokerId(7))) is None


def test_c4_followers_of_one_leader_spread_over_the_others() -> None:
    placed = place(racks("", "", "", ""), 12, 2, PlacementStart(0, 0))
    followers = {replicas[1] for replicas in placed if replicas[0] == 0}
    assert followers == {1, 2, 3}


def test_c4_neighbouring_leaders_are_in_different_racks() -> None:
    brokers = racks("a", "a", "b", "b")
    leaders = [brokers[replicas[0]] for replicas in place(brokers, 4, 2, PlacementStart(0, 0))]
    assert leaders == ["a", "b", "a", "b"]


@pytest.mark.parametrize("replication_factor", [0, 4])
def test_c4_more_replicas_than_brokers_cannot_be_placed(replication_factor: int) -> None:
    with pytest.raises(ValueError, match="on 3 brokers"):
        place(racks("", "", ""), 1, replication_factor, PlacementStart(0, 0))
