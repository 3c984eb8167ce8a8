"""``PartitionReplica``: the decisions of one local replica, as leader or follower.

Rules kept here, whatever order events come in:

- The high watermark of a leader is the least durable offset over the maximal ISR, its own included;
  it never goes back, and stays while the committed ISR is below min.insync.replicas (C12, C16).
- Only a compare-and-set changes the ISR; one is in flight at most; a change whose outcome is not
  known keeps counting until a newer version of the record settles it (rule 5, C1).
- A follower joins the ISR only when it has reached the high watermark *and* the log end with which
  its leader began to lead: the start of the epoch, or where a restarted leader resumed it. It
  leaves after replica.lag.time.max.ms without having caught up (C13).
- A command is obeyed only if (leader epoch, record version) is newer than what is known (C17).
- A leader that sees a newer epoch leads no longer, but its waiting produces are answered only when
  it is told who does lead: it may well be itself (rule 6, C15).
"""

from broker.replication.partition.effects import (
    NOTHING,
    Effect,
    Leadership,
    Role,
    SteppedDown,
)
from broker.replication.partition.isr import IsrState
from broker.replication.partition.state import ReplicaState
from metadata_log.types import NO_BROKER, BrokerEpoch, BrokerId, LeaderEpoch

ISR_RETRY_BACKOFF_MS = 1_000
"""Pause after a refused ISR change: the quorum and the controller need time to agree."""


