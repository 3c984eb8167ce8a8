"""Which brokers are cut off from the others, and where the leaderships of theirs go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.controller.managers.partition_change import LeadershipChange
from quorate.broker.controller.managers.reachability import cut_off, moved_leadership
from quorate.common.types import BrokerId
from tests.unit.controller.test_partition_change import ids, partition, some

Pairs = tuple[tuple[int, int], ...]


def links(*pairs: tuple[int, int]) -> frozenset[frozenset[BrokerId]]:
    return frozenset(some(*pair) for pair in pairs)


@pytest.mark.parametrize(
    ("live", "broken", "controller", "cut"),
    [
        ((1, 2, 3), (), 1, ()),
        ((1, 2, 3), ((1, 3), (2, 3)), 1, (3,)),
        ((1, 2, 3), ((1, 3), (2, 3)), 3, (3,)),
        ((1, 2, 3), ((1, 2),), 3, (2,)),
        ((1, 2, 3), ((1, 2),), 2, (1,)),
        ((1, 2, 3), ((1, 2),), 1, (2,)),
        ((1, 2, 3), ((1, 2), (2, 3), (1, 3)), 1, ()),
        ((1, 2), ((1, 2),), 1, ()),
        ((1, 2, 3, 4), ((1, 3), (1, 4), (2, 3), (2, 4)), 1, ()),
        ((1, 2, 3, 4, 5), ((1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5)), 1, (1, 2)),
        ((1, 2, 3, 4, 5), ((1, 5), (2, 5)), 3, (5,)),
        ((1, 2), ((1, 3), (2, 3)), 1, ()),
    ],
)
def test_the_fewest_brokers_are_left_out_and_the_rest_is_a_majority(
    live: tuple[int, ...], broken: Pairs, controller: int, cut: tuple[int, ...]
) -> None:
    assert cut_off(some(*live), links(*broken), BrokerId(controller)) == some(*cut)


@given(
    live=st.sets(st.integers(1, 7), min_size=1),
    pairs=st.sets(st.tuples(st.integers(1, 7), st.integers(1, 7)).filter(lambda p: p[0] != p[1])),
    data=st.data(),
)
def test_nobody_is_left_with_a_broken_link_and_a_majority_is_left(
    live: set[int], pairs: set[tuple[int, int]], data: st.DataObject
) -> None:
    controller = data.draw(st.sampled_from(sorted(live)))
    broken = links(*pairs)
    cut = cut_off(some(*live), broken, BrokerId(controller))
    if not cut:
        return
    rest = some(*live) - cut
    assert 2 * len(rest) > len(live)
    assert not any(link <= rest for link in broken)
    assert all(any(one in link and link <= some(*live) for link in broken) for one in cut)


def moved(
    isr: tuple[int, ...], candidates: tuple[int, ...], broken: Pairs, needed: int
) -> LeadershipChange | None:
    """Of a partition that broker 3 leads, on brokers 3, 1 and 2."""
    return moved_leadership(
        partition((3, 1, 2), leader=3, isr=isr), some(*candidates), links(*broken), needed
    )


def test_leadership_moves_to_the_members_that_reach_each_other() -> None:
    after = moved((3, 1, 2), (1, 2), ((1, 3), (2, 3)), needed=2)
    assert after == LeadershipChange(BrokerId(1), ids(1, 2))


def test_the_new_leader_is_a_member_of_the_isr() -> None:
    after = moved((3, 2), (1, 2), ((2, 3),), needed=1)
    assert after == LeadershipChange(BrokerId(2), ids(2))


def test_nobody_outside_the_isr_leads() -> None:
    assert moved((3,), (1, 2), ((1, 3), (2, 3)), needed=2) is None


def test_too_few_members_take_over_if_the_other_replicas_can_catch_up() -> None:
    after = moved((3, 2), (1, 2), ((1, 3), (2, 3)), needed=2)
    assert after == LeadershipChange(BrokerId(2), ids(2)), "broker 1 joins them"


def test_a_leader_that_reaches_enough_stays_while_the_others_would_have_to_catch_up() -> None:
    assert moved((3, 1), (1, 2), ((2, 3),), needed=2) is None


def test_leadership_stays_where_no_other_part_takes_acks_all_either() -> None:
    assert moved((3, 1, 2), (1,), ((1, 3), (2, 3)), needed=2) is None
