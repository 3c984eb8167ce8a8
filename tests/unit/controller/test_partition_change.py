"""Leader and ISR of one partition, decided without a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.controller.managers.partition_change import (
    ElectionRefused,
    LeadershipChange,
    LiveBrokers,
    after_broker_change,
    preferred,
    unclean,
    without,
)
from quorate.broker.controller.managers.placement import first_leadership
from quorate.common.types import NO_BROKER, BrokerId, ControllerEpoch, LeaderEpoch
from quorate.metadata_log.partitions import Partition
from quorate_proto.v1 import errors_pb2


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def some(*numbers: int) -> frozenset[BrokerId]:
    return frozenset(ids(*numbers))


def partition(replicas: tuple[int, ...], leader: int, isr: tuple[int, ...]) -> Partition:
    return Partition(
        replicas=ids(*replicas),
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(5),
        isr=ids(*isr),
        controller_id=BrokerId(9),
        controller_epoch=ControllerEpoch(1),
    )


def test_c2_failover_picks_live_isr_member() -> None:
    before = partition((1, 2, 3), leader=1, isr=(1, 2, 3))
    assert after_broker_change(before, LiveBrokers(some(2, 3)), unclean=False) == LeadershipChange(
        BrokerId(2), ids(2, 3)
    )


def test_c2_a_live_replica_outside_the_isr_is_passed_over() -> None:
    before = partition((1, 2, 3), leader=1, isr=(1, 3))
    after = after_broker_change(before, LiveBrokers(some(2, 3)), unclean=True)
    assert after == LeadershipChange(BrokerId(3), ids(3)), "even where unclean election is allowed"


def test_c2_a_shrinking_isr_keeps_its_leader() -> None:
    before = partition((1, 2, 3), leader=2, isr=(2, 1, 3))
    after = after_broker_change(before, LiveBrokers(some(1, 2)), unclean=False)
    assert after == LeadershipChange(BrokerId(2), ids(2, 1))


def test_c2_nothing_changes_where_nobody_is_missing() -> None:
    before = partition((1, 2, 3), leader=2, isr=(2, 3))
    assert after_broker_change(before, LiveBrokers(some(2, 3)), unclean=True) is None


def test_c2_offline_keeps_the_isr() -> None:
    before = partition((1, 2), leader=1, isr=(1,))
    assert after_broker_change(before, LiveBrokers(some(2)), unclean=False) == LeadershipChange(
        NO_BROKER, ids(1)
    )


def test_c2_unclean_takes_a_live_replica_alone() -> None:
    before = partition((1, 2, 3), leader=1, isr=(1,))
    assert after_broker_change(before, LiveBrokers(some(3, 2)), unclean=True) == LeadershipChange(
        BrokerId(2), ids(2), unclean=True
    )


def test_c2_scenario_7_preferred_and_unclean_elections_after_all_have_died() -> None:
    """[1,2,3], 2 and 3 die, then 1; then 2 returns."""
    before = partition((1, 2, 3), leader=1, isr=(1, 2, 3))
    two_dead = after_broker_change(before, LiveBrokers(some(1)), unclean=False)
    assert two_dead == LeadershipChange(BrokerId(1), ids(1))
    all_dead = after_broker_change(
        partition((1, 2, 3), leader=1, isr=(1,)), LiveBrokers(some()), unclean=False
    )
    assert all_dead == LeadershipChange(NO_BROKER, ids(1))
    offline = partition((1, 2, 3), leader=-1, isr=(1,))
    assert after_broker_change(offline, LiveBrokers(some(2)), unclean=False) is None
    refused = preferred(offline, some(2))
    assert isinstance(refused, ElectionRefused)
    assert refused.error_code == errors_pb2.PREFERRED_LEADER_NOT_AVAILABLE
    assert unclean(offline, LiveBrokers(some(2))) == LeadershipChange(
        BrokerId(2), ids(2), unclean=True
    )


def test_c2_preferred_election_moves_leadership_back() -> None:
    assert preferred(partition((1, 2), leader=2, isr=(2, 1)), some(1, 2)) == LeadershipChange(
        BrokerId(1), ids(2, 1)
    )
    again = preferred(partition((1, 2), leader=1, isr=(1, 2)), some(1, 2))
    assert isinstance(again, ElectionRefused)
    assert again.error_code == errors_pb2.ELECTION_NOT_NEEDED


@pytest.mark.parametrize(
    ("live", "leader", "code"),
    [
        (some(1), 1, errors_pb2.ELECTION_NOT_NEEDED),
        (some(9), -1, errors_pb2.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_c2_unclean_election_is_refused_where_it_helps_nobody(
    live: frozenset[BrokerId], leader: int, code: int
) -> None:
    refused = unclean(partition((1, 2), leader=leader, isr=(1,)), LiveBrokers(live))
    assert isinstance(refused, ElectionRefused)
    assert refused.error_code == code


def test_b3_a_restarted_leader_yields_to_the_isr() -> None:
    before = partition((1, 2), leader=1, isr=(1, 2))
    after = after_broker_change(before, LiveBrokers(some(2), restarted=some(1)), unclean=False)
    assert after == LeadershipChange(BrokerId(2), ids(2))


def test_b3_a_restarted_only_member_leads_again_at_a_new_epoch() -> None:
    before = partition((1, 2), leader=1, isr=(1,))
    after = after_broker_change(before, LiveBrokers(some(2), restarted=some(1)), unclean=False)
    assert after == LeadershipChange(BrokerId(1), ids(1)), "a decision, though nothing else changes"


def test_d1_a_lost_log_counts_for_nothing() -> None:
    """Rule 8."""
    alone = partition((1, 2), leader=1, isr=(1,))
    lost = LiveBrokers(some(2), lost_log=some(1))
    assert after_broker_change(alone, lost, unclean=False) == LeadershipChange(NO_BROKER, ())
    with_a_dead_one = partition((1, 2), leader=1, isr=(1, 2))
    assert after_broker_change(
        with_a_dead_one, LiveBrokers(some(), lost_log=some(1)), unclean=False
    ) == LeadershipChange(NO_BROKER, ids(2))
    assert after_broker_change(alone, LiveBrokers(some(), lost_log=some(1)), unclean=True) == (
        LeadershipChange(BrokerId(1), ids(1), unclean=True)
    )


def test_an_offline_replica_is_as_one_of_a_broker_that_is_away() -> None:
    """KIP-858."""
    both = LiveBrokers(some(1, 2))
    before = partition((1, 2), leader=1, isr=(1, 2))
    after = after_broker_change(before, both.with_offline(some(1)), unclean=False)
    assert after == LeadershipChange(BrokerId(2), ids(2))
    alone = partition((1, 2), leader=1, isr=(1,))
    after = after_broker_change(alone, both.with_offline(some(1)), unclean=False)
    assert after == LeadershipChange(NO_BROKER, ids(1))
    after = after_broker_change(alone, both.with_offline(some(1)), unclean=True)
    assert after == LeadershipChange(BrokerId(2), ids(2), unclean=True)


def test_an_offline_replica_that_may_be_lost_leaves_the_isr_and_does_not_lead() -> None:
    alone = partition((1, 2), leader=1, isr=(1,))
    brokers = LiveBrokers(some(), lost_log=some(1)).with_offline(some(1))
    for unclean_allowed in (False, True):
        after = after_broker_change(alone, brokers, unclean=unclean_allowed)
        assert after == LeadershipChange(NO_BROKER, ())


def test_a_replica_that_is_of_no_use_or_stops_leaves_an_isr_that_has_others() -> None:
    """Scenario 11."""
    before = partition((1, 2, 3), leader=1, isr=(1, 2, 3))
    assert without(before, BrokerId(1), some(1, 3)) == LeadershipChange(BrokerId(3), ids(2, 3))
    assert without(before, BrokerId(2), some(1, 3)) == LeadershipChange(BrokerId(1), ids(1, 3))
    assert without(before, BrokerId(1), some(1)) is None, "nobody could take over"
    assert without(partition((1, 2), 2, (2,)), BrokerId(1), some(1, 2)) is None, "it is out"
    assert without(partition((1, 2), -1, (1, 2)), BrokerId(1), some(1, 2)) is None, "offline"


def test_c4_the_first_live_replica_leads_and_live_replicas_are_in_sync() -> None:
    new = first_leadership(ids(1, 2, 3), some(3, 2))
    assert (new.leader, new.isr, new.replicas) == (2, (2, 3), (1, 2, 3))


brokers = st.frozensets(st.integers(0, 5).map(BrokerId))


@given(
    data=st.data(),
    live=brokers,
    restarted=brokers,
    lost=brokers,
    offline=brokers,
    allowed=st.booleans(),
)
def test_c2_every_decision_is_valid_and_is_the_last_one(
    data: st.DataObject,
    live: frozenset[BrokerId],
    restarted: frozenset[BrokerId],
    lost: frozenset[BrokerId],
    offline: frozenset[BrokerId],
    allowed: bool,
) -> None:
    replicas = tuple(data.draw(st.lists(st.integers(0, 5), min_size=1, unique=True)))
    isr = tuple(data.draw(st.lists(st.sampled_from(replicas), unique=True)))
    leader = data.draw(st.sampled_from((-1, *isr)))
    arrived = LiveBrokers(live, restarted - live, lost - live - restarted)
    now = arrived.with_offline(offline)
    before = partition(replicas, leader, isr)
    after = after_broker_change(before, now, unclean=allowed)
    if after is None:
        return
    assert set(after.isr) <= set(replicas)
    assert after.leader in after.isr or after.leader == NO_BROKER
    assert after.leader in now.live - offline or after.leader == NO_BROKER
    if not after.unclean:
        assert set(after.isr) <= set(isr), "nobody joins an ISR by a controller's decision"
        assert after.leader not in now.lost_log
    if after.leader == NO_BROKER:
        assert not (set(isr) & (now.steady | now.restarted)), "a member could have led"
    admitted = LiveBrokers(arrived.live).with_offline(offline)
    then = partition(replicas, after.leader, after.isr)
    settled = after_broker_change(then, admitted, unclean=False)
    assert settled is None, "nothing is left to do once the arrivals are admitted"
