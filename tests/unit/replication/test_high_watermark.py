"""The high watermark: over the maximal ISR, durable offsets only, never back (C12, C16)."""

from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.replication.partition.checks import check_fetch_offset
from quorate.broker.replication.partition.effects import FailWaiters, HighWatermarkAdvanced
from quorate_proto.v1 import errors_pb2
from tests.support.replica import ReplicaUnderTest, leadership


def test_c12_leader_advances_to_the_least_durable_offset_of_the_isr() -> None:
    replica = ReplicaUnderTest()
    replica.lead()
    replica.flush(10)
    replica.fetch(2, 7)
    assert replica.high_watermark == 0, "nothing is known of broker 3"
    replica.fetch(3, 9)
    assert replica.high_watermark == 7
    replica.fetch(2, 10)
    assert replica.high_watermark == 9
    assert replica.all_of(HighWatermarkAdvanced) == [
        HighWatermarkAdvanced(7),
        HighWatermarkAdvanced(9),
    ]


def test_c12_the_leaders_own_durable_offset_counts() -> None:
    replica = ReplicaUnderTest()
    replica.lead(isr=(1, 2))
    replica.fetch(2, 10)
    assert replica.high_watermark == 0
    replica.flush(4)
    assert replica.high_watermark == 4


def test_c12_an_assigned_replica_outside_the_isr_holds_nothing_back() -> None:
    replica = ReplicaUnderTest()
    replica.lead(isr=(1, 2))
    replica.flush(10)
    replica.fetch(2, 10)
    replica.fetch(3, 1)
    replica.flush(20)
    replica.fetch(2, 20)
    assert replica.high_watermark == 20


def test_c12_follower_takes_the_lesser_of_the_leaders_watermark_and_its_own_log_end() -> None:
    replica = ReplicaUnderTest()
    replica.follow(2, epoch=1)
    replica.replica.follow_high_watermark(50, log_end_offset=20)
    assert replica.high_watermark == 20
    replica.replica.follow_high_watermark(30, log_end_offset=40)
    assert replica.high_watermark == 30


def test_c12_a_single_replica_commits_alone() -> None:
    replica = ReplicaUnderTest()
    replica.lead(isr=(1,), replicas=(1,))
    replica.flush(3)
    assert replica.high_watermark == 3


def test_scenario_14_below_min_insync_replicas_the_watermark_stays_until_expansion() -> None:
    replica = ReplicaUnderTest(min_insync_replicas=3)
    replica.lead(isr=(1, 2), version=4)
    assert not replica.replica.has_enough_replicas, "acks=all is refused"
    replica.flush(10)
    replica.fetch(2, 10)
    replica.fetch(3, 10)
    assert replica.proposed == (1, 2, 3)
    assert replica.high_watermark == 0, "all have the data, but the expansion is not committed"
    replica.commit_isr()
    assert replica.isr == (1, 2, 3)
    assert replica.high_watermark == 10


def test_scenario_14_a_topic_of_fewer_replicas_than_the_minimum_asks_for_all_it_has() -> None:
    replica = ReplicaUnderTest(min_insync_replicas=3)
    replica.lead(isr=(1, 2), replicas=(1, 2))
    assert replica.replica.has_enough_replicas


def test_c11_a_replica_that_is_being_added_is_not_asked_for_yet() -> None:
    """One replica of a topic with min.insync.replicas=2 moves: its producers go on."""
    replica = ReplicaUnderTest(min_insync_replicas=2)
    replica.lead(isr=(1,), replicas=(1, 2), adding=(2,))
    replica.flush(10)
    assert replica.high_watermark == 10
    replica.lead(isr=(1, 2), replicas=(1, 2), epoch=1, version=2)
    replica.lead(isr=(1,), replicas=(1, 2), epoch=2, version=3)
    replica.flush(20)
    assert replica.high_watermark == 10, "both are its own now"


