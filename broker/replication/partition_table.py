"""The partitions of this broker, and the one place where effects of their decisions happen."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Protocol

from broker.log import LogStore, PartitionLog
from broker.metrics.traffic import Traffic
from broker.replication.hosted import HostedPartition
from broker.replication.limits import Limits
from broker.replication.partition.effects import (
    Effect,
    FailWaiters,
    HighWatermarkAdvanced,
    ProposeIsr,
    SteppedDown,
)
from broker.replication.partition.replica import PartitionReplica
from broker.replication.throttle import Throttles, unthrottled
from metadata_log.types import BrokerId, TopicIdPartition, TopicPartition

log = logging.getLogger(__name__)


class IsrProposals(Protocol):
    """Where proposals go; ``isr_writer.IsrWriter`` is the real one."""

    def submit(self, hosted: HostedPartition, proposal: ProposeIsr) -> None: ...


class PartitionTable:
    """Hosted partitions by id and by name."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        limits: Limits,
        now_ms: Callable[[], int],
        throttles: Throttles | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.now_ms = now_ms
        self.isr_proposals: IsrProposals | None = None
        self.throttles = throttles or unthrottled()
        self.traffic = Traffic()
        self.on_leadership: dict[str, Callable[[HostedPartition], None]] = {}
        """By topic: who is told when this broker leads a partition of it, or no longer. Set before
        the first partition is hosted."""
        self._limits = limits
        self._store: LogStore | None = None
        self._by_id: dict[TopicIdPartition, HostedPartition] = {}
        self._by_name: dict[TopicPartition, HostedPartition] = {}
        self._restless: list[HostedPartition] = []

    @property
    def store(self) -> LogStore:
        assert self._store is not None, "the replica manager was not started"
        return self._store

    def attach(self, store: LogStore) -> None:
        """Host every log that is there, serving none of them yet (C10)."""
        self._store = store
        for partition_log in store.logs.values():
            self._add(partition_log)

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(self._by_id.values())

    def get(self, tip: TopicIdPartition) -> HostedPartition | None:
        return self._by_id.get(tip)

    def named(self, tp: TopicPartition) -> HostedPartition | None:
        """The partition that bears this name now."""
        return self._by_name.get(tp)

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """As known here; None: there is no replica of it here."""
        hosted = self._by_name.get(tp)
        return None if hosted is None else hosted.replica.high_watermark

    def host(self, tip: TopicIdPartition, topic: str, metadata_offset: int = 0) -> HostedPartition:
        """The partition of this id, with a new log if there is none; it takes the name (C6).

        ``metadata_offset``: of the command or image that names it.
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
        """Forget a partition that was stopped; its log is the caller's to delete."""
        self._by_id.pop(hosted.tip, None)
        if self._by_name.get(hosted.tp) is hosted:
            del self._by_name[hosted.tp]

    def refresh_limits(self, hosted: HostedPartition) -> None:
        """Look up again what is configured for a partition that leads, or is about to."""
        topic, limits = hosted.tp.topic, self._limits
        hosted.replica.min_insync_replicas = limits.min_insync_replicas(topic)
        hosted.replica.lag_time_max_ms = limits.lag_time_max_ms()
        hosted.log.max_batch_bytes = limits.max_batch_bytes(topic)
        hosted.log.needs_keys = limits.compaction(topic) is not None
        hosted.log.storing = limits.storing(topic)

    def configs_changed(self, topics: Set[str] | None = None) -> None:
        """Leaders look up again what is configured; the next tick acts on it.

        ``topics``: those whose own configuration it is; None: it may be everybody's.
        """
        for hosted in self._by_id.values():
            if hosted.leads and (topics is None or hosted.tp.topic in topics):
                self.refresh_limits(hosted)
                self._rouse(hosted)

    def tick(self) -> None:
        """Let leaders look at the clock: laggards leave the ISR (C13).

        Only those to whom something has happened: an idle partition at rest costs nothing.
        """
        now_ms = self.now_ms()
        for hosted in tuple(self._restless):
            if hosted.leads:
                self._carry_out(hosted, hosted.replica.tick(now_ms))
            hosted.restless = hosted.leads and not hosted.replica.is_at_rest(now_ms)
        self._restless = [hosted for hosted in self._restless if hosted.restless]

    def _rouse(self, hosted: HostedPartition) -> None:
        """Let the next tick look at it."""
        if not hosted.restless:
            hosted.restless = True
            self._restless.append(hosted)

    def on_flushed(self, logs: Iterable[PartitionLog]) -> None:
        """One pass per flush group: watermarks move, waiting produces and followers are served."""
        now_ms = self.now_ms()
        for partition_log in logs:
            hosted = self._by_id.get(partition_log.tip)
            if hosted is None or hosted.log is not partition_log:
                continue
            flushed = partition_log.flushed_offset
            self.run(hosted, hosted.replica.local_flushed(flushed, now_ms))
            hosted.waiting_for_flush.complete(flushed)
            for watcher in hosted.watchers:
                watcher.on_readable(hosted)
            if hosted.following is not None:
                hosted.following.on_flushed()

    def run(self, hosted: HostedPartition, effects: Sequence[Effect]) -> None:
        """Carry out what the state machine decided about what happened to it."""
        self._rouse(hosted)
        if effects:
            self._carry_out(hosted, effects)

    def _carry_out(self, hosted: HostedPartition, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced(offset=offset):
                    hosted.log.transactions.settle(offset)
                    hosted.waiting_for_commit.complete(offset)
                    hosted.wake_fetches()
                    for watcher in hosted.watchers:
                        watcher.on_high_watermark(hosted)
                case ProposeIsr():
                    assert self.isr_proposals is not None
                    self.isr_proposals.submit(hosted, effect)
                case FailWaiters(error_code=error_code, message=message):
                    hosted.fail_produces(error_code, message)
                    if not hosted.leads:
                        hosted.waiting_for_flush.fail(error_code, message)
                case SteppedDown(newer_epoch=newer_epoch):
                    # Thousands at once where a follower is told of a failover first.
                    log.debug(
                        "stepped down from leading %s in epoch %d: epoch %d was seen",
                        hosted.tp,
                        hosted.replica.leader_epoch,
                        newer_epoch,
                    )
                    hosted.leadership_changed()

    def changed_high_watermarks(self) -> dict[TopicIdPartition, int]:
        """High watermarks that moved since this was last asked, for the checkpoint."""
        changed: dict[TopicIdPartition, int] = {}
        for hosted in self._by_id.values():
            high_watermark = hosted.replica.high_watermark
            if high_watermark != hosted.checkpointed_high_watermark:
                hosted.checkpointed_high_watermark = high_watermark
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
        hosted = HostedPartition(partition_log, replica, self.traffic.by_topic[tp.topic])
        hosted.on_leadership = self.on_leadership.get(tp.topic)
        self._by_id[hosted.tip] = hosted
        self._by_name.setdefault(tp, hosted)
        return hosted
