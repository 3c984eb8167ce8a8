"""Finds where a follower truncates its log before it fetches in a new epoch (KIP-101, KIP-279).

The follower asks the leader where the follower's newest epoch ends in the leader's log. What lies
above that was never part of the leader's log. Truncating to the high watermark instead would lose
acknowledged records: a follower's high watermark trails what it has acknowledged.
"""

from collections.abc import Callable
from typing import NamedTuple

NO_EPOCH = -1


class OffsetTruncation(NamedTuple):
    """Truncate to ``offset``; then fetch if ``done``, else ask again with the newest epoch left.

    ``offset`` is None if the leader knows nothing of this log: start over at its log start.
    """

    offset: int | None
    done: bool


def plan_truncation(
    leader_answer: tuple[int, int],
    log_end_offset: int,
    own_end_of: Callable[[int], tuple[int, int]],
) -> OffsetTruncation:
    """Decide what to do with the leader's answer ``(epoch, end offset)``, (-1, -1) for none.

    ``own_end_of(epoch)`` puts the same question to the local history: it returns the largest local
    epoch at or below ``epoch``, and where it ends, or (-1, -1) if there is none.
    """
    leader_epoch, leader_end = leader_answer
    if leader_end < 0:
        return OffsetTruncation(None, done=True)
    own_epoch, own_end = own_end_of(leader_epoch)
    if own_epoch == NO_EPOCH or own_end < 0:
        return OffsetTruncation(min(leader_end, log_end_offset), done=True)
    if own_epoch != leader_epoch:
        return OffsetTruncation(min(own_end, log_end_offset), done=False)
    return OffsetTruncation(min(own_end, leader_end, log_end_offset), done=True)
