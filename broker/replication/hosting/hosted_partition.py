"""One hosted partition: its log, its state machine, and everybody who waits for news of it."""

import asyncio
from typing import Protocol

from quorate.broker.log import PartitionLog
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.replication.hosting.delayed_fetch import FetchWaiters
from quorate.broker.replication.hosting.delayed_produce import ProducePurgatory
from quorate.broker.replication.partition.effects import ReplicaRole
from quorate.broker.replication.partition.partition_replica import PartitionReplica
from quorate.broker.replication.partition.replica_state import ReplicaWatch
from quorate.common.types import BrokerId, LeaderEpoch, TopicIdPartition, TopicPartition


class TopicTraffic:
    """Counts what clients write to and read from the partitions of a topic that lead here."""

    __slots__ = ("bytes_in", "bytes_out", "produces_refused", "records_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0
        self.produces_refused = 0

    def refused_a_produce(self) -> None:
        """Count a produce entry that its log did not take."""
        self.produces_refused += 1

    def took(self, size: int, records: int) -> None:
        """Count the bytes of a produce entry, and the records that are new with it."""
        self.bytes_in += size
        self.records_in += records

    def sent(self, size: int) -> None:
        """Count bytes that were sent to a reader."""
        self.bytes_out += size


class PartitionWatcher(Protocol):
    """A follower's stream that has a position in the partition.

    ``serving.replica_fetch_session`` implements it: its room stands above this one.
    """

    def on_readable(self, hosted: "HostedPartition") -> None:
        """Note that more of the log is durable, so that followers may read it."""

    def on_high_watermark(self, hosted: "HostedPartition") -> None:
        """Note that the high watermark has advanced."""

    def on_log_start(self, hosted: "HostedPartition") -> None:
        """Note that the log begins later now."""

    def log_start_of(self, hosted: "HostedPartition") -> tuple[BrokerId, int] | None:
        """Return the follower and where its log begins, or None without a position there."""

    def on_leadership(self, hosted: "HostedPartition") -> None:
        """Note that this broker leads in another epoch, or no longer."""


class PartitionFetcher(Protocol):
    """Fetches the partition from its leader, while this broker follows it.

    ``fetching.fetch_session_handler`` implements it: its room stands above this one.
    """

    def on_flushed(self, hosted: "HostedPartition") -> None:
        """Note that more of the local log is durable: the leader is told."""

    def is_starting_over(self, hosted: "HostedPartition") -> bool:
        """Say whether the local log is dropped and fetched again from the leader's log start."""

    def remove(self, hosted: "HostedPartition") -> None:
        """Append nothing more of this partition."""


class LeadershipListener(Protocol):
    """Keeps state in the partitions of a topic that this broker leads: a coordinator does."""

    def on_leadership(self, hosted: "HostedPartition") -> None:
        """Note that this broker leads the partition from now on, or no longer."""

    def on_transaction_end(self, hosted: "HostedPartition", marker: EndMarker, offset: int) -> None:
        """Note that a marker which ends a transaction is committed at ``offset``.

        This is called before the sender of the marker gets its answer.
        """


class HostedPartition:
    """Everything that this broker holds of one partition. The event-loop thread owns it.

    ``truncation`` is held while the log is being truncated: a command must not make a leader of a
    log that is about to shrink (C6).
    """

    __slots__ = (
        "_broken",
        "_checkpointed_high_watermark",
        "_damaged_at",
        "_listener",
        "fetch_waiters",
        "fetcher",
        "log",
        "metadata_offset",
        "needs_tick",
        "replica",
        "tip",
        "tp",
        "traffic",
        "truncation",
        "waiting_for_commit",
        "waiting_for_flush",
        "watch",
        "watchers",
    )

    def __init__(
        self,
        log: PartitionLog,
        replica: PartitionReplica,
        traffic: TopicTraffic,
        listener: LeadershipListener | None,
    ) -> None:
        self.tip: TopicIdPartition = log.tip
        self.tp: TopicPartition = replica.tp
        self.log = log
        self.replica = replica
        self.traffic = traffic
        self.metadata_offset = -1
        """The metadata offset of the newest command or image that named this partition."""
        self.waiting_for_commit = ProducePurgatory()
        self.waiting_for_flush = ProducePurgatory()
        self.fetch_waiters: FetchWaiters = {}
        self.watchers: dict[PartitionWatcher, None] = {}
        """The watchers in the order in which they came: a set of objects has another order in every
        run."""
        self.fetcher: PartitionFetcher | None = None
        """The fetcher of this partition, or None while this broker follows nobody."""
        self.truncation = asyncio.Lock()
        self._listener = listener
        self._checkpointed_high_watermark = log.checkpointed_high_watermark
        self.needs_tick = False
        """Whether something happened since a tick found that the partition may be left alone."""
        self.watch = ReplicaWatch()
        """Compares the replica with its invariants after every event."""
        self._broken = ""
        self._damaged_at: int | None = None
        """The base offset of a batch in the log that is not what was written."""

    @property
    def leads(self) -> bool:
        """Whether this broker leads the partition."""
        return self.replica.role is ReplicaRole.LEADER

    @property
    def led_epoch(self) -> LeaderEpoch | None:
        """The leader epoch in which this broker leads, or None if it does not lead."""
        return self.replica.leader_epoch if self.leads else None

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended, for good."""
        return self.log.stable_offset(self.replica.high_watermark)

    # -- commands --------------------------------------------------------------------------------

    def note_metadata_offset(self, metadata_offset: int) -> None:
        """Remember that a command or an image of this metadata offset named the partition."""
        self.metadata_offset = max(self.metadata_offset, metadata_offset)

    def follow_with(self, fetcher: PartitionFetcher) -> None:
        """Be fetched from a leader by ``fetcher`` from now on."""
        assert self.fetcher is None, "stop the old fetching first"
        self.fetcher = fetcher

    def stop_following(self) -> None:
        """Have nothing of the old leader appended from now on."""
        fetcher, self.fetcher = self.fetcher, None
        if fetcher is not None:
            fetcher.remove(self)

    def listen(self, listener: LeadershipListener) -> None:
        """Have ``listener`` told of this partition's leadership from now on."""
        self._listener = listener

    # -- who waits -------------------------------------------------------------------------------

    def wake_fetches(self) -> None:
        """Let the long polls of this partition look again."""
        for waiter in self.fetch_waiters:
            waiter.wake()

    def fail_produces(self, error_code: int, message: str) -> None:
        """Answer the produce requests that wait for the high watermark with an error."""
        self.waiting_for_commit.fail(error_code, message)

    def fail_all(self, error_code: int, message: str) -> None:
        """Answer every produce request that waits with an error: the log can serve nobody."""
        self.fail_produces(error_code, message)
        self.waiting_for_flush.fail(error_code, message)

    def follow_high_watermark(self, leader_high_watermark: int) -> None:
        """Take up the high watermark of the leader: consumers may read further here, too."""
        before = self.replica.high_watermark
        self.replica.follow_high_watermark(leader_high_watermark, self.log.log_end_offset)
        if self.replica.high_watermark != before:
            self.wake_fetches()

    def log_start_moved(self) -> None:
        """Tell followers at once where the log begins now; readers learn it when they ask."""
        self.wake_fetches()
        for watcher in tuple(self.watchers):
            watcher.on_log_start(self)

    def leadership_changed(self) -> None:
        """Let long polls look again, and let followers' streams answer with the new state.

        This is called in the same step of the event loop in which the leadership changed: nobody
        can have asked in between.
        """
        if self._listener is not None:
            self._listener.on_leadership(self)
        self.wake_fetches()
        for watcher in tuple(self.watchers):
            watcher.on_leadership(self)

    def transaction_ended(self, marker: EndMarker, offset: int) -> None:
        """Tell the listener of a marker that is committed at ``offset``."""
        if self._listener is not None:
            self._listener.on_transaction_end(self, marker, offset)

    # -- damage, ticks and checkpoints -----------------------------------------------------------

    @property
    def is_damaged(self) -> bool:
        """Whether a part of its log cannot be read, or an invariant of the replica is broken."""
        if self._broken:
            return True
        return self._damaged_at is not None and self._damaged_at >= self.log.log_start_offset

    @property
    def awaits_repair(self) -> bool:
        """Whether its log is damaged, and nothing has begun to fetch it again."""
        if not self.is_damaged:
            return False
        return self.fetcher is None or not self.fetcher.is_starting_over(self)

    def note_damage(self, base_offset: int) -> None:
        """Remember a batch that cannot be read."""
        self._damaged_at = max(base_offset, self._damaged_at or 0)

    @property
    def broken(self) -> str:
        """The invariant that this replica broke, for people; empty if it broke none."""
        return self._broken

    def note_broken(self, message: str) -> None:
        """Remember a broken invariant. The replica must not serve before its log was dropped."""
        self._broken = self._broken or message

    def forget_damage(self) -> None:
        """Note that the damaged log was dropped."""
        self._damaged_at = None
        self._broken = ""
        self.watch = ReplicaWatch()

    def mark_for_tick(self) -> bool:
        """Have the next tick look at it. Return whether it was left alone before."""
        was_at_rest = not self.needs_tick
        self.needs_tick = True
        return was_at_rest

    def clear_if_idle(self, now_ms: int) -> None:
        """Decide after a tick whether the next tick must check this partition."""
        self.needs_tick = self.leads and not self.replica.is_at_rest(now_ms)

    def take_changed_high_watermark(self) -> int | None:
        """Return the high watermark to checkpoint, or None if it has not moved since."""
        high_watermark = self.replica.high_watermark
        if high_watermark == self._checkpointed_high_watermark:
            return None
        self._checkpointed_high_watermark = high_watermark
        return high_watermark