def test_scenario_14_an_isr_that_falls_below_the_minimum_answers_nobody() -> None:
    """What waits is in the log: only its commit, or the end of the leadership, is an answer."""
    replica = ReplicaUnderTest(min_insync_replicas=2)
    replica.lead(isr=(1, 2), replicas=(1, 2))
    replica.flush(5)
    replica.tick_at(150)
    replica.commit_isr()
    assert replica.isr == (1,)
    assert not replica.all_of(FailWaiters)
    assert replica.high_watermark == 0


def test_scenario_16_demotion_fails_waiting_produces_with_not_leader() -> None:
    replica = ReplicaUnderTest()
    replica.lead()
    replica.flush(5)
    replica.follow(2, epoch=1)
    (failure,) = replica.all_of(FailWaiters)
    assert failure.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    assert "broker 2 leads orders-0" in failure.message


def test_c16_offsets_from_log_start_to_log_end_are_accepted_all_others_are_out_of_range() -> None:
    assert check_fetch_offset(5, log_start_offset=5, log_end_offset=9) == errors_pb2.NONE
    assert check_fetch_offset(9, log_start_offset=5, log_end_offset=9) == errors_pb2.NONE
    assert (
        check_fetch_offset(10, log_start_offset=5, log_end_offset=9)
        == errors_pb2.OFFSET_OUT_OF_RANGE
    )
    assert (
        check_fetch_offset(4, log_start_offset=5, log_end_offset=9)
        == errors_pb2.OFFSET_OUT_OF_RANGE
    )


def test_c12_a_new_epoch_forgets_what_was_known_of_followers() -> None:
    replica = ReplicaUnderTest()
    replica.lead(epoch=0)
    replica.flush(10)
    replica.fetch(2, 4)
    replica.fetch(3, 9)
    replica.lead(epoch=2, version=2)
    replica.fetch(2, 10)
    assert replica.high_watermark == 4, "broker 3 may have truncated in epoch 1"


def test_c12_an_older_incarnation_of_a_follower_is_not_believed() -> None:
    replica = ReplicaUnderTest()
    replica.lead(isr=(1, 2), replicas=(1, 2))
    replica.flush(10)
    replica.fetch(2, 3, broker_epoch=20)
    replica.fetch(2, 9, broker_epoch=19)
    assert replica.high_watermark == 3


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["flush", "fetch2", "fetch3", "tick", "commit", "lose", "refuse"]),
        st.integers(0, 50),
    ),
    max_size=60,
)


@given(EVENTS)
def test_c12_the_watermark_never_goes_back_and_never_passes_a_member(  # noqa: C901 - a script
    events: list[tuple[str, int]],
) -> None:
    replica = ReplicaUnderTest()
    replica.lead()
    durable = {2: -1, 3: -1}
    flushed = 0
    for name, number in events:
        before = replica.high_watermark
        match name:
            case "flush":
                flushed = max(flushed, number)
                replica.flush(flushed)
            case "fetch2" | "fetch3":
                follower = int(name[-1])
                durable[follower] = max(durable[follower], min(number, flushed))
                replica.fetch(follower, durable[follower])
            case "tick":
                replica.tick_at(replica.now_ms + 10 * number)
            case _ if replica.replica.isr.in_flight is None:
                continue
            case "commit":
                replica.commit_isr()
            case "lose":
                replica.lose_isr_answer()
            case "refuse":
                replica.refuse_isr()
        after = replica.high_watermark
        assert after >= before
        assert replica.replica.broker_id in replica.isr
        if after > before:
            assert after <= flushed
            for member in replica.replica.isr.maximal - {1}:
                assert after <= durable[member]


def test_c17_becoming_follower_and_leader_again_keeps_the_watermark() -> None:
    replica = ReplicaUnderTest()
    replica.lead(isr=(1,), replicas=(1, 2))
    replica.flush(8)
    replica.follow(2, epoch=1)
    replica.replica.local_truncated(log_end_offset=6, flushed_offset=6)
    assert replica.high_watermark == 6, "a follower's watermark cannot be beyond its log"
    assert replica.replica.is_newer(leadership(1, epoch=2))
