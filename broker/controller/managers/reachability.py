"""Decides which brokers are cut off from the others, and moves leadership away from them.

Leadership belongs on brokers that all reach each other and the controller: there followers reach
their leaders, coordinators reach the leaders they write markers to, and everybody can be told. The
decision is a small set of brokers to leave out, so that no broken link remains between the others.
They must be a majority of the live brokers: then no other part of the cluster can come to another
decision, and a broken report cannot stop the cluster.

Leadership only moves to a member of the ISR, in a new leader epoch and by compare-and-set, as after
the failure of a broker. A leader that is cut off learns it from the quorum, or from the refusal of
its next ISR change.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Set

from quorate.broker.controller.managers import partition_change
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.partition_change import Brokers, LeadershipChange
from quorate.common.types import BrokerId, TopicPartition
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Partition, Topic, interned
from quorate.metadata_log.records import Operation

MinInsyncReplicas = Callable[[str], int]
"""Returns min.insync.replicas of the topic of that name."""


def cut_off(
    live: Brokers, broken: Collection[frozenset[BrokerId]], controller: BrokerId
) -> Brokers:
    """Return the brokers to leave out so that no broken link is left between the others.

    The broker with the most broken links goes first. The controller stays where others have as
    many, because it can tell the rest. Nobody is cut off unless the rest is a majority.
    """
    connected = set(live)
    while True:
        counts = Counter(one for link in broken if link <= connected for one in link)
        if not counts:
            break
        connected.remove(max(counts, key=lambda one: (counts[one], one != controller, one)))
    return live - connected if 2 * len(connected) > len(live) else frozenset()


def cut_off_changes(
    image: Image,
    tenure: ControllerTenure,
    cut: Brokers,
    candidates: Brokers,
    broken: Collection[frozenset[BrokerId]],
    min_insync: MinInsyncReplicas,
) -> list[Operation]:
    """Return operations that move leaderships away from the brokers in ``cut``.

    ``candidates`` are the brokers that leadership may move to. Deciding again from an image in
    which the operations are applied returns none.
    """
    operations = []
    for topic, number in _led_by(image, cut):
        partition = topic.partitions[number]
        pending = image.reassignment(TopicPartition(topic.name, number))
        own_count = len(partition.replicas) - (0 if pending is None else len(pending.adding))
        needed = min(min_insync(topic.name), max(1, own_count))
        decision = moved_leadership(partition, candidates - cut, broken, needed)
        if decision is not None:
            operations.append(
                partition_change.operation(
                    tenure, topic.name, topic.topic_id, number, partition, decision
                )
            )
    return operations


def moved_leadership(
    partition: Partition,
    candidates: Brokers,
    broken: Collection[frozenset[BrokerId]],
    needed: int,
) -> LeadershipChange | None:
    """Move the leadership of a partition to ``candidates``, or return None if it stays.

    It moves if the members of the ISR among them take acks=all, or if all replicas among them can
    once they have caught up, while those that the leader reaches cannot. The ISR becomes those
    members: the new leader could not reach the others. ``needed`` members are enough for acks=all.
    """
    members = interned(tuple(one for one in partition.isr if one in candidates))
    if not members:
        return None
    if len(members) < needed:
        reached = [one for one in partition.isr if not _is_broken(partition.leader, one, broken)]
        others = [one for one in partition.replicas if one in candidates]
        if len(reached) >= needed or len(others) < needed:
            return None
    leader = next(replica for replica in partition.replicas if replica in members)
    return LeadershipChange(leader, members)


def _is_broken(one: BrokerId, other: BrokerId, broken: Collection[frozenset[BrokerId]]) -> bool:
    return frozenset((one, other)) in broken


def _led_by(image: Image, brokers: Set[BrokerId]) -> Iterator[tuple[Topic, int]]:
    """Yield the partitions led by one of ``brokers``, except those that are being removed."""
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions[: image.kept(topic)]):
            if partition.leader in brokers:
                yield topic, number
