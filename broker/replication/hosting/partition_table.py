"""The partitions of this broker, and the one place where effects of their decisions happen."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from quorate.broker.log import LogDirectories, PartitionLog, StoredLog
from quorate.broker.replication.hosting.hosted_partition import HostedPartition, LeadershipListener
from quorate.broker.replication.hosting.partition_limits import PartitionLimits
from quorate.broker.replication.hosting.peer_silence import PeerSilence
from quorate.broker.replication.hosting.replication_throttle import ReplicationThrottles
from quorate.broker.replication.hosting.traffic import ReplicaTraffic
from quorate.broker.replication.partition.effects import (
    Effect,
    FailWaiters,
    HighWatermarkAdvanced,
    ProposeIsr,
    ReplicaRole,
    SteppedDown,
)
from quorate.broker.replication.partition.partition_replica import PartitionReplica
from quorate.broker.replication.partition.silent_followers import ALONE_DELAY_MS, SETTLE_MS
from quorate.broker.replication.wakeup import Wakeup
from quorate.common.clock import Clock
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import BrokerId, TopicId, TopicIdPartition, TopicPartition
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)


class IsrProposal(NamedTuple):
    """An ISR change that a leader wants, and the partition that wants it."""

    hosted: HostedPartition
    proposal: ProposeIsr


class IsrProposals:
    """The ISR changes that wait to be written; ``isr_manager.IsrManager`` takes them."""

    def __init__(self) -> None:
        self._queue: deque[IsrProposal] = deque()
        self._wakeup = Wakeup()

    def submit(self, hosted: HostedPartition, proposal: ProposeIsr) -> None:
        """Queue one more."""
        self._queue.append(IsrProposal(hosted, proposal))
        self._wakeup.wake()

    async def wait(self) -> None:
        """Return when something was queued since the last call."""
        await self._wakeup.wait()

    def take(self, most: int) -> list[IsrProposal]:
        """Return up to ``most`` of them, in order; nothing if none waits."""
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]


class PartitionTable:
    """Hosted partitions by id and by name. It hosts every log that the store has (C10).

    None of them leads or follows until a command or an image says so.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        store: LogDirectories,
        *,
        limits: PartitionLimits,
        throttles: ReplicationThrottles,
        clock: Clock,
        partition_count: Callable[[str], int],
    ) -> None:
        """``partition_count`` returns the partitions of a topic, 0 if this broker knows none."""
        self.broker_id: Final = broker_id
        self.store: Final = store
        self.throttles: Final = throttles
        self.clock: Final = clock
        self.traffic = ReplicaTraffic()
        self.isr_proposals = IsrProposals()
        self.silence = PeerSilence()
        self._tick_often_until_ms = 0
        self._limits = limits
        self._partition_count = partition_count
        self._listeners: dict[str, LeadershipListener] = {}
        self._by_id: dict[TopicIdPartition, HostedPartition] = {}
        self._by_name: dict[TopicPartition, HostedPartition] = {}
        self._needing_tick: list[HostedPartition] = []
        for partition_log in store.logs.values():
            self._add(partition_log)

    def watch_leadership(self, topic: str, listener: LeadershipListener) -> None:
        """Tell ``listener`` when this broker leads a partition of ``topic``, or no longer.

        A topic has one listener. It must come before the first command.
        """
        assert topic not in self._listeners, f"{topic} has a listener"
        self._listeners[topic] = listener
        for hosted in self._by_id.values():
            if hosted.tp.topic == topic:
                hosted.listen(listener)

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(self._by_id.values())

    def get(self, tip: TopicIdPartition) -> HostedPartition | None:
        """Return the partition of this id."""
        return self._by_id.get(tip)

    def named(self, tp: TopicPartition, topic_id: TopicId | None = None) -> HostedPartition | None:
        """Return the partition that bears this name now. With a ``topic_id``, return None if it is
        of another topic: one of the two was created again under this name.
        """
        hosted = self._by_name.get(tp)
        if topic_id is None or hosted is None or hosted.tip.topic_id == topic_id:
            return hosted
        return None

    def not_leader(self, tp: TopicPartition, hosted: HostedPartition | None) -> tuple[int, str]:
        """Return the code and message for a partition that this broker does not lead (C12, C19).

        A client that is told NOT_LEADER_OR_FOLLOWER asks where the leader is. One that is told
        UNKNOWN_TOPIC_OR_PARTITION may ask the same broker again, so this is for partitions that are
        nowhere.
        """
        if hosted is not None and hosted.log.is_offline:
            return errors_pb2.KAFKA_STORAGE_ERROR, f"the disk of the log of {tp} has failed here"
        if hosted is not None:
            message = f"this broker does not lead {tp}: {hosted.replica.leader} does"
            return errors_pb2.NOT_LEADER_OR_FOLLOWER, message
        message = f"this broker has no replica of {tp}"
        if 0 <= tp.partition < self._partition_count(tp.topic):
            return errors_pb2.NOT_LEADER_OR_FOLLOWER, message
        return errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, message

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """Return the high watermark as it is known here, or None without a replica."""
        hosted = self._by_name.get(tp)
        return None if hosted is None else hosted.replica.high_watermark

    def host(self, tip: TopicIdPartition, topic: str, metadata_offset: int = 0) -> HostedPartition:
        """Return the partition of this id, with a new log if there is none; it takes the name (C6).

        ``metadata_offset`` is that of the command or image which names the partition.
        """
        hosted = self._by_id.get(tip) or self._add(
            self.store.create(tip, topic, assigned_at=metadata_offset)
        )
        before = self._by_name.get(hosted.tp)
        self._by_name[hosted.tp] = hosted
        if before is not None and before is not hosted:
            before.wake_fetches()
        return hosted

    def drop(self, hosted: HostedPartition) -> None:
        """Forget a partition that was stopped. The caller deletes its log."""
        self._by_id.pop(hosted.tip, None)
        if self._by_name.get(hosted.tp) is hosted:
            del self._by_name[hosted.tp]

    def refresh_limits(self, hosted: HostedPartition) -> None:
        """Look up again what is configured for a partition that leads, or is about to."""
        topic, limits = hosted.tp.topic, self._limits
        hosted.replica.configure(
            min_insync_replicas=limits.min_insync_replicas(topic),
            lag_time_max_ms=limits.lag_time_max_ms(),
            silence_max_ms=limits.silence_max_ms(),
        )
        hosted.log.max_batch_bytes = limits.max_batch_bytes(topic)
        hosted.log.needs_keys = limits.compaction(topic) is not None
        hosted.log.storing = limits.storing(topic)

    def configs_changed(self, topics: Set[str] | None = None) -> None:
        """Have leaders look up again what is configured; the next tick acts on it.

        ``topics`` are those whose configuration has changed. None means that any may have.
        """
        for hosted in self._by_id.values():
            if hosted.leads and (topics is None or hosted.tp.topic in topics):
                self.refresh_limits(hosted)
                self._mark_for_tick(hosted)

    def tick(self) -> None:
        """Let leaders look at the clock: silent and lagging followers leave the ISR (C13).

        Only leaders to whom something has happened do: an idle partition at rest costs nothing.
        """
        now_ms = self.clock.now_ms()
        for hosted in tuple(self._needing_tick):
            if hosted.leads:
                self._tick(hosted, now_ms)
            hosted.clear_if_idle(now_ms)
        self._needing_tick = [hosted for hosted in self._needing_tick if hosted.needs_tick]

    def follower_heard(self, follower: BrokerId) -> None:
        """Note that a follower has sent something: its stream works."""
        if self.silence.hear_follower(follower, self.clock.now_ms()):
            log.info("broker %d is heard again", follower)
            for hosted in self._by_id.values():
                if hosted.leads and follower in hosted.replica.followers:
                    hosted.replica.follower_heard(follower)
                    # Where nothing is produced, no position comes that would let it rejoin.
                    self._mark_for_tick(hosted)

    def expect_followers(self, hosted: HostedPartition) -> None:
        """Expect the followers of a partition that is led here to fetch it."""
        now_ms = self.clock.now_ms()
        for follower in hosted.replica.followers:
            self.silence.expect_follower(follower, now_ms)
            if follower in self.silence.silent_followers:
                hosted.replica.follower_silent(follower, now_ms)
                self._mark_for_tick(hosted)

    def notice_silence(self) -> None:
        """Let leaders know of followers that have become silent, and act on it in time."""
        now_ms = self.clock.now_ms()
        silence_max_ms = self._limits.silence_max_ms()
        for follower in self.silence.check(now_ms, silence_max_ms, self._followers_here):
            log.warning("nothing was heard of broker %d for %d ms", follower, silence_max_ms)
            for hosted in self._by_id.values():
                if hosted.leads and follower in hosted.replica.followers:
                    hosted.replica.follower_silent(follower, now_ms)
                    self._mark_for_tick(hosted)
            self._tick_often_until_ms = now_ms + ALONE_DELAY_MS + SETTLE_MS
        if now_ms < self._tick_often_until_ms:
            self.tick()

    def fetch_wait_ms(self, wanted_ms: int) -> int:
        """Return how long a follower's fetch waits in effect that wants to wait so long."""
        return self._limits.fetch_wait_ms(wanted_ms)

    def silent_peers(self) -> Mapping[BrokerId, int]:
        """Return the brokers that nothing is heard of, and since when."""
        return self.silence.silent_peers(self.clock.now_ms(), self._limits.silence_max_ms())

    def _followers_here(self) -> Set[BrokerId]:
        return {
            follower
            for hosted in self._by_id.values()
            if hosted.leads
            for follower in hosted.replica.followers
        }

    def _tick(self, hosted: HostedPartition, now_ms: int) -> None:
        effects = hosted.replica.tick(now_ms)
        if self.is_sound(hosted):
            self._carry_out(hosted, effects)

    def _mark_for_tick(self, hosted: HostedPartition) -> None:
        """Let the next tick look at the partition."""
        if hosted.mark_for_tick():
            self._needing_tick.append(hosted)

    def on_flushed(self, logs: Iterable[StoredLog]) -> None:
        """Move watermarks and serve waiting produces and followers, once per flush group."""
        now_ms = self.clock.now_ms()
        for partition_log in logs:
            hosted = self._by_id.get(partition_log.tip)
            if hosted is None or hosted.log is not partition_log:
                continue
            flushed = partition_log.flushed_offset
            self.run(hosted, hosted.replica.local_flushed(flushed, now_ms))
            if hosted.broken:
                continue
            hosted.waiting_for_flush.complete(flushed)
            for watcher in hosted.watchers:
                watcher.on_readable(hosted)
            if hosted.fetcher is not None:
                hosted.fetcher.on_flushed(hosted)

    def run(self, hosted: HostedPartition, effects: Sequence[Effect]) -> None:
        """Carry out what the state machine of the partition decided, unless it broke a rule.

        A replica that did stops here: nothing that it decided takes effect.
        """
        self._mark_for_tick(hosted)
        if not self.is_sound(hosted):
            return
        if effects:
            self._carry_out(hosted, effects)

    def is_sound(self, hosted: HostedPartition) -> bool:
        """Say whether the replica is as its invariants demand; one that is not is given up."""
        if hosted.broken:
            return hosted.replica.role is not ReplicaRole.LEADER
        try:
            hosted.watch.look(hosted.log, hosted.replica)
        except BrokenInvariant as broken:
            self.give_up(hosted, broken)
            return False
        return True

    def give_up(self, hosted: HostedPartition, broken: BrokenInvariant) -> None:
        """Stop a replica that broke an invariant. It serves nobody, and the controller hears of it
        as of a damaged log: the replica leaves its ISR, and its log is fetched again.
        """
        if hosted.broken:
            return
        message = (
            f"{broken}. This replica stops serving. Where another one can lead, it is fetched "
            "again from there; else restart this broker"
        )
        log.critical("%s", message, exc_info=broken)
        hosted.note_broken(message)
        hosted.stop_following()
        self._carry_out(hosted, hosted.replica.stop())
        hosted.fail_all(errors_pb2.KAFKA_STORAGE_ERROR, message)
        hosted.leadership_changed()
        hosted.log.report_damage(broken)

    def take_offline(self, hosted: HostedPartition, message: str) -> None:
        """Stop a replica whose disk has failed. Its log is as it was when its folder is back."""
        hosted.stop_following()
        self._carry_out(hosted, hosted.replica.stop())
        hosted.fail_all(errors_pb2.KAFKA_STORAGE_ERROR, message)
        hosted.leadership_changed()

    def _carry_out(self, hosted: HostedPartition, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced(offset=offset):
                    hosted.log.settle_transactions(offset)
                    hosted.waiting_for_commit.complete(offset)
                    hosted.wake_fetches()
                    for watcher in hosted.watchers:
                        watcher.on_high_watermark(hosted)
                case ProposeIsr():
                    self.isr_proposals.submit(hosted, effect)
                case FailWaiters(error_code=error_code, message=message):
                    hosted.fail_produces(error_code, message)
                    if not hosted.leads:
                        hosted.waiting_for_flush.fail(error_code, message)
                case SteppedDown(newer_epoch=newer_epoch):
                    # Thousands step down at once where a follower hears of a failover first.
                    log.debug(
                        "stepped down from leading %s in epoch %d: epoch %d was seen",
                        hosted.tp,
                        hosted.replica.leader_epoch,
                        newer_epoch,
                    )
                    hosted.leadership_changed()

    def changed_high_watermarks(self) -> dict[TopicIdPartition, int]:
        """Return the high watermarks that moved since the last call, for the checkpoint."""
        changed: dict[TopicIdPartition, int] = {}
        for hosted in self._by_id.values():
            high_watermark = hosted.take_changed_high_watermark()
            if high_watermark is not None:
                changed[hosted.tip] = high_watermark
        return changed

    def _add(self, partition_log: PartitionLog) -> HostedPartition:
        tp = TopicPartition(partition_log.topic, partition_log.tip.partition)
        replica = PartitionReplica(
            tp,
            self.broker_id,
            high_watermark=max(
                partition_log.log_start_offset,
                min(partition_log.checkpointed_high_watermark, partition_log.log_end_offset),
            ),
            flushed_offset=partition_log.flushed_offset,
            lag_time_max_ms=self._limits.lag_time_max_ms(),
        )
        hosted = HostedPartition(
            partition_log,
            replica,
            self.traffic.by_topic[tp.topic],
            self._listeners.get(tp.topic),
        )
        self._by_id[hosted.tip] = hosted
        self._by_name.setdefault(tp, hosted)
        return hosted
