"""Where a follower cuts its log before it fetches in a new leader epoch (KIP-101, KIP-279).

It asks the leader where its own newest epoch ends there. What lies above that was never part of the
leader's log. Truncating to the high watermark instead would lose acknowledged records: a follower's
high watermark trails what it has acknowledged.
"""

from collections.abc import Callable
from typing import NamedTuple

NO_EPOCH = -1


class Truncation(NamedTuple):
    """Cut the log at ``offset``; then fetch if ``done``, else ask again with the newest epoch left.

    ``offset`` None: nothing of this log is known to the leader, start over at its log start.
    """

    offset: int | None
    done: bool


def plan_truncation(
    leader_answer: tuple[int, int],
    log_end_offset: int,
    own_end_of: Callable[[int], tuple[int, int]],
) -> Truncation:
    """What to do with the leader's answer ``(epoch, end offset)``, (-1, -1) if it knows none.

    ``own_end_of(epoch)`` is the same question to the local history: the largest local epoch at or
    below ``epoch``, and where it ends; (-1, -1) if there is none.
    """
    leader_epoch, leader_end = leader_answer
    if leader_end < 0:
        return Truncation(None, done=True)
    own_epoch, own_end = own_end_of(leader_epoch)
    if own_epoch == NO_EPOCH or own_end < 0:
        return Truncation(min(leader_end, log_end_offset), done=True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_end, log_end_offset), done=False)
    return Truncation(min(own_end, leader_end, log_end_offset), done=True)
