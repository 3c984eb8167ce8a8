"""``PartitionReplica``: the decisions of one local replica, as leader or follower.

These rules hold in whatever order events come in:

- The high watermark of a leader is the lowest durable offset of the maximal ISR, its own included.
  It never goes back, and it does not move while the committed ISR is below min.insync.replicas
  (C12, C16).
- Only a compare-and-set changes the ISR, and at most one is in flight. A change whose outcome is
  not known counts until a newer version of the record settles it (rule 5, C1).
- A follower joins the ISR only when it has reached the high watermark *and* the log end with which
  its leader began to lead: the start of the epoch, or where a restarted leader resumed it. The
  follower leaves after replica.lag.time.max.ms without having caught up (C13), and sooner if
  nothing is heard of it and enough others are left (``silent_followers``).
- A command is obeyed only if (leader epoch, record version) is newer than what is known (C17).
- Produce requests that wait are answered once their records are committed or the leadership ends,
  and otherwise time out. The ISR that falls below min.insync.replicas answers nobody: their records
  are in the log, and are committed when it grows again.
- A leader that sees a newer epoch leads no longer, but the produce requests that wait are answered
  only when a command says who does lead: it may be this broker itself (rule 6, C15).
"""

from quorate.broker.replication.partition.effects import (
    NOTHING,
    Effect,
    FailWaiters,
    ProposeIsr,
    ReplicaRole,
    SteppedDown,
)
from quorate.broker.replication.partition.follower_progress import (
    HEARD_MS,
    FollowerProgress,
    IsrMembershipRule,
    isr_member,
)
from quorate.broker.replication.partition.isr import IsrState
from quorate.broker.replication.partition.leader_and_isr import LeaderAndIsr
from quorate.broker.replication.partition.replica_state import ReplicaState
from quorate.broker.replication.partition.silent_followers import (
    silence_noticed_ms,
    silent_members_to_keep,
)
from quorate.common.types import NO_BROKER, BrokerEpoch, BrokerId, LeaderEpoch
from quorate_proto.v1 import errors_pb2

ISR_RETRY_BACKOFF_MS = 1_000
"""The pause after a refused ISR change: the quorum and the controller need time to agree."""


