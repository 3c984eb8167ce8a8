"""Decides leader and ISR of a partition. This is the only module that does (C2, C4).

The first choice is always a live member of the ISR, in order of assignment, so that the preferred
replica leads where it can. A leader from outside the ISR may lose data, which needs the topic's
consent (``unclean.leader.election.enable``). Without it the partition goes offline and its ISR is
kept: only its members may bring the partition back.

A broker that *restarted* has what it acknowledged, but may lack what it had not yet synced. If it
resumed its old leader epoch, two different records could share an offset and an epoch. Every
partition that it led therefore gets a new epoch, and another member of the ISR leads if there is
one. A broker that may have *lost* its log (rule 8) leaves every ISR, even if the ISR is empty then.
In that case only an operator's unclean election brings the partition back.

A replica whose log directory has failed is *offline* (KIP-858). For its partition its broker counts
as one that is away, until a new incarnation of it comes or it reports that the replica is back.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.common.types import NO_BROKER, BrokerId, LeaderEpoch, TopicId, TopicIdPartition
from quorate.metadata_log.partitions import Partition, interned
from quorate.metadata_log.records import Operation, PartitionChange
from quorate_proto.v1 import errors_pb2

Brokers = frozenset[BrokerId]

OfflineReplicas = Mapping[TopicIdPartition, Brokers]
"""The live brokers whose replica of a partition is offline, by partition."""

NONE_OFFLINE: Final[OfflineReplicas] = {}
"""No replica is offline."""

NOBODY: Final[Brokers] = frozenset()


class LiveBrokers(NamedTuple):
    """The live brokers, grouped by the state of their incarnation. The three sets share no
    member."""

    steady: Brokers
    """The live brokers in an incarnation whose arrival has been processed."""

    restarted: Brokers = frozenset()
    """The live brokers in a new incarnation that have all they ever acknowledged."""

    lost_log: Brokers = frozenset()
    """The live brokers in a new incarnation that may lack acknowledged records (rule 8)."""

    offline: Brokers = frozenset()
    """The live brokers whose replica is offline: of a partition's view, see ``with_offline``."""

    @property
    def live(self) -> Brokers:
        return self.steady | self.restarted | self.lost_log

    def without_log(self, lost: Brokers) -> "LiveBrokers":
        """Return the same brokers as a partition sees them that these ones have lost."""
        restarted, lost = self.restarted - lost, self.lost_log | (self.restarted & lost)
        return LiveBrokers(self.steady, restarted, lost)

    def with_offline(self, offline: Brokers) -> "LiveBrokers":
        """Return the same brokers as a partition sees them whose replica on these is offline.

        One that may lack acknowledged records stays among those: it must leave the ISR.
        """
        steady, restarted = self.steady - offline, self.restarted - offline
        return LiveBrokers(steady, restarted, self.lost_log, offline)


class LeadershipChange(NamedTuple):
    """The leader and the ISR that a partition gets, at its next leader epoch."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    unclean: bool = False


class ElectionRefused(NamedTuple):
    """The reason why a requested election does not take place."""

    error_code: int
    message: str


def after_broker_change(
    partition: Partition, brokers: LiveBrokers, *, unclean: bool
) -> LeadershipChange | None:
    """Return the change of ``partition`` now that ``brokers`` are live, or None if it stays as it
    is (C2)."""
    steady = _among(partition.isr, brokers.steady)
    if steady:
        if partition.leader in steady and len(steady) == len(partition.isr):
            return None
        return LeadershipChange(_leader(partition, steady), steady)
    back = _among(partition.isr, brokers.restarted)
    if back:
        return LeadershipChange(_leader(partition, back), back)
    return _without_isr(partition, brokers, unclean)


def _without_isr(
    partition: Partition, brokers: LiveBrokers, unclean: bool
) -> LeadershipChange | None:
    """Decide for a partition whose ISR has no member that can lead."""
    if unclean:
        for candidates in (brokers.steady, brokers.restarted, brokers.lost_log):
            for replica in partition.replicas:
                if replica in candidates and replica not in brokers.offline:
                    return LeadershipChange(replica, interned((replica,)), unclean=True)
    kept = interned(tuple(one for one in partition.isr if one not in brokers.lost_log))
    if partition.offline and kept == partition.isr:
        return None
    return LeadershipChange(NO_BROKER, kept)


def without(partition: Partition, broker: BrokerId, candidates: Brokers) -> LeadershipChange | None:
    """Remove a replica from the ISR that is of no use, or whose broker wants to stop. Return None
    if the partition stays as it is.

    The replica stays if none of ``candidates`` is left in the ISR, because its data is better than
    none.
    """
    others = _among(partition.isr, candidates - {broker})
    if partition.offline or broker not in partition.isr or not others:
        return None
    isr = interned(tuple(one for one in partition.isr if one != broker))
    leader = _first(partition, others) if partition.leader == broker else partition.leader
    return LeadershipChange(leader, isr)


def preferred(partition: Partition, brokers: Brokers) -> LeadershipChange | ElectionRefused:
    """Decide a preferred leader election, which an operator requested."""
    wanted = partition.preferred_leader
    if partition.leader == wanted:
        return ElectionRefused(errors_pb2.ELECTION_NOT_NEEDED, f"broker {wanted} leads already")
    if wanted not in brokers or wanted not in partition.isr:
        return ElectionRefused(
            errors_pb2.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {wanted} is not a live member of the ISR {list(partition.isr)}",
        )
    return LeadershipChange(wanted, partition.isr)


def unclean(partition: Partition, brokers: LiveBrokers) -> LeadershipChange | ElectionRefused:
    """Decide an unclean election, by which an operator accepts data loss to bring a partition
    back."""
    if partition.leader in brokers.live:
        return ElectionRefused(
            errors_pb2.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads already"
        )
    chosen = after_broker_change(partition, brokers, unclean=True)
    if chosen is None or chosen.leader == NO_BROKER:
        return ElectionRefused(
            errors_pb2.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"no replica of {list(partition.replicas)} is on a live broker and in a log directory "
            "that works",
        )
    return chosen


def operation(
    tenure: ControllerTenure,
    topic: str,
    topic_id: TopicId,
    number: int,
    before: Partition,
    decision: LeadershipChange,
) -> Operation:
    """Return the decision as a compare-and-set on leaderAndISR, with the next leader epoch (C1,
    C2)."""
    return tenure.operation(
        PartitionChange(
            topic=topic,
            topic_id=topic_id,
            partition=number,
            expected_version=before.version,
            leader=decision.leader,
            leader_epoch=LeaderEpoch(before.leader_epoch + 1),
            isr=decision.isr,
            controller_id=tenure.controller_id,
            controller_epoch=tenure.controller_epoch,
        )
    )


def without_offline(
    candidates: Brokers, offline: OfflineReplicas, tip: TopicIdPartition
) -> Brokers:
    """Return those of ``candidates`` whose replica of this partition is not offline."""
    return candidates - offline.get(tip, NOBODY)


def _among(members: Iterable[BrokerId], brokers: Brokers) -> tuple[BrokerId, ...]:
    return interned(tuple(one for one in members if one in brokers))


def _leader(partition: Partition, candidates: tuple[BrokerId, ...]) -> BrokerId:
    """Choose the leader among ``candidates``. A leader that can stay, stays."""
    if partition.leader in candidates:
        return partition.leader
    return _first(partition, candidates)


def _first(partition: Partition, candidates: tuple[BrokerId, ...]) -> BrokerId:
    return next(replica for replica in partition.replicas if replica in candidates)
