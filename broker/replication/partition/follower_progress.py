"""What a leader knows of one follower: how far its log is durable, and when it had caught up.

A follower *had caught up* at a time when it has reached the log end that the leader had then. The
leader remembers one such mark (its log end, and when it looked) until the follower reaches it, then
sets the next one. Kafka compares with the mark of the previous fetch; keeping the mark until it is
reached says the same of a follower that reports in many small steps (scenario 13).

The leader's log end is here the end of what it has fsynced: followers are served no more than that.
"""

from typing import Final

from metadata_log.types import BrokerEpoch

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(1 << 62)


class FollowerProgress:
    """Mutable, because it changes with every fetch of every partition."""

    __slots__ = ("_mark_ms", "_mark_offset", "broker_epoch", "caught_up_ms", "flushed_offset")

    def __init__(self, leader_end: int, now_ms: int, *, in_sync: bool) -> None:
        """``in_sync``: a member of the ISR is given the full lag time from now on (C13)."""
        self.broker_epoch = BrokerEpoch(-1)
        self.flushed_offset = UNKNOWN_OFFSET
        self.caught_up_ms = now_ms if in_sync else NEVER_MS
        self._mark_offset = leader_end
        self._mark_ms = now_ms

    def record(self, flushed_offset: int, leader_end: int, now_ms: int) -> None:
        """The follower holds everything below ``flushed_offset``, durably."""
        self.flushed_offset = flushed_offset
        if flushed_offset >= leader_end:
            self.caught_up_ms = now_ms
        elif flushed_offset >= self._mark_offset:
            self.caught_up_ms = max(self.caught_up_ms, self._mark_ms)
        else:
            return
        self._mark_offset = leader_end
        self._mark_ms = now_ms

    def leader_end_moves(self, leader_end: int, now_ms: int) -> None:
        """Called before the leader's end moves on: who is at it now has caught up until now.

        A follower of an idle partition has nothing to report, so its lag starts with the append.
        """
        if self.flushed_offset >= leader_end:
            self.caught_up_ms = now_ms
            self._mark_offset = leader_end
            self._mark_ms = now_ms

    def is_lagging(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it has not caught up for longer than ``replica.lag.time.max.ms``."""
        return self.flushed_offset < leader_end and now_ms - self.caught_up_ms > lag_time_max_ms
