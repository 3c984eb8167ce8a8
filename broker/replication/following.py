"""One partition as its follower fetches it: where it stands between truncation and fetching."""

from enum import Enum, auto
from typing import Protocol

from broker.replication.hosted import HostedPartition
from broker.replication.partition.follower_progress import UNKNOWN_OFFSET
from metadata_log.types import BrokerId, LeaderEpoch, TopicIdPartition
from quorate_proto.v1 import replication_pb2

BACKOFF_FIRST_MS = 30
BACKOFF_MAX_MS = 1_000


class Phase(Enum):
    """What comes next for the partition on this stream."""

    CHECKING = auto()
    """Its log must be compared with the leader's before anything is fetched (KIP-101)."""
    FETCHING = auto()
    """The leader has its position."""


class Session(Protocol):
    """``follower_session.FollowerSession``: all that is followed at one leader."""

    leader: BrokerId

    @property
    def is_empty(self) -> bool:
        """Whether nothing is followed there any more."""

    @property
    def can_append(self) -> bool:
        """Whether there is room for what it fetches."""

    def remove(self, following: "Following", /) -> None:
        """Nothing of this partition is appended from now on."""

    def position_changed(self, following: "Following", /) -> None:
        """Its log grew or became durable: the leader is told with the next frame."""

    def follow_log_start(self, following: "Following", /) -> None:
        """Begin where the leader's log begins, as far as that is durable here; then tell it."""


class Following:
    """A partition that follows a leader in one leader epoch. Replaced when either changes."""

    __slots__ = (
        "failures",
        "held",
        "hosted",
        "leader_epoch",
        "leader_high_watermark",
        "leader_log_start",
        "phase",
        "restart_at",
        "retry_at_ms",
        "session",
        "start_over",
        "tip",
    )

    def __init__(
        self, hosted: HostedPartition, session: Session, leader_epoch: LeaderEpoch
    ) -> None:
        self.hosted = hosted
        self.tip: TopicIdPartition = hosted.tip
        self.session = session
        self.leader_epoch = leader_epoch
        self.phase = Phase.CHECKING
        self.failures = 0
        self.retry_at_ms = 0
        self.held = False
        """The throttle keeps it waiting: the leader has been told to forget its position."""
        self.leader_high_watermark: int | None = None
        """As the leader last told it, in this epoch."""
        self.leader_log_start = 0
        """As the leader last told it, in this epoch: the local log is to begin there, too."""
        self.start_over = False
        """Nothing of the local log is known to the leader: ask it where its own begins."""
        self.restart_at: int | None = None
        """The leader's log begins here, beyond the local end: drop everything and go on there."""

    def back_off(self, now_ms: int) -> None:
        """Wait before the next try, longer each time."""
        wait_ms = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(self.failures, 8))
        self.failures += 1
        self.retry_at_ms = now_ms + wait_ms
        self.phase = Phase.CHECKING

    @property
    def is_in_sync(self) -> bool:
        """Whether it has all that is committed, as far as the leader has told."""
        known = self.leader_high_watermark
        return known is not None and self.hosted.log.log_end_offset >= known

    @property
    def fetch_offset(self) -> int:
        """First offset wanted; -1 makes the leader answer with its log start."""
        return -1 if self.start_over else self.hosted.log.log_end_offset

    def tell_position(self, request: replication_pb2.ReplicaFetchRequest) -> None:
        """What the leader must know: what to send next, and what is durable here.

        What is about to be dropped counts for nothing; and no ISR is to rely on a full disk, which
        holds all that is committed until something is.
        """
        partition_log = self.hosted.log
        counts = self.session.can_append and not self.start_over
        flushed_offset = partition_log.flushed_offset if counts else UNKNOWN_OFFSET
        request.positions.add(
            topic_id=self.tip.topic_id,
            partition=self.tip.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.fetch_offset,
            flushed_offset=flushed_offset,
            log_start_offset=partition_log.log_start_offset,
        )

    def on_flushed(self) -> None:
        """More of the local log is durable: the leader is told."""
        if self.phase is Phase.FETCHING:
            self.session.position_changed(self)
            self.session.follow_log_start(self)
