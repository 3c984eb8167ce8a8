"""Decides leader and ISR of a partition: the one unit that does (C2, C4).

The first choice is always a live member of the ISR, in order of assignment, so that the preferred
replica is taken where it can be. Outside the ISR lies data loss: that needs the topic's
consent (``unclean.leader.election.enable``). Without it the partition goes offline, and its ISR is
kept: its members, and nobody else, may bring it back.

A broker that *restarted* has what it acknowledged, but may lack what it had not yet synced.
Resuming its old leader epoch would let two different records share an offset and an epoch, so
whatever it led gets a new epoch, and another member of the ISR leads if there is one. A broker that
may have *lost* its log (rule 8) leaves every ISR, even if nobody is left in it: then only an
operator's unclean election brings the partition back.
"""

from collections.abc import Iterable
from typing import NamedTuple

from broker.controller.managers.office import Office
from metadata_log.image import Partition, interned
from metadata_log.records import NewPartition, Operation, PartitionChange
from metadata_log.types import NO_BROKER, BrokerId, LeaderEpoch, TopicId
from quorate_proto.v1 import errors_pb2

Brokers = frozenset[BrokerId]


class Liveness(NamedTuple):
    """The live brokers by what can be expected of them; the three sets share no member."""

    steady: Brokers
    """Live, in an incarnation whose arrival has been dealt with."""

    restarted: Brokers = frozenset()
    """Live in a new incarnation, with all that was ever acknowledged."""

    lost_log: Brokers = frozenset()
    """Live in a new incarnation, perhaps without what it had acknowledged (rule 8)."""

    @property
    def live(self) -> Brokers:
        return self.steady | self.restarted | self.lost_log


class Leadership(NamedTuple):
    """A decision: whom the partition is to have, at the next leader epoch."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]
    unclean: bool = False


class ElectionRefused(NamedTuple):
    """Why an election asked for by an operator does not take place."""

    error_code: int
    message: str


def after_broker_change(
    partition: Partition, brokers: Liveness, *, unclean: bool
) -> Leadership | None:
    """What becomes of ``partition`` now that ``brokers`` live; None: it stays as it is (C2)."""
    steady = _among(partition.isr, brokers.steady)
    if steady:
        if partition.leader in steady and len(steady) == len(partition.isr):
            return None
        return Leadership(_leader(partition, steady), steady)
    back = _among(partition.isr, brokers.restarted)
    if back:
        return Leadership(_leader(partition, back), back)
    return _without_isr(partition, brokers, unclean)


def _without_isr(partition: Partition, brokers: Liveness, unclean: bool) -> Leadership | None:
    """Nobody in the ISR can lead."""
    if unclean:
        for candidates in (brokers.steady, brokers.restarted, brokers.lost_log):
            for replica in partition.replicas:
                if replica in candidates:
                    return Leadership(replica, interned((replica,)), unclean=True)
    kept = interned(tuple(one for one in partition.isr if one not in brokers.lost_log))
    if partition.offline and kept == partition.isr:
        return None
    return Leadership(NO_BROKER, kept)


def away_from(partition: Partition, broker: BrokerId, candidates: Brokers) -> Leadership | None:
    """Moves leadership off a broker that wants to stop; None: nobody in the ISR can take over."""
    others = _among(partition.isr, candidates - {broker})
    if partition.leader != broker or not others:
        return None
    isr = interned(tuple(one for one in partition.isr if one != broker))
    return Leadership(_first(partition, others), isr)


def without(partition: Partition, broker: BrokerId, candidates: Brokers) -> Leadership | None:
    """Takes a replica that is of no use out of the ISR; None: it stays as it is.

    Never where none of ``candidates`` is left in it: what it has is better than nothing.
    """
    others = _among(partition.isr, candidates - {broker})
    if partition.offline or broker not in partition.isr or not others:
        return None
    isr = interned(tuple(one for one in partition.isr if one != broker))
    leader = _first(partition, others) if partition.leader == broker else partition.leader
    return Leadership(leader, isr)


def preferred(partition: Partition, brokers: Brokers) -> Leadership | ElectionRefused:
    """An operator asks for the preferred leader."""
    wanted = partition.preferred_leader
    if partition.leader == wanted:
        return ElectionRefused(errors_pb2.ELECTION_NOT_NEEDED, f"broker {wanted} leads already")
    if wanted not in brokers or wanted not in partition.isr:
        return ElectionRefused(
            errors_pb2.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {wanted} is not a live member of the ISR {list(partition.isr)}",
        )
    return Leadership(wanted, partition.isr)


def unclean(partition: Partition, brokers: Liveness) -> Leadership | ElectionRefused:
    """An operator accepts data loss to get an offline partition back."""
    if partition.leader in brokers.live:
        return ElectionRefused(
            errors_pb2.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads already"
        )
    chosen = after_broker_change(partition, brokers, unclean=True)
    if chosen is None or chosen.leader == NO_BROKER:
        return ElectionRefused(
            errors_pb2.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"no replica of {list(partition.replicas)} is live",
        )
    return chosen


def first_leadership(replicas: tuple[BrokerId, ...], live: Brokers) -> NewPartition:
    """A new partition: the first live replica leads, all live replicas are in sync (C4)."""
    isr = _among(replicas, live)
    leader = isr[0] if isr else NO_BROKER
    return NewPartition(replicas=interned(replicas), leader=leader, isr=isr)


def operation(
    office: Office,
    topic: str,
    topic_id: TopicId,
    number: int,
    before: Partition,
    decision: Leadership,
) -> Operation:
    """The decision as a compare-and-set on leaderAndISR, one leader epoch up (C1, C2)."""
    return office.operation(
        PartitionChange(
            topic=topic,
            topic_id=topic_id,
            partition=number,
            expected_version=before.version,
            leader=decision.leader,
            leader_epoch=LeaderEpoch(before.leader_epoch + 1),
            isr=decision.isr,
            controller_id=office.controller_id,
            controller_epoch=office.controller_epoch,
        )
    )


def _among(members: Iterable[BrokerId], brokers: Brokers) -> tuple[BrokerId, ...]:
    return interned(tuple(one for one in members if one in brokers))


def _leader(partition: Partition, candidates: tuple[BrokerId, ...]) -> BrokerId:
    """A leader that can stay, stays."""
    if partition.leader in candidates:
        return partition.leader
    return _first(partition, candidates)


def _first(partition: Partition, candidates: tuple[BrokerId, ...]) -> BrokerId:
    return next(replica for replica in partition.replicas if replica in candidates)
