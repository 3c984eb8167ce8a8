"""The health of one topic's partitions according to an image. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from quorate.common.types import BrokerId
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Topic

NAMED_MAX: Final = 50
"""The most partitions in trouble that are named."""


class TopicHealth(msgspec.Struct, frozen=True, gc=False):
    """The partitions of a topic, and those in trouble by number."""

    partitions: int = 0
    replicas: int = 0
    replication_factor: int = 0
    offline: tuple[int, ...] = ()
    """The first partitions without a leader."""
    offline_count: int = 0
    under_replicated: tuple[int, ...] = ()
    """The first partitions with fewer replicas in sync than there should be."""
    under_replicated_count: int = 0
    under_min_isr_count: int = 0
    """Partitions that refuse acks=all, because too few replicas are in sync."""
    moving: int = 0
    """Partitions with a reassignment that is not done."""
    not_preferred: int = 0
    """Partitions that another than the preferred replica leads."""

    @property
    def is_sound(self) -> bool:
        return not (self.offline_count or self.under_replicated_count)


def topic_health(image: Image, topic: Topic, min_insync_replicas: int) -> TopicHealth:
    """Return the health of a topic. Replicas that a reassignment adds are not missed (C11)."""
    pending = dict(image.reassignments.get(topic.name) or ())
    offline: list[int] = []
    under: list[int] = []
    replicas = under_min = not_preferred = 0
    for number, partition in enumerate(topic.partitions):
        replicas += len(partition.replicas)
        if partition.offline:
            offline.append(number)
        elif partition.leader != partition.replicas[0]:
            not_preferred += 1
        if len(partition.isr) < len(partition.replicas):
            move = pending.get(number)
            wanted = len(partition.replicas) - len(move.adding if move else ())
            if len(partition.isr) < wanted:
                under.append(number)
                under_min += len(partition.isr) < min(min_insync_replicas, wanted)
    return TopicHealth(
        partitions=len(topic.partitions),
        replicas=replicas,
        replication_factor=len(topic.partitions[0].replicas) if topic.partitions else 0,
        offline=tuple(offline[:NAMED_MAX]),
        offline_count=len(offline),
        under_replicated=tuple(under[:NAMED_MAX]),
        under_replicated_count=len(under),
        under_min_isr_count=under_min,
        moving=len(pending),
        not_preferred=not_preferred,
    )


class ClusterHealth(msgspec.Struct, frozen=True):
    """The sums over the topics that a person may see."""

    topics: int = 0
    partitions: int = 0
    replicas: int = 0
    offline: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    moving: int = 0
    not_preferred: int = 0


def summed(topics: Iterable[TopicHealth]) -> ClusterHealth:
    """Return the sums over some topics."""
    total = [0] * 8
    for one in topics:
        total[0] += 1
        total[1] += one.partitions
        total[2] += one.replicas
        total[3] += one.offline_count
        total[4] += one.under_replicated_count
        total[5] += one.under_min_isr_count
        total[6] += one.moving
        total[7] += one.not_preferred
    return ClusterHealth(*total)


class BrokerShare(msgspec.Struct):
    """The partitions of one broker."""

    leaders: int = 0
    replicas: int = 0
    out_of_sync: int = 0


def broker_shares(topic: Topic, shares: dict[BrokerId, BrokerShare]) -> None:
    """Add the partitions of a topic to the shares of their brokers."""
    for partition in topic.partitions:
        for broker in partition.replicas:
            share = shares.get(broker)
            if share is None:
                share = shares[broker] = BrokerShare()
            share.replicas += 1
            if broker not in partition.isr:
                share.out_of_sync += 1
        leader = shares.get(partition.leader)
        if leader is not None:
            leader.leaders += 1
