"""Looks at the logs that a stream reads, and notes missing partitions instead of failing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import ClusterUnavailable
from quorate.spark.offset_ranges import DescribedTopic
from quorate.spark.options.topic_subscription import Subscription
from quorate.spark.reading.offset_resolver import (
    OffsetResolver,
    known_topics,
    list_offsets,
    offset_questions,
)
from quorate.spark.reading.range_planning import select_partitions
from quorate.spark.streaming.stream_checkpoint import StreamOffsets

if TYPE_CHECKING:
    from quorate.spark.cluster_client import ClusterClient


@dataclass(frozen=True, slots=True)
class LogEdges:
    """The offsets that a log holds: ``first <= offset < behind_last``."""

    first: int
    behind_last: int

    def __str__(self) -> str:
        return f"[{self.first}, {self.behind_last})"


@dataclass(frozen=True, slots=True)
class LogView:
    """The logs of a subscription at one moment."""

    edges: Mapping[TopicPartition, LogEdges]
    topic_ids: Mapping[str, bytes]
    """The id of every topic in `edges`."""
    missing: frozenset[TopicPartition | str] = frozenset()
    """The partitions and topics that the subscription names and that do not exist."""

    def ends(self) -> StreamOffsets:
        """Return the offsets behind the last record of every partition."""
        return StreamOffsets(
            {partition: edges.behind_last for partition, edges in self.edges.items()},
            self.topic_ids,
        )


def observe(cluster: "ClusterClient", subscription: Subscription) -> LogView:
    """Look at the logs of a subscription.

    Raises:
        ClusterUnavailable: no broker answers, or a partition has no leader.
    """
    while True:
        topics = known_topics(cluster, subscription)
        try:
            return _view(cluster, subscription, topics)
        except ClusterUnavailable:
            # A topic that was deleted meanwhile has no leader. Then look again; it is no failure.
            if known_topics(cluster, subscription) == topics:
                raise


def exactly(partitions: Iterable[TopicPartition]) -> Subscription:
    """Return a subscription to exactly these partitions."""
    numbers: dict[str, tuple[int, ...]] = {}
    for partition in sorted(partitions):
        numbers[partition.topic] = (*numbers.get(partition.topic, ()), partition.partition)
    return Subscription(partitions=numbers)


def _view(
    cluster: "ClusterClient", subscription: Subscription, topics: Mapping[str, DescribedTopic]
) -> LogView:
    there, missing = what_is_there(subscription, topics)
    partitions = select_partitions(there, topics)
    resolver = OffsetResolver(list_offsets(cluster, offset_questions(partitions, 0)), 0)
    return LogView(
        {partition: LogEdges(*resolver.edges(partition)) for partition in partitions},
        {partition.topic: topics[partition.topic].topic_id for partition in partitions},
        missing,
    )


def what_is_there(
    subscription: Subscription, topics: Mapping[str, DescribedTopic]
) -> tuple[Subscription, frozenset[TopicPartition | str]]:
    """Return the part of a subscription that exists, and the names in it that do not exist."""
    if subscription.partitions is not None:
        assigned = {TopicPartition(t, n) for t, ns in subscription.partitions.items() for n in ns}
        found = {
            p for p in assigned if p.topic in topics and p.partition < topics[p.topic].partitions
        }
        return exactly(found), frozenset(assigned - found)
    there = tuple(name for name in subscription.topics if name in topics)
    missing = frozenset(subscription.topics) - frozenset(there)
    return Subscription(topics=there, pattern=subscription.pattern), missing
