"""Looking at the cluster for a stream: what there is of what it reads, without complaint."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from quorate.spark.errors import ClusterUnavailable
from quorate.spark.options.subscription import Subscription
from quorate.spark.ranges import TopicPartition
from quorate.spark.reading.asking import ask_offsets, known_topics
from quorate.spark.reading.planning import KnownTopic, select_partitions
from quorate.spark.reading.resolving import Resolver, questions_for
from quorate.spark.streaming.progress import LogEdges, LogView

if TYPE_CHECKING:
    from quorate.spark.cluster import ClusterClient


def observe(cluster: "ClusterClient", subscription: Subscription) -> LogView:
    """The logs of the partitions subscribed to, and what is missing of them.

    Raises:
        ClusterUnavailable: nobody answers, or a partition has no leader.
    """
    while True:
        topics = known_topics(cluster, subscription)
        try:
            return _view(cluster, subscription, topics)
        except ClusterUnavailable:
            # Nobody leads a topic that was deleted since: that is an answer, no failure.
            if known_topics(cluster, subscription) == topics:
                raise


def exactly(partitions: Iterable[TopicPartition]) -> Subscription:
    """A subscription to these partitions."""
    numbers: dict[str, tuple[int, ...]] = {}
    for partition in sorted(partitions):
        numbers[partition.topic] = (*numbers.get(partition.topic, ()), partition.partition)
    return Subscription(partitions=numbers)


def _view(
    cluster: "ClusterClient", subscription: Subscription, topics: Mapping[str, KnownTopic]
) -> LogView:
    there, missing = what_is_there(subscription, topics)
    partitions = select_partitions(there, topics)
    resolver = Resolver(ask_offsets(cluster, questions_for(partitions, 0)), 0)
    return LogView(
        {partition: LogEdges(*resolver.edges(partition)) for partition in partitions},
        {partition.topic: topics[partition.topic].topic_id for partition in partitions},
        missing,
    )


def what_is_there(
    subscription: Subscription, topics: Mapping[str, KnownTopic]
) -> tuple[Subscription, frozenset[TopicPartition | str]]:
    """The part of a subscription that the cluster has, and the names in it that it has not."""
    if subscription.partitions is not None:
        assigned = {TopicPartition(t, n) for t, ns in subscription.partitions.items() for n in ns}
        found = {
            p for p in assigned if p.topic in topics and p.partition < topics[p.topic].partitions
        }
        return exactly(found), frozenset(assigned - found)
    there = tuple(name for name in subscription.topics if name in topics)
    missing = frozenset(subscription.topics) - frozenset(there)
    return Subscription(topics=there, pattern=subscription.pattern), missing