class PartitionReplica(ReplicaState):
    """State of one local replica. Methods are events and return effects."""

    __slots__ = ()

    # -- commands --------------------------------------------------------------------------------

    def is_newer(self, command: Leadership) -> bool:
        """Whether the command must be obeyed: older and repeated ones are skipped (C17, rule 4)."""
        return (command.leader_epoch, command.version) > (self.leader_epoch, self.isr.version)

    def continues(self, command: Leadership) -> bool:
        """Whether role, leader and epoch stay, so that only ISR, version and replicas are new."""
        return (
            self.role in (Role.LEADER, Role.FOLLOWER)
            and command.leader == self.leader
            and command.leader_epoch == self.leader_epoch
        )

    def learn(self, command: Leadership, now_ms: int) -> tuple[Effect, ...]:
        """Adopt ISR, version and replicas of a newer record in the same epoch."""
        if self.role is Role.LEADER:
            return self._adopt(command, now_ms)
        self.replicas, self.adding = command.replicas, command.adding
        self.isr = self.isr.learn(command.version, command.isr)
        return NOTHING

    def become_leader(
        self, command: Leadership, *, led_from_offset: int, now_ms: int, resumes: bool = False
    ) -> tuple[Effect, ...]:
        """Adopt the command's ISR and version, then lead, in a new epoch (C6).

        ``led_from_offset``: the log end now. The epoch begins there; or, if this broker
        ``resumes`` an epoch, after a restart or because the replica had been set aside, whatever
        was committed in it before lies below.
        Nothing known of the followers holds any more: they may have truncated in between. Nor is
        it known what was proposed before: until a newer version or epoch settles it, every replica
        counts. After a restart that is mostly the epoch which the new registration brings.
        """
        resumes = resumes or command.leader_epoch == self.leader_epoch
        self.role = Role.LEADER
        self.leader = self.broker_id
        self.leader_epoch = command.leader_epoch
        self.led_from_offset = led_from_offset
        self.replicas, self.adding = command.replicas, command.adding
        self.isr = IsrState(command.isr, command.version)
        self.followers = {}
        self._retry_isr_at_ms = now_ms
        if resumes:
            self.isr = IsrState.resumed(command.isr, command.version, command.replicas)
            self._retry_isr_at_ms += ISR_RETRY_BACKOFF_MS
        self._track_followers(now_ms)
        return self._isr_adopted(now_ms)

    def become_follower(self, command: Leadership) -> tuple[Effect, ...]:
        """Follow ``command.leader``, or nobody if there is none; waiting produces fail (C6)."""
        self.role = Role.FOLLOWER
        self.leader = command.leader
        self.leader_epoch = command.leader_epoch
        self.replicas, self.adding = command.replicas, command.adding
        self.isr = IsrState(command.isr, command.version)
        self.followers = {}
        return self._fail_all(f"broker {command.leader} leads {self.tp} now")

    def stop(self) -> tuple[Effect, ...]:
        """Serve nobody. The epoch stays known: an older command must not wake the replica."""
        self.role = Role.IDLE
        self.leader = NO_BROKER
        self.followers = {}
        return self._fail_all(f"the replica of {self.tp} was stopped")

    def saw_newer_epoch(self, epoch: LeaderEpoch) -> tuple[Effect, ...]:
        """A follower or the quorum knows a newer epoch: lead no longer (rule 6)."""
        if self.role is not Role.LEADER or epoch <= self.leader_epoch:
            return NOTHING
        self.role = Role.SUSPENDED
        return (SteppedDown(epoch),)

    def set_aside(self) -> tuple[Effect, ...]:
        """As ``stop``, but not commanded for this partition: the same command may wake it (C7)."""
        self.isr = IsrState(self.isr.committed, self.isr.version - 1)
        return self.stop()

    # -- the log ---------------------------------------------------------------------------------

    def local_flushed(self, flushed_offset: int, now_ms: int) -> tuple[Effect, ...]:
        """The local log is durable below ``flushed_offset``."""
        if self.role is Role.LEADER and flushed_offset > self.flushed_offset:
            for follower in self.followers.values():
                follower.leader_end_moves(self.flushed_offset, now_ms)
            self.flushed_offset = flushed_offset
            return self._advance()
        self.flushed_offset = flushed_offset
        return NOTHING

    def local_truncated(self, log_end_offset: int, flushed_offset: int) -> None:
        """The local log of a follower was cut."""
        assert self.role is not Role.LEADER, "a leader never truncates"
        self.flushed_offset = flushed_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def follow_high_watermark(self, leader_high_watermark: int, log_end_offset: int) -> None:
        """min(leader's, own log end) (C12); what was known to be committed stays so."""
        known = min(leader_high_watermark, log_end_offset)
        self.high_watermark = max(self.high_watermark, known)

    # -- followers -------------------------------------------------------------------------------

    def follower_progress(
        self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        flushed_offset: int,
        now_ms: int,
    ) -> tuple[Effect, ...]:
        """A follower, fetching in this leader epoch, is durable below ``flushed_offset`` (C12)."""
        if self.role is not Role.LEADER:
            return NOTHING
        follower = self.followers.get(broker_id)
        if follower is None or broker_epoch < follower.broker_epoch:
            return NOTHING
        follower.broker_epoch = broker_epoch
        follower.record(flushed_offset, self.flushed_offset, now_ms)
        effects = self._advance()
        if broker_id not in self.isr.committed:
            effects += self._maybe_propose(now_ms)
        return effects

    def tick(self, now_ms: int) -> tuple[Effect, ...]:
        """Time has passed: who lags leaves the ISR, also when nobody fetches or produces (C13)."""
        if self.role is not Role.LEADER:
            return NOTHING
        return self._advance() + self._maybe_propose(now_ms)

    # -- outcomes of ISR changes -----------------------------------------------------------------

    def isr_committed(self, attempt: int, version: int, now_ms: int) -> tuple[Effect, ...]:
        """The compare-and-set took effect and made ``version``."""
        if attempt != self.isr.in_flight:
            return NOTHING
        members = tuple(b for b in self.replicas if b in self.isr.proposed)
        self.isr = self.isr.learn(version, members)
        return self._isr_adopted(now_ms)

    def isr_refused(self, attempt: int, now_ms: int) -> tuple[Effect, ...]:
        """Certainly not applied, and not because the record changed: try again later."""
        if attempt != self.isr.in_flight:
            return NOTHING
        self._retry_isr_at_ms = now_ms + ISR_RETRY_BACKOFF_MS
        self.isr = self.isr.refused()
        self._count_maximal()
        return self._advance() if self.role is Role.LEADER else NOTHING

    def isr_unknown(self, attempt: int, now_ms: int) -> tuple[Effect, ...]:
        """May or may not have been applied: the maximal ISR keeps it until it is settled."""
        if attempt != self.isr.in_flight:
            return NOTHING
        self._retry_isr_at_ms = now_ms + ISR_RETRY_BACKOFF_MS
        self.isr = self.isr.unknown()
        self._count_maximal()
        return NOTHING

    def isr_conflict(self, attempt: int, fresh: Leadership, now_ms: int) -> tuple[Effect, ...]:
        """The record changed meanwhile; ``fresh`` is a read made after the conflict.

        Tried again only while leader and leader epoch are still its own (rule 5, C15).
        """
        if attempt != self.isr.in_flight:
            return NOTHING
        if fresh.leader_epoch > self.leader_epoch:
            self.isr = self.isr.refused()
            return self.saw_newer_epoch(fresh.leader_epoch)
        if fresh.version <= self.isr.version:
            return self.isr_unknown(attempt, now_ms)
        return self._adopt(fresh, now_ms)
