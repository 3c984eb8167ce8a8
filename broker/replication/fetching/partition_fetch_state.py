"""One partition as its follower fetches it: where it stands between truncation and fetching."""

from enum import Enum, auto

from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.partition.follower_progress import UNKNOWN_OFFSET
from quorate.broker.replication.streams.fetch_messages import ReplicaPosition
from quorate.common.types import LeaderEpoch, TopicIdPartition

BACKOFF_FIRST_MS = 30
BACKOFF_MAX_MS = 1_000


class FetchPhase(Enum):
    """The next step for the partition on this stream."""

    CHECKING = auto()
    """Its log must be compared with the leader's before anything is fetched (KIP-101)."""
    FETCHING = auto()
    """The leader has its position."""


class PartitionFetchState:
    """A partition that follows a leader in one leader epoch.

    When the leader or the epoch changes, another one takes its place.
    """

    __slots__ = (
        "failures",
        "hosted",
        "is_held",
        "is_stopped",
        "leader_epoch",
        "leader_high_watermark",
        "leader_log_start",
        "phase",
        "restart_at",
        "retry_at_ms",
        "start_over",
        "tip",
    )

    def __init__(
        self, hosted: HostedPartition, leader_epoch: LeaderEpoch, *, start_over: bool = False
    ) -> None:
        self.hosted = hosted
        self.tip: TopicIdPartition = hosted.tip
        self.leader_epoch = leader_epoch
        self.phase = FetchPhase.CHECKING
        self.failures = 0
        self.retry_at_ms = 0
        self.is_held = False
        """Whether the throttle keeps it waiting: the leader was told to forget its position."""
        self.is_stopped = False
        """Whether the partition follows somebody else by now, or nobody."""
        self.leader_high_watermark: int | None = None
        """The high watermark that the leader told last, in this epoch."""
        self.leader_log_start = 0
        """The log start that the leader told last, in this epoch: the local log follows it."""
        self.start_over = start_over
        """Whether the leader knows nothing of the local log: ask it where its own log begins."""
        self.restart_at: int | None = None
        """The leader's log start, if it lies beyond the local end: drop everything, go on there."""

    @property
    def is_fetching(self) -> bool:
        """Whether the leader has its position."""
        return self.phase is FetchPhase.FETCHING

    @property
    def is_in_sync(self) -> bool:
        """Whether it has all that is committed, as far as the leader has told."""
        known = self.leader_high_watermark
        return known is not None and self.hosted.log.log_end_offset >= known

    @property
    def fetch_offset(self) -> int:
        """The first offset wanted; -1 makes the leader answer with its log start."""
        return -1 if self.start_over else self.hosted.log.log_end_offset

    def position(self, *, can_append: bool) -> ReplicaPosition:
        """Return what the leader must know: what to send next, and what is durable here.

        What is about to be dropped counts for nothing. And no ISR is to rely on a full disk, which
        holds all that is committed only until something more is: ``can_append`` is False then.
        """
        partition_log = self.hosted.log
        counts = can_append and not self.start_over
        return ReplicaPosition(
            self.tip,
            self.leader_epoch,
            self.fetch_offset,
            partition_log.flushed_offset if counts else UNKNOWN_OFFSET,
            partition_log.log_start_offset,
        )

    # -- events ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Note that the partition does not follow this leader in this epoch any more."""
        self.is_stopped = True

    def check_again(self) -> None:
        """Compare the log with the leader's again: a new stream begins."""
        self.phase = FetchPhase.CHECKING
        self.is_held = False

    def begin_fetching(self) -> None:
        """Note that the log is a beginning of the leader's."""
        self.phase = FetchPhase.FETCHING

    def back_off(self, now_ms: int) -> None:
        """Wait before the next try, longer each time."""
        wait_ms = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(self.failures, 8))
        self.failures += 1
        self.retry_at_ms = now_ms + wait_ms
        self.phase = FetchPhase.CHECKING

    def hold(self) -> None:
        """Wait for the throttle."""
        self.is_held = True

    def release(self) -> None:
        """Wait for the throttle no more."""
        self.is_held = False

    def note_leader(self, high_watermark: int, log_start_offset: int) -> None:
        """Remember what the leader told in this epoch."""
        self.leader_high_watermark = high_watermark
        self.leader_log_start = log_start_offset

    def note_success(self) -> None:
        """Wait only briefly after the next failure."""
        self.failures = 0

    def begin_over(self) -> None:
        """Ask the leader where its log begins: it knows nothing of the local one."""
        self.start_over = True

    def restart(self, offset: int) -> None:
        """Have the log dropped and begun at ``offset``, before anything is fetched."""
        self.restart_at = offset

    def note_restarted(self) -> None:
        """Note that the log was dropped and begins where the leader's does."""
        self.restart_at = None
        self.start_over = False
