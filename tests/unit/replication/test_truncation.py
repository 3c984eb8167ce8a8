"""Where a follower cuts its log: by leader-epoch history, in as many rounds as it takes."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.log.state.leader_epoch_cache import LeaderEpochCache
from quorate.broker.replication.partition.checks import check_leader_epoch
from quorate.broker.replication.partition.truncation import OffsetTruncation, plan_truncation
from quorate.common.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2


def cut(
    own: list[tuple[int, int]], own_end: int, leader: list[tuple[int, int]], leader_end: int
) -> int | None:
    """The log end after all rounds; None: start over. Histories are (epoch, start) pairs."""
    mine, theirs = LeaderEpochCache(own), LeaderEpochCache(leader)
    for _ in range(20):
        answer = theirs.end_offset_for(mine.latest_epoch, leader_end)
        plan = plan_truncation(
            (answer.leader_epoch, answer.end_offset), own_end, ends_of(mine, own_end)
        )
        if plan.offset is None:
            return None
        own_end = plan.offset
        mine.truncate_from_end(own_end)
        if plan.done:
            return own_end
    raise AssertionError("truncation does not end")


def ends_of(history: LeaderEpochCache, log_end: int) -> Callable[[int], tuple[int, int]]:
    return lambda epoch: history.end_offset_for(LeaderEpoch(epoch), log_end)


def test_kip101_a_follower_ahead_in_an_old_epoch_is_cut_where_the_leader_ended_it() -> None:
    assert cut([(0, 0)], 10, [(0, 0), (1, 8)], 12) == 8


def test_kip101_a_follower_that_is_merely_behind_keeps_everything() -> None:
    """Its high watermark may be 0: truncating to that would lose acknowledged records."""
    assert cut([(0, 0)], 7, [(0, 0), (1, 8)], 12) == 7


def test_kip101_the_same_history_cuts_to_the_shorter_log() -> None:
    assert cut([(0, 0), (3, 5)], 9, [(0, 0), (3, 5)], 8) == 8


def test_kip279_an_epoch_the_leader_never_had_is_dropped_and_asked_below() -> None:
    """Fast leader changes: the follower has epoch 1, which the leader of epoch 2 never saw."""
    assert cut([(0, 0), (1, 6)], 10, [(0, 0), (2, 8)], 12) == 6


def test_kip279_takes_a_second_question_if_the_leaders_floor_is_unknown_here() -> None:
    assert cut([(1, 0), (3, 10)], 20, [(1, 0), (2, 5), (4, 15)], 30) == 5


def test_kip101_an_answer_of_nothing_starts_over() -> None:
    assert plan_truncation((-1, -1), 10, lambda epoch: (epoch, 10)) == OffsetTruncation(
        None, done=True
    )


def test_c12_the_leaders_log_begins_beyond_the_followers_end() -> None:
    """All epochs the leader still has are newer: what the follower holds ends before them."""
    assert cut([(0, 0)], 7, [(5, 100)], 120) == 7


HISTORY = st.lists(st.integers(1, 4), min_size=1, max_size=8)


@given(HISTORY, HISTORY, st.integers(0, 7))
def test_kip279_after_truncation_the_log_is_a_prefix_of_the_leaders(
    follower_run: list[int], leader_run: list[int], shared: int
) -> None:
    """Logs as runs of batches by epoch, equal for the first ``shared`` epochs, then apart.

    Epochs after the split are even at the leader and odd at the follower: never the same leader.
    """
    common = leader_run[:shared]
    leader_epochs = [2 * i for i in range(len(leader_run))]
    follower_sizes = common + follower_run[len(common) :]
    follower_epochs = [2 * i if i < len(common) else 2 * i + 1 for i in range(len(follower_sizes))]
    leader_log = [e for e, size in zip(leader_epochs, leader_run, strict=True) for _ in range(size)]
    follower_log = [
        e for e, size in zip(follower_epochs, follower_sizes, strict=True) for _ in range(size)
    ]
    leader_log.append(1_000)
    end = cut(starts(follower_log), len(follower_log), starts(leader_log), len(leader_log))
    assert end is not None
    equal = 0
    for mine, theirs in zip(follower_log, leader_log, strict=False):
        if mine != theirs:
            break
        equal += 1
    assert end == equal


def starts(epochs: list[int]) -> list[tuple[int, int]]:
    found: dict[int, int] = {}
    for offset, epoch in enumerate(epochs):
        found.setdefault(epoch, offset)
    return list(found.items())


def test_c12_a_requests_leader_epoch_is_checked_both_ways() -> None:
    known = LeaderEpoch(5)
    assert check_leader_epoch(5, known) == errors_pb2.NONE
    assert check_leader_epoch(-1, known) == errors_pb2.NONE
    assert check_leader_epoch(4, known) == errors_pb2.FENCED_LEADER_EPOCH
    assert check_leader_epoch(6, known) == errors_pb2.UNKNOWN_LEADER_EPOCH
