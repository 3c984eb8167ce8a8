"""What a run reads: the stream reader's own decisions, from where the pipeline is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from quorate.spark.options.subscription import Subscription
from quorate.spark.ranges import OffsetRange, TopicPartition
from quorate.spark.reading.planning import KnownTopic, select_partitions
from quorate.spark.streaming.checkpoint import StreamOffsets


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit is for: at most one range per partition, and where all of them are then."""

    ranges: tuple[OffsetRange, ...]
    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """Offsets in it: an upper bound of the records."""
        return sum(offsets.size for offsets in self.ranges)


class Planner(Protocol):
    """Asks the cluster. All raise ``QuorateSourceError``, and say what is missing."""

    def topics(self) -> list[str]:
        """Those that are subscribed to and there."""

    def starts(self) -> StreamOffsets:
        """Where a pipeline begins that has done nothing yet."""

    def end_of_batch(self, start: StreamOffsets) -> StreamOffsets:
        """Where the batch from ``start`` ends; ``start`` itself: there is nothing to do."""

    def ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        """What such a batch reads."""

    def waiting(self, start: StreamOffsets) -> int:
        """How many offsets there are to read from ``start`` on."""

    def topic_ids(self, topics: list[str]) -> dict[str, bytes]:
        """Of those that there are."""

    def earliest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each."""

    def subscription(self) -> Subscription: ...


def next_batch(planner: Planner, start: StreamOffsets) -> Batch | None:
    """The batch that begins at ``start``; None: all is done."""
    end = planner.end_of_batch(start)
    if end is start:
        return None
    joined: dict[TopicPartition, OffsetRange] = {}
    for one in planner.ranges(start, end):
        first = joined.get(one.topic_partition, one)
        joined[one.topic_partition] = OffsetRange(
            one.topic_partition,
            min(first.start, one.start),
            max(first.end, one.end),
            one.topic_id,
        )
    ranges = tuple(joined[partition] for partition in sorted(joined))
    return Batch(ranges, end.offsets, end.topic_ids)


def still_read(
    subscription: Subscription,
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, bytes],
) -> StreamOffsets:
    """Of what the pipeline has begun, what it still reads; the rest stays where it is."""
    counts: dict[str, KnownTopic] = {}
    for topic, number in sorted(offsets):
        counts[topic] = KnownTopic(topic_ids[topic], number + 1)
    if subscription.partitions is not None:
        assigned = {
            TopicPartition(topic, number)
            for topic, numbers in subscription.partitions.items()
            for number in numbers
        }
        kept = {partition for partition in offsets if partition in assigned}
    else:
        names = tuple(topic for topic in subscription.topics if topic in counts)
        known = Subscription(topics=names, pattern=subscription.pattern)
        kept = set(select_partitions(known, counts)) & offsets.keys()
    return StreamOffsets(
        {partition: offsets[partition] for partition in kept},
        {partition.topic: topic_ids[partition.topic] for partition in kept},
    )
