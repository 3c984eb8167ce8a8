"""Who is in the ISR: a timer, a bar to reach, and compare-and-set (C1, C13, C15)."""

import pytest

from quorate.broker.replication.partition.effects import ReplicaRole, SteppedDown
from quorate.broker.replication.partition.partition_replica import ISR_RETRY_BACKOFF_MS
from quorate.common.types import BrokerEpoch
from tests.support.replica import LAG_TIME_MAX_MS, ReplicaUnderTest, ids, leadership


def caught_up_leader(*, isr: tuple[int, ...] = (1, 2, 3)) -> ReplicaUnderTest:
    """Leads with everyone at offset 10, at time 0."""
    replica = ReplicaUnderTest()
    replica.lead(isr=isr)
    replica.flush(10)
    for member in isr[1:]:
        replica.fetch(member, 10)
    return replica


def test_scenario_13_a_silent_follower_leaves_the_isr() -> None:
    replica = caught_up_leader()
    replica.flush(11)
    replica.fetch(2, 11)
    replica.tick_at(LAG_TIME_MAX_MS)
    assert not replica.proposals
    replica.tick_at(150)
    assert replica.proposed == (1, 2)
    replica.commit_isr()
    assert replica.isr == (1, 2)
    assert replica.high_watermark == 11


def test_scenario_13_behind_at_0_and_at_75_ms_is_out_at_150() -> None:
    replica = ReplicaUnderTest()
    replica.lead(isr=(1, 2), replicas=(1, 2))
    replica.flush(10)
    replica.fetch(2, 2)
    replica.now_ms = 75
    replica.fetch(2, 5)
    replica.tick_at(150)
    assert replica.proposed == (1,)


def test_scenario_13_reaching_the_log_end_brings_it_back() -> None:
    replica = caught_up_leader(isr=(1, 2))
    replica.fetch(3, 9)
    assert not replica.proposals
    replica.fetch(3, 10)
    assert replica.proposed == (1, 2, 3)
    replica.commit_isr()
    assert replica.isr == (1, 2, 3)


def test_c13_reaching_the_end_the_leader_had_before_counts_as_caught_up_then() -> None:
    """A follower that is always a little behind a busy leader stays."""
    replica = ReplicaUnderTest()
    replica.lead(isr=(1, 2), replicas=(1, 2))
    for step in range(1, 40):
        replica.tick_at(step * 20)
        replica.flush(step * 10)
        replica.fetch(2, (step - 1) * 10)
    assert not replica.proposals


def test_c13_a_follower_that_reports_in_small_steps_is_measured_by_what_it_reaches() -> None:
    """The mark stays until it is reached: many small reports must not keep moving it."""
    replica = ReplicaUnderTest()
    replica.lead(isr=(1, 2), replicas=(1, 2))
    replica.flush(100)
    replica.fetch(2, 0)
    replica.now_ms = 60
    replica.flush(200)
    for offset in range(10, 101, 10):
        replica.fetch(2, offset)
    replica.now_ms = 120
    replica.flush(300)
    for offset in range(110, 201, 10):
        replica.fetch(2, offset)
    replica.tick_at(155)
    assert not replica.proposals, "at 120 ms it had what the leader had at 60"
    replica.tick_at(161)
    assert replica.proposed == (1,)


def test_c13_the_timer_alone_shrinks_when_nobody_fetches_or_produces() -> None:
    replica = ReplicaUnderTest()
    replica.lead()
    replica.flush(1)
    replica.tick_at(LAG_TIME_MAX_MS + 1)
    assert replica.proposed == (1,)


def test_c13_an_idle_follower_at_the_log_end_stays_and_has_the_full_time_after_an_append() -> None:
    replica = caught_up_leader()
    replica.tick_at(1_000_000)
    assert not replica.proposals
    replica.flush(11)
    replica.tick_at(1_000_000 + LAG_TIME_MAX_MS)
    assert not replica.proposals
    replica.tick_at(1_000_001 + LAG_TIME_MAX_MS)
    assert replica.proposed == (1,)


