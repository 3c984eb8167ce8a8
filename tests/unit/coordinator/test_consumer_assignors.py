"""Assignors: each partition has one member, shares are equal, and what members have stays."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.coordinator.groups.consumer.range_assignor import assign_ranges
from quorate.broker.coordinator.groups.consumer.target_assignment import (
    Assigning,
    Assignor,
    Subscriber,
    TargetAssignment,
)
from quorate.broker.coordinator.groups.consumer.uniform_assignor import assign_uniformly
from quorate.common.types import TopicId
from tests.unit.coordinator.consumer_world import Place, carried_out

A, B, C = (TopicId(name * 16) for name in (b"a", b"b", b"c"))
ASSIGNORS = (assign_uniformly, assign_ranges)


def assigning(
    topics_of: dict[str, tuple[TopicId, ...]],
    counts: dict[TopicId, int],
    former: TargetAssignment | None = None,
) -> Assigning:
    shared = {topics: topics for topics in topics_of.values()}
    members = [Subscriber(member, None, shared[topics]) for member, topics in topics_of.items()]
    return Assigning(members, counts, former or {})


def places(target: TargetAssignment) -> dict[Place, str]:
    """Who has which partition; nobody has one that another has."""
    owners: dict[Place, str] = {}
    for member, topics in target.items():
        for topic, partitions in topics.items():
            assert partitions, "no topic has an empty set"
            for partition in partitions:
                assert owners.setdefault((topic, partition), member) == member
    return owners


def sizes(target: TargetAssignment) -> dict[str, int]:
    return {member: sum(map(len, topics.values())) for member, topics in target.items()}


subscriptions = st.dictionaries(
    st.text("mnop", min_size=1, max_size=3),
    st.sets(st.sampled_from([A, B, C])).map(lambda topics: tuple(sorted(topics))),
    min_size=1,
    max_size=8,
)
partition_counts = st.fixed_dictionaries({topic: st.integers(0, 12) for topic in (A, B, C)})


@pytest.mark.parametrize("assign", ASSIGNORS)
@given(topics_of=subscriptions, before=subscriptions, counts=partition_counts, data=st.data())
def test_every_partition_with_a_subscriber_has_one(
    assign: Assignor,
    topics_of: dict[str, tuple[TopicId, ...]],
    before: dict[str, tuple[TopicId, ...]],
    counts: dict[TopicId, int],
    data: st.DataObject,
) -> None:
    fewer = data.draw(st.integers(0, 3))
    former = carried_out(assign(assigning(before, counts)))
    now = {topic: max(0, count - fewer) for topic, count in counts.items()}
    target = carried_out(assign(assigning(topics_of, now, former)))
    assert target.keys() == topics_of.keys()
    wanted = {topic for topics in topics_of.values() for topic in topics}
    assert places(target).keys() == {(t, p) for t in wanted for p in range(now[t])}
    for member, topics in target.items():
        assert topics.keys() <= set(topics_of[member])


@given(topics_of=subscriptions, before=subscriptions, counts=partition_counts)
def test_uniform_shares_are_equal(
    topics_of: dict[str, tuple[TopicId, ...]],
    before: dict[str, tuple[TopicId, ...]],
    counts: dict[TopicId, int],
) -> None:
    former = carried_out(assign_uniformly(assigning(before, counts)))
    target = carried_out(assign_uniformly(assigning(topics_of, counts, former)))
    size = sizes(target)
    for (topic, _), owner in places(target).items():
        fewest = min(size[member] for member, topics in topics_of.items() if topic in topics)
        assert size[owner] - fewest <= 1, "no partition could move to somebody with fewer"


@given(
    members=st.integers(1, 8), more=st.integers(0, 3), counts=partition_counts, gone=st.integers(0)
)
def test_uniform_moves_as_few_as_possible(
    members: int, more: int, counts: dict[TopicId, int], gone: int
) -> None:
    names = [f"m{number}" for number in range(members)]
    before = carried_out(assign_uniformly(assigning(dict.fromkeys(names, (A, B, C)), counts)))
    names += [f"n{number}" for number in range(more)]
    del names[gone % len(names)]
    if not names:
        return
    after = carried_out(
        assign_uniformly(assigning(dict.fromkeys(names, (A, B, C)), counts, before))
    )
    had, has = places(before), places(after)
    moved = Counter(had[place] for place in had if has[place] != had[place])
    total = sum(counts.values())
    for member, lost in moved.items():
        if member in names:
            assert sizes(before)[member] - lost >= total // len(names), "nobody gives up too much"
    again = carried_out(assign_uniformly(assigning(dict.fromkeys(names, (A, B, C)), counts, after)))
    assert places(again) == has


def test_ranges_are_neighbours_and_go_together() -> None:
    target = carried_out(assign_ranges(assigning(dict.fromkeys("xyz", (A, B)), {A: 7, B: 7})))
    assert target["x"] == {A: {0, 1, 2}, B: {0, 1, 2}}
    assert target["y"] == {A: {3, 4}, B: {3, 4}}
    assert target["z"] == {A: {5, 6}, B: {5, 6}}


def test_ranges_begin_with_static_members() -> None:
    members = [Subscriber("a", None, (A,)), Subscriber("b", "j", (A,)), Subscriber("c", "i", (A,))]
    target = carried_out(assign_ranges(Assigning(members, {A: 3}, {})))
    assert [target[member][A] for member in "cba"] == [{0}, {1}, {2}]
    order = [min(target[member][A]) for member in "cba"]
    assert all(first < second for first, second in pairwise(order))


@pytest.mark.parametrize("assign", ASSIGNORS)
def test_no_members_get_nothing(assign: Assignor) -> None:
    assert carried_out(assign(Assigning([], {A: 3}, {}))) == {}
