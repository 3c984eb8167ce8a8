"""Where replicas go."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.controller.managers.placement import PlacementStart, place
from metadata_log.types import BrokerId


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
