"""The state of a replica, how far its high watermark may move, and what must hold of it.

``partition_replica.PartitionReplica`` adds the events that come from outside: commands, followers'
progress, and the outcomes of ISR changes.
"""

from collections.abc import Set
from typing import Protocol

from quorate.broker.replication.partition.effects import (
    NOTHING,
    Effect,
    HighWatermarkAdvanced,
    ReplicaRole,
)
from quorate.broker.replication.partition.follower_progress import FollowerProgress
from quorate.broker.replication.partition.isr import IsrState
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition

NO_EPOCH_YET = LeaderEpoch(-1)


class ReplicaState:
    """The fields of one local replica. Only events change them."""

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
        "silence_max_ms",
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
        self.silence_max_ms = 0
        self.role = ReplicaRole.IDLE
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
        """The number of replicas that must be in sync for acks=all.

        A topic with fewer replicas than min.insync.replicas needs all that it has (KIP-966). The
        replicas that a reassignment adds do not count yet: a move must not stop producers (C11).
        """
        return min(self.min_insync_replicas, max(1, len(self.replicas) - len(self.adding)))

    @property
    def is_idle(self) -> bool:
        """Whether the replica serves nobody and waits for a command."""
        return self.role is ReplicaRole.IDLE

    @property
    def is_suspended(self) -> bool:
        """Whether the replica led until it saw a newer leader epoch, and waits for a command."""
        return self.role is ReplicaRole.SUSPENDED

    @property
    def has_enough_replicas(self) -> bool:
        """Whether the committed ISR has as many members as acks=all needs."""
        return len(self.isr.committed) >= self.effective_min_insync_replicas

    @property
    def knows_what_is_committed(self) -> bool:
        """Whether the high watermark of this leader tells how much is committed.

        A new leader's watermark trails that of its predecessor until it passes the offset at which
        it began to lead. A restarted leader's watermark trails its own in the same way.
        """
        return self.high_watermark >= self.led_from_offset

    def is_at_rest(self, now_ms: int) -> bool:
        """Say whether time alone changes nothing here, once ``tick`` has looked at the clock.

        Only a member that has not reached the leader's end can begin to lag, only a silent one may
        have to leave later, and only an ISR change whose outcome is awaited, unknown or refused
        makes the leader try again.
        """
        if self.isr.in_flight is not None or self.isr.unsettled or now_ms < self._retry_isr_at_ms:
            return False
        for broker_id in self._maximal_others:
            follower = self.followers.get(broker_id)
            if follower is None or follower.flushed_offset < self.flushed_offset:
                return False
            if follower.is_silent:
                return False
        return True

    def configure(
        self, *, min_insync_replicas: int, lag_time_max_ms: int, silence_max_ms: int
    ) -> None:
        """Take up the configuration of the topic and of this broker."""
        self.min_insync_replicas = min_insync_replicas
        self.lag_time_max_ms = lag_time_max_ms
        self.silence_max_ms = silence_max_ms

    def preferred_read_replica(self, fetch_offset: int, near: Set[BrokerId]) -> BrokerId | None:
        """Return the replica that a consumer should read from instead of this leader (KIP-392).

        It is the one of ``near`` whose log reaches furthest, or None if the leader itself is near
        or no suitable replica is. Only members of the ISR are suitable: any other one may stay
        behind for ever, and its readers with it. And it must have what is to be read.
        """
        if not near or self.broker_id in near:
            return None
        found = [
            (follower.flushed_offset, follower.caught_up_ms, broker_id)
            for broker_id in self.isr.committed
            if broker_id in near
            and (follower := self.followers.get(broker_id)) is not None
            and follower.flushed_offset >= fetch_offset
        ]
        return max(found)[2] if found else None

    # -- the log ---------------------------------------------------------------------------------

    def local_flushed(self, flushed_offset: int, now_ms: int) -> tuple[Effect, ...]:
        """Note that the local log is durable below ``flushed_offset``."""
        if self.role is ReplicaRole.LEADER and flushed_offset > self.flushed_offset:
            for follower in self.followers.values():
                follower.leader_end_moves(self.flushed_offset, now_ms)
            self.flushed_offset = flushed_offset
            return self._advance()
        self.flushed_offset = flushed_offset
        return NOTHING

    def local_truncated(self, log_end_offset: int, flushed_offset: int) -> None:
        """Note that the local log of a follower was truncated."""
        assert self.role is not ReplicaRole.LEADER, "a leader never truncates"
        self.flushed_offset = flushed_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def local_restarted(self, offset: int) -> None:
        """Note that the log of a follower was emptied and begins at ``offset``, its leader's log
        start. What lies below was committed and is deleted.
        """
        self.local_truncated(offset, offset)
        self.high_watermark = offset

    def follow_high_watermark(self, leader_high_watermark: int, log_end_offset: int) -> None:
        """Take up the leader's high watermark, as far as the own log reaches (C12).

        What was known to be committed stays committed.
        """
        known = min(leader_high_watermark, log_end_offset)
        self.high_watermark = max(self.high_watermark, known)

    # -- the high watermark -----------------------------------------------------------------------

    def _advance(self) -> tuple[Effect, ...]:
        """Move the high watermark as far as every member of the maximal ISR allows."""
        lowest = self.flushed_offset
        for broker_id in self._maximal_others:
            follower = self.followers.get(broker_id)
            if follower is None:
                return NOTHING
            if follower.flushed_offset < lowest:
                lowest = follower.flushed_offset
        # This is the fast path: most events do not move the high watermark.
        if lowest <= self.high_watermark or not self.has_enough_replicas:
            return NOTHING
        self.high_watermark = lowest
        return (HighWatermarkAdvanced(lowest),)

    def _count_maximal(self) -> None:
        """Remember which replicas besides this one the high watermark waits for."""
        self._maximal_others = tuple(self.isr.maximal - {self.broker_id})


