"""Who belongs in the ISR of a leader, now (C13, scenarios 13 and 15)."""

from typing import NamedTuple

from broker.replication.partition.follower_progress import FollowerProgress
from metadata_log.records import IsrMember
from metadata_log.types import BrokerEpoch, BrokerId


class AdmissionBar(NamedTuple):
    """What a follower is measured against: the leader's state at this moment."""

    leader_end: int
    high_watermark: int
    led_from_offset: int
    now_ms: int
    lag_time_max_ms: int


def belongs_in_isr(follower: FollowerProgress, bar: AdmissionBar, *, is_member: bool) -> bool:
    """A member stays unless it lags; anyone else must have all that is or may be committed.

    That is everything below the high watermark *and* below the log end with which the leader began
    to lead, the start of its epoch or beyond: a new leader's high watermark trails what its
    predecessor had committed, a restarted one's what it had committed itself.
    """
    if follower.is_lagging(bar.leader_end, bar.now_ms, bar.lag_time_max_ms):
        return False
    if is_member:
        return True
    return follower.flushed_offset >= max(bar.high_watermark, bar.led_from_offset)


def isr_member(broker_id: BrokerId, follower: FollowerProgress | None) -> IsrMember:
    """Additions are conditional on the incarnation that reported the progress."""
    epoch = BrokerEpoch(-1) if follower is None else follower.broker_epoch
    return IsrMember(broker_id=broker_id, broker_epoch=epoch)