class PartitionReplica(ReplicaState):
    """The state machine of one local replica. Methods are events and return effects."""

    __slots__ = ()

    # -- commands --------------------------------------------------------------------------------

    def is_newer(self, command: LeaderAndIsr) -> bool:
        """Say whether to obey the command: older and repeated ones are skipped (C17, rule 4)."""
        return (command.leader_epoch, command.version) > (self.leader_epoch, self.isr.version)

    def is_at(self, command: LeaderAndIsr) -> bool:
        """Say whether the command is the one that the replica has obeyed last."""
        known = (self.leader_epoch, self.isr.version)
        return (command.leader_epoch, command.version) == known

    def continues(self, command: LeaderAndIsr) -> bool:
        """Say whether role, leader and epoch stay, so that only ISR and replicas are new."""
        return (
            self.role in (ReplicaRole.LEADER, ReplicaRole.FOLLOWER)
            and command.leader == self.leader
            and command.leader_epoch == self.leader_epoch
        )

    def learn(self, command: LeaderAndIsr, now_ms: int) -> tuple[Effect, ...]:
        """Adopt ISR, version and replicas of a newer record in the same epoch."""
        if self.role is ReplicaRole.LEADER:
            return self._adopt(command, now_ms)
        self.replicas, self.adding = command.replicas, command.adding
        self.isr = self.isr.learn(command.version, command.isr)
        return NOTHING

    def become_leader(
        self,
        command: LeaderAndIsr,
        *,
        led_from_offset: int,
        flushed_offset: int,
        now_ms: int,
        resumes: bool = False,
    ) -> tuple[Effect, ...]:
        """Adopt the command's ISR and version, then lead, in a new epoch (C6).

        ``led_from_offset`` is the log end now. The epoch begins there. If this broker ``resumes``
        an epoch, after a restart or because the replica had been set aside, whatever was committed
        in it before lies below that offset.

        Nothing that was known about the followers holds any more: they may have truncated
        meanwhile. What an earlier incarnation proposed is not known either: every replica counts
        until a newer version or epoch settles it. After a restart that is mostly the epoch which
        the new registration brings.
        """
        resumes = resumes or command.leader_epoch == self.leader_epoch
        self.role = ReplicaRole.LEADER
        self.leader = self.broker_id
        self.leader_epoch = command.leader_epoch
        self.led_from_offset = led_from_offset
        self.flushed_offset = flushed_offset
        self.replicas, self.adding = command.replicas, command.adding
        self.isr = IsrState(command.isr, command.version)
        self.followers = {}
        self._retry_isr_at_ms = now_ms
        if resumes:
            self.isr = IsrState.resumed(command.isr, command.version, command.replicas)
            self._retry_isr_at_ms += ISR_RETRY_BACKOFF_MS
        self._track_followers(now_ms)
        return self._isr_adopted(now_ms)

    def become_follower(self, command: LeaderAndIsr) -> tuple[Effect, ...]:
        """Follow ``command.leader``, or nobody if there is none; waiting produces fail (C6)."""
        self.role = ReplicaRole.FOLLOWER
        self.leader = command.leader
        self.leader_epoch = command.leader_epoch
        self.replicas, self.adding = command.replicas, command.adding
        self.isr = IsrState(command.isr, command.version)
        self.followers = {}
        return self._fail_all(f"broker {command.leader} leads {self.tp} now")

    def stop(self) -> tuple[Effect, ...]:
        """Serve nobody. The epoch stays known: an older command must not wake the replica."""
        self.role = ReplicaRole.IDLE
        self.leader = NO_BROKER
        self.followers = {}
        return self._fail_all(f"the replica of {self.tp} was stopped")

    def saw_newer_epoch(self, epoch: LeaderEpoch) -> tuple[Effect, ...]:
        """Step down, because a follower or the quorum knows a newer epoch (rule 6)."""
        if self.role is not ReplicaRole.LEADER or epoch <= self.leader_epoch:
            return NOTHING
        self.role = ReplicaRole.SUSPENDED
        return (SteppedDown(epoch),)

    def deposed(self, leader: BrokerId, epoch: LeaderEpoch) -> tuple[Effect, ...]:
        """Step down because the metadata log has a newer epoch, and no command has come (rule 6).

        Produce requests wait on if the newer epoch is this broker's own: it is about to be told.
        """
        effects = self.saw_newer_epoch(epoch)
        if self.is_suspended and leader != self.broker_id:
            effects += self._fail_all(f"broker {leader} leads {self.tp} now")
        return effects

    def set_aside(self) -> tuple[Effect, ...]:
        """Stop without a command for this partition: the same command may wake it again (C7)."""
        self.isr = IsrState(self.isr.committed, self.isr.version - 1)
        return self.stop()

    # -- followers -------------------------------------------------------------------------------

    def follower_progress(
        self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        flushed_offset: int,
        now_ms: int,
        *,
        keeps_deleted: bool = False,
    ) -> tuple[Effect, ...]:
        """Note that a follower in this leader epoch is durable below ``flushed_offset`` (C12).

        ``keeps_deleted`` says whether it has records below the log start of this leader.
        """
        if self.role is not ReplicaRole.LEADER:
            return NOTHING
        follower = self.followers.get(broker_id)
        if follower is None or broker_epoch < follower.broker_epoch:
            return NOTHING
        follower.record(
            broker_epoch, flushed_offset, self.flushed_offset, now_ms, keeps_deleted=keeps_deleted
        )
        effects = self._advance()
        if broker_id not in self.isr.committed:
            effects += self._maybe_propose(now_ms)
        return effects

    def follower_silent(self, broker_id: BrokerId, now_ms: int) -> None:
        """Note that nothing is heard of a follower. A later tick may remove it from the ISR."""
        follower = self.followers.get(broker_id)
        if follower is not None and not follower.is_silent:
            follower.silent_ms = now_ms

    def follower_heard(self, broker_id: BrokerId) -> None:
        """Note that a follower is heard again. The next tick, or its next position, may let it join
        the ISR: where nothing was appended, its last position still tells where it is."""
        follower = self.followers.get(broker_id)
        if follower is not None:
            follower.silent_ms = HEARD_MS

    def tick(self, now_ms: int) -> tuple[Effect, ...]:
        """Remove silent and lagging followers from the ISR, also in an idle partition (C13)."""
        if self.role is not ReplicaRole.LEADER:
            return NOTHING
        return self._advance() + self._maybe_propose(now_ms)

    # -- outcomes of ISR changes -----------------------------------------------------------------

    def isr_committed(self, attempt: int, version: int, now_ms: int) -> tuple[Effect, ...]:
        """Take note that the compare-and-set took effect and made ``version``."""
        if attempt != self.isr.in_flight:
            return NOTHING
        members = tuple(b for b in self.replicas if b in self.isr.proposed)
        self.isr = self.isr.learn(version, members)
        return self._isr_adopted(now_ms)

    def isr_refused(self, attempt: int, now_ms: int) -> tuple[Effect, ...]:
        """Try again later: the change was certainly not applied, without a conflict."""
        if attempt != self.isr.in_flight:
            return NOTHING
        self._retry_isr_at_ms = now_ms + ISR_RETRY_BACKOFF_MS
        self.isr = self.isr.refused()
        self._count_maximal()
        return self._advance() if self.role is ReplicaRole.LEADER else NOTHING

    def isr_unknown(self, attempt: int, now_ms: int) -> tuple[Effect, ...]:
        """Keep a change that may have been applied in the maximal ISR until it is settled."""
        if attempt != self.isr.in_flight:
            return NOTHING
        self._retry_isr_at_ms = now_ms + ISR_RETRY_BACKOFF_MS
        self.isr = self.isr.unknown()
        self._count_maximal()
        return NOTHING

    def isr_conflict(self, attempt: int, fresh: LeaderAndIsr, now_ms: int) -> tuple[Effect, ...]:
        """Adopt ``fresh``, a read made after the conflict: the record changed meanwhile.

        The change is tried again only while this broker still leads in its epoch (rule 5, C15).
        """
        if attempt != self.isr.in_flight:
            return NOTHING
        if fresh.leader_epoch > self.leader_epoch:
            self.isr = self.isr.refused()
            return self.saw_newer_epoch(fresh.leader_epoch)
        if fresh.version <= self.isr.version:
            return self.isr_unknown(attempt, now_ms)
        return self._adopt(fresh, now_ms)

    # -- the ISR as it should be -----------------------------------------------------------------

    def _maybe_propose(self, now_ms: int) -> tuple[Effect, ...]:
        """Propose the ISR as it should be, if it differs or if an old outcome must be settled."""
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
        wanted = self._isr_by_lag(self.lag_time_max_ms, now_ms)
        if len(wanted) < self.effective_min_insync_replicas:
            # A leader that is cut off must not find lag before silence: it would remove those that
            # can lead in its place, and gain nothing.
            patience_ms = max(self.lag_time_max_ms, silence_noticed_ms(self.silence_max_ms))
            return self._isr_by_lag(patience_ms, now_ms)
        return wanted

    def _isr_by_lag(self, lag_time_max_ms: int, now_ms: int) -> tuple[BrokerId, ...]:
        admission = IsrMembershipRule(
            self.flushed_offset,
            self.high_watermark,
            self.led_from_offset,
            now_ms,
            lag_time_max_ms,
        )
        committed = self.isr.committed
        in_sync = tuple(
            broker_id
            for broker_id in self.replicas
            if broker_id == self.broker_id
            or (
                (follower := self.followers.get(broker_id)) is not None
                and not follower.is_silent
                and admission.belongs_in_isr(follower, is_member=broker_id in committed)
            )
        )
        kept = silent_members_to_keep(
            self.followers,
            committed,
            remaining_count=sum(one in committed for one in in_sync),
            min_insync_replicas=self.effective_min_insync_replicas,
            now_ms=now_ms,
        )
        return tuple(b for b in self.replicas if b in in_sync or b in kept) if kept else in_sync

    def _adopt(self, record: LeaderAndIsr, now_ms: int) -> tuple[Effect, ...]:
        """Adopt a record that another broker wrote.

        A follower that it removes rejoins only by fetching again.
        """
        removed = set(self.isr.committed).difference(record.isr)
        self.followers = {b: f for b, f in self.followers.items() if b not in removed}
        self.replicas, self.adding = record.replicas, record.adding
        self.isr = self.isr.learn(record.version, record.isr)
        self._track_followers(now_ms)
        return self._isr_adopted(now_ms)

    def _isr_adopted(self, now_ms: int) -> tuple[Effect, ...]:
        self._count_maximal()
        if self.role is not ReplicaRole.LEADER:
            return NOTHING
        return self._advance() + self._maybe_propose(now_ms)

    def _track_followers(self, now_ms: int) -> None:
        """Keep one progress per assigned follower; ISR members get the full lag time from now."""
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
