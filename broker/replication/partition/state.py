"""``ReplicaState``: what a replica knows, and the decisions that follow from it alone.

``replica.PartitionReplica`` adds the events. Here are the two questions a leader asks after each of
them: how far may the high watermark move, and is the ISR what it should be?
"""

from broker.replication.partition.effects import (
    NOTHING,
    Effect,
    FailWaiters,
    HighWatermarkAdvanced,
    Leadership,
    ProposeIsr,
    Role,
)
from broker.replication.partition.follower_progress import FollowerProgress
from broker.replication.partition.isr import IsrState
from broker.replication.partition.membership import AdmissionBar, belongs_in_isr, isr_member
from metadata_log.types import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2

NO_EPOCH_YET = LeaderEpoch(-1)


class ReplicaState:
    """Fields of one local replica, changed by events only."""

    __slots__ = (
        "_attempts",
        "_maximal_others",
        "_retry_isr_at_ms",
        "adding",
        "broker_id",
        "flushed_offset",
        "followers",
        "high_watermark",
        "isr",
        "lag_time_max_ms",
        "leader",
        "leader_epoch",
        "led_from_offset",
        "min_insync_replicas",
        "replicas",
        "role",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        broker_id: BrokerId,
        *,
        high_watermark: int,
        flushed_offset: int,
        lag_time_max_ms: int,
    ) -> None:
        self.tp = tp
        self.broker_id = broker_id
        self.lag_time_max_ms = lag_time_max_ms
        self.min_insync_replicas = 1
        self.role = Role.IDLE
        self.leader = NO_BROKER
        self.leader_epoch = NO_EPOCH_YET
        self.replicas: tuple[BrokerId, ...] = ()
        self.adding: tuple[BrokerId, ...] = ()
        self.isr = IsrState(committed=(), version=-1)
        self.high_watermark = high_watermark
        self.flushed_offset = flushed_offset
        self.led_from_offset = -1
        self.followers: dict[BrokerId, FollowerProgress] = {}
        self._maximal_others: tuple[BrokerId, ...] = ()
        self._attempts = 0
        self._retry_isr_at_ms = 0

    @property
    def effective_min_insync_replicas(self) -> int:
        """A topic with fewer replicas than min.insync.replicas asks for all it has (KIP-966).

        Those that a reassignment adds are none yet: a move must not stop producers (C11).
        """
        return min(self.min_insync_replicas, max(1, len(self.replicas) - len(self.adding)))

    @property
    def is_idle(self) -> bool:
        return self.role is Role.IDLE

    @property
    def has_enough_replicas(self) -> bool:
        return len(self.isr.committed) >= self.effective_min_insync_replicas

    @property
    def knows_what_is_committed(self) -> bool:
        """A new leader's watermark trails its predecessor's until it passes where it began to lead;
        and a restarted one's trails its own.
        """
        return self.high_watermark >= self.led_from_offset

    def is_at_rest(self, now_ms: int) -> bool:
        """Whether time alone changes nothing here, once ``tick`` has looked at the clock.

        Only a member that has not reached the leader's end can come to lag, and only an outcome
        that is awaited, unknown or refused makes it try again.
        """
        if self.isr.in_flight is not None or self.isr.unsettled or now_ms < self._retry_isr_at_ms:
            return False
        for broker_id in self._maximal_others:
            follower = self.followers.get(broker_id)
            if follower is None or follower.flushed_offset < self.flushed_offset:
                return False
        return True

    def _advance(self) -> tuple[Effect, ...]:
        """Move the high watermark as far as every member of the maximal ISR allows."""
        lowest = self.flushed_offset
        for broker_id in self._maximal_others:
            follower = self.followers.get(broker_id)
            if follower is None:
                return NOTHING
            if follower.flushed_offset < lowest:
                lowest = follower.flushed_offset
        # The watermark first: it is where most of what happens ends.
        if lowest <= self.high_watermark or not self.has_enough_replicas:
            return NOTHING
        self.high_watermark = lowest
        return (HighWatermarkAdvanced(lowest),)

    def _maybe_propose(self, now_ms: int) -> tuple[Effect, ...]:
        """Propose the ISR as it should be, if it is not, or if an old outcome must be settled."""
        if self.isr.in_flight is not None or now_ms < self._retry_isr_at_ms:
            return NOTHING
        wanted, committed = self._wanted_isr(now_ms), self.isr.committed
        is_as_wanted = wanted == committed or set(wanted) == set(committed)
        if is_as_wanted and not self.isr.must_settle:
            return NOTHING
        self._attempts += 1
        self.isr = self.isr.propose(self._attempts, wanted)
        self._count_maximal()
        members = tuple(isr_member(b, self.followers.get(b)) for b in wanted)
        return (ProposeIsr(self._attempts, self.isr.version, self.leader_epoch, members),)

    def _wanted_isr(self, now_ms: int) -> tuple[BrokerId, ...]:
        bar = AdmissionBar(
            self.flushed_offset,
            self.high_watermark,
            self.led_from_offset,
            now_ms,
            self.lag_time_max_ms,
        )
        committed = self.isr.committed
        return tuple(
            broker_id
            for broker_id in self.replicas
            if broker_id == self.broker_id
            or (
                (follower := self.followers.get(broker_id)) is not None
                and belongs_in_isr(follower, bar, is_member=broker_id in committed)
            )
        )

    def _adopt(self, record: Leadership, now_ms: int) -> tuple[Effect, ...]:
        """A record written by another: who was removed rejoins only by fetching again."""
        removed = set(self.isr.committed).difference(record.isr)
        self.followers = {b: f for b, f in self.followers.items() if b not in removed}
        self.replicas, self.adding = record.replicas, record.adding
        self.isr = self.isr.learn(record.version, record.isr)
        self._track_followers(now_ms)
        return self._isr_adopted(now_ms)

    def _isr_adopted(self, now_ms: int) -> tuple[Effect, ...]:
        self._count_maximal()
        if self.role is not Role.LEADER:
            return NOTHING
        effects = self._advance() + self._maybe_propose(now_ms)
        if not self.has_enough_replicas:
            effects += (
                FailWaiters(
                    errors_pb2.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                    f"the ISR of {self.tp} fell to {list(self.isr.committed)}, below "
                    f"min.insync.replicas={self.min_insync_replicas}, before all had the records",
                ),
            )
        return effects

    def _count_maximal(self) -> None:
        self._maximal_others = tuple(self.isr.maximal - {self.broker_id})

    def _track_followers(self, now_ms: int) -> None:
        """One progress per assigned follower; ISR members get the full lag time from now on."""
        self.followers = {
            broker_id: self.followers.get(broker_id)
            or FollowerProgress(
                self.flushed_offset, now_ms, in_sync=broker_id in self.isr.committed
            )
            for broker_id in self.replicas
            if broker_id != self.broker_id
        }

    def _fail_all(self, message: str) -> tuple[Effect, ...]:
        return (FailWaiters(errors_pb2.NOT_LEADER_OR_FOLLOWER, message),)