def test_scenario_15_at_the_old_watermark_but_below_the_epochs_start_is_not_admitted() -> None:
    replica = ReplicaUnderTest(high_watermark=4)
    replica.replica.flushed_offset = 8
    replica.lead(epoch=5, isr=(1, 2), led_from=10)
    replica.fetch(3, 8)
    assert not replica.proposals, "8 is beyond the watermark 4, but epoch 5 begins at 10"
    replica.flush(10)
    replica.fetch(3, 10)
    assert replica.proposed == (1, 2, 3)


def test_c13_below_the_watermark_is_not_admitted() -> None:
    replica = caught_up_leader(isr=(1, 2))
    replica.fetch(3, 9)
    assert not replica.proposals


def test_c13_who_has_records_that_the_leader_has_deleted_is_not_admitted() -> None:
    """They may be of a former leader and never committed: the leader cannot tell any more."""
    replica = caught_up_leader(isr=(1, 2))
    replica.fetch(3, 10, keeps_deleted=True)
    replica.tick_at(replica.now_ms + 1_000)
    assert not replica.proposals
    replica.fetch(3, 10)
    assert replica.proposed == (1, 2, 3)


def test_c13_a_member_stays_while_it_deletes_a_little_later_than_its_leader() -> None:
    replica = caught_up_leader(isr=(1, 2))
    replica.fetch(2, 10, keeps_deleted=True)
    replica.tick_at(replica.now_ms + LAG_TIME_MAX_MS // 2)
    assert not replica.proposals


def test_c13_an_addition_names_the_incarnation_that_caught_up() -> None:
    replica = caught_up_leader(isr=(1, 2))
    replica.fetch(3, 10, broker_epoch=77)
    assert replica.proposal.members[2].broker_epoch == BrokerEpoch(77)


def test_c1_one_isr_change_is_in_flight_at_a_time() -> None:
    replica = caught_up_leader(isr=(1,))
    replica.fetch(2, 10)
    replica.fetch(3, 10)
    assert [p.expected_version for p in replica.proposals] == [0]
    replica.commit_isr()
    assert replica.proposed == (1, 2, 3), "what was missed is proposed at once"
    assert replica.proposal.expected_version == 1


def test_c12_a_pending_addition_already_holds_the_watermark() -> None:
    replica = caught_up_leader(isr=(1, 2))
    replica.fetch(3, 10)
    replica.flush(20)
    replica.fetch(2, 20)
    assert replica.high_watermark == 10
    replica.commit_isr()
    assert replica.high_watermark == 10
    replica.fetch(3, 20)
    assert replica.high_watermark == 20


def test_c1_an_unknown_outcome_keeps_holding_the_watermark_until_it_is_settled() -> None:
    replica = caught_up_leader(isr=(1, 2))
    replica.fetch(3, 10)
    replica.lose_isr_answer()
    replica.flush(20)
    replica.fetch(2, 20)
    assert replica.high_watermark == 10, "broker 3 may be in the ISR by now"
    replica.tick_at(ISR_RETRY_BACKOFF_MS)
    assert len(replica.proposals) == 2
    assert replica.proposal.expected_version == 0
    assert replica.proposed == (1, 2), "broker 3 lags by now"
    replica.commit_isr()
    assert replica.high_watermark == 20


def test_c1_an_unknown_outcome_is_settled_even_if_no_change_is_wanted_any_more() -> None:
    replica = caught_up_leader(isr=(1, 2))
    replica.fetch(3, 10)
    replica.lose_isr_answer()
    replica.flush(11)
    replica.fetch(2, 11)
    replica.tick_at(ISR_RETRY_BACKOFF_MS + 1)
    assert replica.proposed == replica.isr == (1, 2)


def test_c1_a_newer_record_settles_what_was_in_flight() -> None:
    replica = caught_up_leader(isr=(1, 2))
    replica.fetch(3, 10)
    replica.learn(epoch=0, isr=(1, 2, 3), version=1)
    assert replica.isr == (1, 2, 3)
    replica.commit_isr(version=1)
    assert replica.isr == (1, 2, 3)
    assert replica.replica.isr.version == 1


def test_c1_a_refused_change_no_longer_holds_the_watermark_and_is_retried_later() -> None:
    replica = caught_up_leader(isr=(1, 2))
    replica.fetch(3, 10)
    replica.flush(20)
    replica.fetch(2, 20)
    replica.refuse_isr()
    assert replica.high_watermark == 20
    replica.fetch(3, 20)
    assert len(replica.proposals) == 1, "not at once: it was refused for a reason"
    replica.tick_at(ISR_RETRY_BACKOFF_MS)
    assert replica.proposed == (1, 2, 3)


def test_c1_after_a_conflict_it_retries_from_the_fresh_read_while_it_still_leads() -> None:
    replica = caught_up_leader(isr=(1, 2))
    replica.fetch(3, 10)
    replica.conflict(leadership(1, epoch=0, isr=(1,), version=5))
    assert replica.proposal.expected_version == 5
    assert replica.proposed == (1, 3)
    replica.commit_isr()
    assert replica.isr == (1, 3)


def test_c15_after_a_conflict_with_a_newer_epoch_it_steps_down_and_commits_nothing() -> None:
    replica = caught_up_leader(isr=(1, 2))
    replica.flush(11)
    replica.tick_at(LAG_TIME_MAX_MS + 1)
    assert replica.proposed == (1,)
    replica.conflict(leadership(2, epoch=1, isr=(2,), version=1))
    assert replica.replica.role is ReplicaRole.SUSPENDED
    assert replica.all_of(SteppedDown) == [SteppedDown(replica.replica.leader_epoch.__class__(1))]
    replica.fetch(2, 11)
    replica.tick_at(10_000)
    assert replica.high_watermark == 10
    assert len(replica.proposals) == 1


def test_c15_a_deposed_leader_cannot_commit_while_its_change_is_not_applied() -> None:
    """The members that went with the new leader stay in its ISR, and they do not fetch."""
    replica = caught_up_leader(isr=(1, 2, 3))
    replica.flush(50)
    replica.tick_at(LAG_TIME_MAX_MS + 1)
    assert replica.proposed == (1,)
    assert replica.high_watermark == 10
    replica.lose_isr_answer()
    replica.tick_at(5_000)
    assert replica.high_watermark == 10


def test_c15_a_fetch_in_a_newer_epoch_suspends_until_it_is_told() -> None:
    replica = caught_up_leader()
    replica.see_epoch(0)
    assert replica.is_in(ReplicaRole.LEADER)
    replica.see_epoch(1)
    assert replica.is_in(ReplicaRole.SUSPENDED)
    before = len(replica.effects)
    replica.flush(11)
    replica.fetch(2, 11)
    replica.fetch(3, 11)
    assert len(replica.effects) == before, "a suspended leader decides nothing"
    replica.lead(epoch=1, version=1)
    assert replica.is_in(ReplicaRole.LEADER)


@pytest.mark.parametrize(
    ("epoch", "version", "obeyed"),
    [(3, 8, True), (4, 0, True), (3, 7, False), (3, 6, False), (2, 99, False)],
)
def test_c17_a_command_is_obeyed_only_if_epoch_and_version_are_newer(
    epoch: int, version: int, obeyed: bool
) -> None:
    replica = ReplicaUnderTest()
    replica.lead(epoch=3, version=7)
    assert replica.replica.is_newer(leadership(2, epoch=epoch, version=version)) is obeyed


def test_c17_a_stopped_replica_still_knows_its_epoch() -> None:
    replica = ReplicaUnderTest()
    replica.lead(epoch=3, version=7)
    replica.stop()
    assert replica.replica.role is ReplicaRole.IDLE
    assert not replica.replica.is_newer(leadership(1, epoch=3, version=7))


def test_c7_a_replica_that_was_set_aside_obeys_the_same_command_again() -> None:
    replica = ReplicaUnderTest()
    replica.lead(epoch=3, version=7)
    replica.replica.set_aside()
    assert replica.replica.is_newer(leadership(1, epoch=3, version=7))
    assert not replica.replica.is_newer(leadership(1, epoch=3, version=6))


def test_c6_becoming_leader_adopts_isr_and_version_of_the_command() -> None:
    replica = ReplicaUnderTest()
    replica.follow(2, epoch=1, version=3)
    replica.lead(epoch=2, isr=(1, 3), version=9)
    assert replica.isr == (1, 3)
    assert replica.replica.isr.version == 9
    assert replica.replica.replicas == ids(1, 2, 3)


def test_c17_in_the_same_epoch_only_isr_and_version_change() -> None:
    replica = caught_up_leader()
    assert replica.replica.continues(leadership(1, epoch=0, isr=(1, 2), version=1))
    replica.flush(12)
    replica.fetch(2, 12)
    replica.learn(epoch=0, isr=(1, 2), version=1)
    assert replica.high_watermark == 12, "what is known of broker 2 still holds"


def test_c2_a_member_that_the_controller_removed_rejoins_only_by_fetching_again() -> None:
    """It is dead, or stopping: what it once reported must not bring it back."""
    replica = caught_up_leader()
    replica.learn(epoch=0, isr=(1, 2), version=1)
    replica.tick_at(50)
    assert not replica.proposals
    replica.fetch(3, 10, broker_epoch=11)
    assert replica.proposed == (1, 2, 3)


def test_c10_a_resumed_leader_counts_every_replica_until_the_record_is_newer() -> None:
    """Its earlier incarnation may have asked for any of them, and the change may still come."""
    replica = ReplicaUnderTest(high_watermark=4)
    replica.lead(epoch=3, isr=(1,), version=7, replicas=(1, 2), resumes=True)
    replica.flush(10)
    assert replica.high_watermark == 4
    replica.fetch(2, 6)
    assert replica.high_watermark == 6, "whoever may be in the ISR has this"
    replica.learn(epoch=3, isr=(1,), version=8)
    assert replica.high_watermark == 10


def test_c10_a_resumed_leader_settles_the_record_itself_if_nobody_else_does() -> None:
    replica = ReplicaUnderTest()
    replica.lead(epoch=3, isr=(1,), version=7, replicas=(1, 2), resumes=True)
    replica.flush(10)
    replica.tick_at(ISR_RETRY_BACKOFF_MS - 1)
    assert not replica.proposals, "the new registration brings a new epoch first, mostly"
    replica.tick_at(ISR_RETRY_BACKOFF_MS)
    assert (replica.proposed, replica.proposal.expected_version) == ((1,), 7)
    replica.refuse_isr()
    assert replica.high_watermark == 0, "refused: it is not registered yet"
    replica.tick_at(2 * ISR_RETRY_BACKOFF_MS)
    replica.commit_isr()
    assert replica.high_watermark == 10


def test_c10_a_resumed_leader_with_all_its_replicas_in_sync_has_nothing_to_settle() -> None:
    replica = ReplicaUnderTest()
    replica.lead(epoch=3, isr=(1, 2), version=7, replicas=(1, 2), resumes=True)
    replica.flush(10)
    replica.fetch(2, 10)
    replica.tick_at(ISR_RETRY_BACKOFF_MS)
    assert replica.high_watermark == 10
    assert not replica.proposals


def test_c7_a_leader_that_was_set_aside_with_a_change_under_way_counts_every_replica() -> None:
    replica = ReplicaUnderTest()
    replica.lead(epoch=3, isr=(1,), version=7, replicas=(1, 2))
    replica.flush(10)
    replica.fetch(2, 10)
    assert replica.proposed == (1, 2)
    replica.replica.set_aside()
    replica.lead(epoch=3, isr=(1,), version=7, replicas=(1, 2))
    replica.flush(20)
    assert replica.high_watermark == 10, "broker 2 may be in the ISR by now"
