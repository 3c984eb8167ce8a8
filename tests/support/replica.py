"""A partition's state machine under test: verbs of a leader, a follower and the quorum."""

from typing import TypeVar

from quorate.broker.replication.partition.effects import Effect, ProposeIsr, ReplicaRole
from quorate.broker.replication.partition.leader_and_isr import LeaderAndIsr
from quorate.broker.replication.partition.partition_replica import PartitionReplica
from quorate.common.types import BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition

LAG_TIME_MAX_MS = 100

E = TypeVar("E", bound=Effect)


def ids(*values: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, values))


def leadership(
    leader: int,
    *,
    epoch: int = 0,
    isr: tuple[int, ...] = (1, 2, 3),
    version: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
    adding: tuple[int, ...] = (),
) -> LeaderAndIsr:
    return LeaderAndIsr(
        BrokerId(leader), LeaderEpoch(epoch), ids(*isr), version, ids(*replicas), ids(*adding)
    )


class ReplicaUnderTest:
    """Broker 1's replica of ``orders-0``, with a clock and every effect it asked for."""

    def __init__(
        self, *, min_insync_replicas: int = 1, high_watermark: int = 0, silence_max_ms: int = 0
    ) -> None:
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.replica = PartitionReplica(
            TopicPartition("orders", 0),
            BrokerId(1),
            high_watermark=high_watermark,
            flushed_offset=high_watermark,
            lag_time_max_ms=LAG_TIME_MAX_MS,
        )
        self.replica.configure(
            min_insync_replicas=min_insync_replicas,
            lag_time_max_ms=LAG_TIME_MAX_MS,
            silence_max_ms=silence_max_ms,
        )

    def lead(
        self,
        *,
        epoch: int = 0,
        isr: tuple[int, ...] = (1, 2, 3),
        version: int = 0,
        replicas: tuple[int, ...] = (1, 2, 3),
        adding: tuple[int, ...] = (),
        led_from: int | None = None,
        resumes: bool = False,
    ) -> None:
        start = self.replica.flushed_offset if led_from is None else led_from
        command = leadership(
            1, epoch=epoch, isr=isr, version=version, replicas=replicas, adding=adding
        )
        self._took(
            self.replica.become_leader(
                command,
                led_from_offset=start,
                flushed_offset=self.replica.flushed_offset,
                now_ms=self.now_ms,
                resumes=resumes,
            )
        )

    def learn(self, *, epoch: int, isr: tuple[int, ...], version: int) -> None:
        command = leadership(1, epoch=epoch, isr=isr, version=version)
        self._took(self.replica.learn(command, self.now_ms))

    def follow(self, leader: int, *, epoch: int, version: int = 0) -> None:
        self._took(self.replica.become_follower(leadership(leader, epoch=epoch, version=version)))

    def stop(self) -> None:
        self._took(self.replica.stop())

    def flush(self, offset: int) -> None:
        self._took(self.replica.local_flushed(offset, self.now_ms))

    def fetch(
        self,
        broker_id: int,
        flushed_offset: int,
        *,
        broker_epoch: int = 10,
        keeps_deleted: bool = False,
    ) -> None:
        """A follower's fetch or acknowledgement arrives."""
        self._took(
            self.replica.follower_progress(
                BrokerId(broker_id),
                BrokerEpoch(broker_epoch),
                flushed_offset,
                self.now_ms,
                keeps_deleted=keeps_deleted,
            )
        )

    def tick_at(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._took(self.replica.tick(now_ms))

    def commit_isr(self, version: int | None = None) -> None:
        """The quorum applied the newest proposal."""
        proposal = self.proposal
        made = proposal.expected_version + 1 if version is None else version
        self._took(self.replica.isr_committed(proposal.attempt, made, self.now_ms))

    def refuse_isr(self) -> None:
        self._took(self.replica.isr_refused(self.proposal.attempt, self.now_ms))

    def lose_isr_answer(self) -> None:
        self._took(self.replica.isr_unknown(self.proposal.attempt, self.now_ms))

    def conflict(self, fresh: LeaderAndIsr) -> None:
        self._took(self.replica.isr_conflict(self.proposal.attempt, fresh, self.now_ms))

    def see_epoch(self, epoch: int) -> None:
        self._took(self.replica.saw_newer_epoch(LeaderEpoch(epoch)))

    def is_in(self, role: ReplicaRole) -> bool:
        return self.replica.role is role

    @property
    def high_watermark(self) -> int:
        return self.replica.high_watermark

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple(self.replica.isr.committed)

    @property
    def proposals(self) -> list[ProposeIsr]:
        return self.all_of(ProposeIsr)

    @property
    def proposal(self) -> ProposeIsr:
        """The newest one."""
        return self.proposals[-1]

    @property
    def proposed(self) -> tuple[int, ...]:
        """Members of the newest proposal."""
        return tuple(member.broker_id for member in self.proposal.members)

    def all_of(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def _took(self, effects: tuple[Effect, ...]) -> None:
        self.effects.extend(effects)