class LogOffsets(Protocol):
    """The offsets of a log that the invariants are about."""

    log_start_offset: int
    flushed_offset: int
    log_end_offset: int

    @property
    def has_transactions(self) -> bool:
        """Whether the last stable offset may lie below the high watermark."""

    def stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset for that high watermark."""


class ReplicaWatch:
    """Looks at one replica after every event; raises ``BrokenInvariant`` if it must not be so."""

    __slots__ = ("_epoch", "_high_watermark", "_isr", "_led_epoch", "_stable_offset", "_version")

    def __init__(self) -> None:
        self._epoch = NO_EPOCH_YET
        self._led_epoch = NO_EPOCH_YET
        self._version = -1
        self._high_watermark = 0
        self._stable_offset = 0
        self._isr: object = None

    def look(self, log: LogOffsets, replica: ReplicaState) -> None:
        """Compare the replica with its rules and with what it was at the last look.

        Raises:
            BrokenInvariant: the replica must stop.
        """
        if log.flushed_offset > log.log_end_offset:
            raise _broken(log, replica, "flushed offset <= log end")
        if replica.leader_epoch < self._epoch:
            raise _broken(log, replica, "leader epochs never fall (rule 4)", before=self._epoch)
        self._epoch = replica.leader_epoch
        if replica.role is ReplicaRole.LEADER:
            self._look_at_leader(log, replica)
        else:
            self._led_epoch = NO_EPOCH_YET

    def _look_at_leader(self, log: LogOffsets, replica: ReplicaState) -> None:
        isr, high_watermark = replica.isr, replica.high_watermark
        if isr is not self._isr or replica.leader_epoch != self._led_epoch:
            self._look_at_isr(log, replica)
        if high_watermark == self._high_watermark and log.log_start_offset <= high_watermark:
            return
        is_low = high_watermark < log.log_start_offset
        if is_low or high_watermark > max(log.flushed_offset, self._high_watermark):
            raise _broken(log, replica, "log start <= high watermark <= flushed offset (C12)")
        stable_offset = (
            log.stable_offset(high_watermark) if log.has_transactions else high_watermark
        )
        if high_watermark < self._high_watermark or stable_offset < self._stable_offset:
            raise _broken(
                log,
                replica,
                "high watermark and last stable offset of a leader never fall (C16)",
                before=(self._high_watermark, self._stable_offset),
                last_stable_offset=stable_offset,
            )
        if stable_offset > high_watermark:
            raise _broken(
                log,
                replica,
                "last stable offset <= high watermark (KIP-98)",
                last_stable_offset=stable_offset,
            )
        self._high_watermark, self._stable_offset = high_watermark, stable_offset

    def _look_at_isr(self, log: LogOffsets, replica: ReplicaState) -> None:
        isr = replica.isr
        is_new = replica.leader_epoch != self._led_epoch
        if replica.broker_id not in isr.committed or not set(isr.committed) <= set(
            replica.replicas
        ):
            raise _broken(
                log,
                replica,
                "the ISR has its leader, and assigned replicas alone (rule 5)",
                isr=list(isr.committed),
                replicas=list(replica.replicas),
            )
        if not is_new and isr.version < self._version:
            raise _broken(
                log,
                replica,
                "the version of a leadership never falls (rule 5)",
                version=isr.version,
                before=self._version,
            )
        if is_new:
            # A new leader may know more to be committed than it has on its own disk yet.
            self._high_watermark, self._stable_offset = replica.high_watermark, 0
        self._isr, self._version, self._led_epoch = isr, isr.version, replica.leader_epoch


def _broken(
    log: LogOffsets, replica: ReplicaState, invariant: str, **values: object
) -> BrokenInvariant:
    return BrokenInvariant(
        str(replica.tp),
        invariant,
        role=replica.role.name.lower(),
        leader_epoch=replica.leader_epoch,
        log_start=log.log_start_offset,
        high_watermark=replica.high_watermark,
        flushed=log.flushed_offset,
        log_end=log.log_end_offset,
        **values,
    )
