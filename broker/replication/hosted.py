"""One hosted partition: its log, its state machine, and those who wait for news of it."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker.log import PartitionLog
from broker.log.control_batches import EndMarker
from broker.metrics.traffic import TopicTraffic
from broker.replication.partition.effects import Role
from broker.replication.partition.replica import PartitionReplica
from broker.replication.polling import Waiters
from broker.replication.waiters import OffsetWaiters
from metadata_log.types import BrokerId, TopicIdPartition, TopicPartition

if TYPE_CHECKING:
    from broker.replication.following import Following


class PartitionWatcher(Protocol):
    """A follower's stream that has a position in the partition."""

    def on_readable(self, hosted: "HostedPartition") -> None:
        """More of the log is durable, so followers may read it."""

    def on_high_watermark(self, hosted: "HostedPartition") -> None:
        """The high watermark advanced."""

    def on_log_start(self, hosted: "HostedPartition") -> None:
        """The log begins later now."""

    def log_start_of(self, hosted: "HostedPartition") -> tuple[BrokerId, int] | None:
        """Who follows, and where its log begins as it last told; None: it has no position."""

    def on_leadership(self, hosted: "HostedPartition") -> None:
        """This broker leads in another epoch, or no longer."""


class HostedPartition:
    """Everything this broker holds of one partition. Owned by the event-loop thread.

    ``truncation`` is held while the log is being cut: a command must not make a leader of a log
    that is about to shrink (C6).
    """

    __slots__ = (
        "checkpointed_high_watermark",
        "damaged_at",
        "fetch_waiters",
        "following",
        "log",
        "metadata_offset",
        "on_leadership",
        "on_transaction_end",
        "replica",
        "restless",
        "tip",
        "tp",
        "traffic",
        "truncation",
        "waiting_for_commit",
        "waiting_for_flush",
        "watchers",
    )

    def __init__(self, log: PartitionLog, replica: PartitionReplica, traffic: TopicTraffic) -> None:
        self.tip: TopicIdPartition = log.tip
        self.tp: TopicPartition = replica.tp
        self.log = log
        self.replica = replica
        self.traffic = traffic
        self.metadata_offset = -1
        self.checkpointed_high_watermark = log.checkpointed_high_watermark
        self.waiting_for_commit = OffsetWaiters()
        self.waiting_for_flush = OffsetWaiters()
        self.fetch_waiters: Waiters = {}
        self.watchers: dict[PartitionWatcher, None] = {}
        """In the order in which they came: a set of objects has another one in every run."""
        self.following: Following | None = None
        self.restless = False
        """Something happened to it since a tick found that it may be left alone."""
        self.truncation = asyncio.Lock()
        self.damaged_at: int | None = None
        """Base offset of a batch in the log that is not what was written."""
        self.on_leadership: Callable[[HostedPartition], None] | None = None
        """Whoever keeps something in this partition while it is led here."""
        self.on_transaction_end: Callable[[EndMarker, int], None] | None = None
        """Told of the markers that end transactions in a coordinator's partition which is led here,
        and where each is: once it is committed, and before whoever sent it has the answer."""

    @property
    def leads(self) -> bool:
        return self.replica.role is Role.LEADER

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended, for good."""
        return self.log.stable_offset(self.replica.high_watermark)

    @property
    def is_damaged(self) -> bool:
        """Whether a part of its log cannot be read."""
        return self.damaged_at is not None and self.damaged_at >= self.log.log_start_offset

    def wake_fetches(self) -> None:
        for waiter in self.fetch_waiters:
            waiter.wake()

    def fail_produces(self, error_code: int, message: str) -> None:
        self.waiting_for_commit.fail(error_code, message)

    def fail_all(self, error_code: int, message: str) -> None:
        """Everyone who waits is answered: the log can serve nobody."""
        self.fail_produces(error_code, message)
        self.waiting_for_flush.fail(error_code, message)

    def follow_high_watermark(self, leader_high_watermark: int) -> None:
        """Of a follower: the leader has told its own; who reads here may read further."""
        before = self.replica.high_watermark
        self.replica.follow_high_watermark(leader_high_watermark, self.log.log_end_offset)
        if self.replica.high_watermark != before:
            self.wake_fetches()

    def log_start_moved(self) -> None:
        """Followers are told at once where the log begins now, readers when they ask."""
        self.wake_fetches()
        for watcher in tuple(self.watchers):
            watcher.on_log_start(self)

    def leadership_changed(self) -> None:
        """Long polls look again; followers' streams answer with the new state.

        Called in the same breath in which it changed: nobody can have asked in between.
        """
        if self.on_leadership is not None:
            self.on_leadership(self)
        self.wake_fetches()
        for watcher in tuple(self.watchers):
            watcher.on_leadership(self)
