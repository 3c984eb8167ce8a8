"""The progress of one follower as its leader knows it, and whether it belongs in the ISR.

A follower *had caught up* at a time when it has reached the log end that the leader had then. The
leader remembers one such mark (its log end, and when it looked) until the follower reaches it, then
it sets the next one. Kafka compares with the mark of the previous fetch. Keeping the mark until it
is reached gives the same answer for a follower that reports in many small steps (scenario 13).

"The leader's log end" here is the end of what the leader has fsynced: followers are served no more
than that.
"""

from typing import Final, NamedTuple

from quorate.common.types import BrokerEpoch, BrokerId
from quorate.metadata_log.records import IsrMember

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(1 << 62)
HEARD_MS: Final = 1 << 62
"""In place of the time when a follower was found to be silent: it is heard."""


class FollowerProgress:
    """The progress of one follower. It is mutable, because it changes with every fetch."""

    __slots__ = (
        "_mark_ms",
        "_mark_offset",
        "broker_epoch",
        "caught_up_ms",
        "flushed_offset",
        "keeps_deleted",
        "silent_ms",
    )

    def __init__(self, leader_end: int, now_ms: int, *, in_sync: bool) -> None:
        """Begin to observe a follower.

        ``in_sync`` says that it is a member of the ISR: it gets the full lag time from now on
        (C13).
        """
        self.broker_epoch = BrokerEpoch(-1)
        self.flushed_offset = UNKNOWN_OFFSET
        self.keeps_deleted = False
        """Whether it has records below the leader's log start. Nobody can tell any more whether
        they are those that the leader had: they may be of a former leader, and never committed."""
        self.caught_up_ms = now_ms if in_sync else NEVER_MS
        self.silent_ms = HEARD_MS
        """The time at which it was found to be silent, or ``HEARD_MS``."""
        self._mark_offset = leader_end
        self._mark_ms = now_ms

    def record(
        self,
        broker_epoch: BrokerEpoch,
        flushed_offset: int,
        leader_end: int,
        now_ms: int,
        *,
        keeps_deleted: bool,
    ) -> None:
        """Note that this incarnation holds everything below ``flushed_offset`` durably."""
        self.broker_epoch = broker_epoch
        self.flushed_offset = flushed_offset
        self.keeps_deleted = keeps_deleted
        if flushed_offset >= leader_end:
            self.caught_up_ms = now_ms
        elif flushed_offset >= self._mark_offset:
            self.caught_up_ms = max(self.caught_up_ms, self._mark_ms)
        else:
            return
        self._mark_offset = leader_end
        self._mark_ms = now_ms

    def leader_end_moves(self, leader_end: int, now_ms: int) -> None:
        """Note, before the leader's end moves on, that a follower at this end had caught up.

        A follower of an idle partition has nothing to report, so its lag starts with the append.
        """
        if self.flushed_offset >= leader_end:
            self.caught_up_ms = now_ms
            self._mark_offset = leader_end
            self._mark_ms = now_ms

    @property
    def is_silent(self) -> bool:
        """Whether nothing is heard of it (``hosting.peer_silence``)."""
        return self.silent_ms != HEARD_MS

    def is_lagging(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Say whether it has not caught up for longer than ``replica.lag.time.max.ms``."""
        return self.flushed_offset < leader_end and now_ms - self.caught_up_ms > lag_time_max_ms


class IsrMembershipRule(NamedTuple):
    """The leader's state at this moment, against which its followers are measured."""

    leader_end: int
    high_watermark: int
    led_from_offset: int
    now_ms: int
    lag_time_max_ms: int

    def belongs_in_isr(self, follower: FollowerProgress, *, is_member: bool) -> bool:
        """Decide about one follower (C13, scenarios 13 and 15).

        A member stays unless it lags. Any other follower must have everything that is or may be
        committed: all below the high watermark *and* below the log end with which the leader began
        to lead, which is the start of its epoch or beyond. A new leader's high watermark trails
        what its predecessor had committed, and a restarted leader's trails its own. It must also
        have deleted what the leader has deleted, or as a leader it could show other records there.
        """
        if follower.is_lagging(self.leader_end, self.now_ms, self.lag_time_max_ms):
            return False
        if is_member:
            return True
        if follower.keeps_deleted:
            return False
        return follower.flushed_offset >= max(self.high_watermark, self.led_from_offset)


def isr_member(broker_id: BrokerId, follower: FollowerProgress | None) -> IsrMember:
    """Return a member for a proposal: valid only for the incarnation that told its progress."""
    epoch = BrokerEpoch(-1) if follower is None else follower.broker_epoch
    return IsrMember(broker_id=broker_id, broker_epoch=epoch)
