"""The planner of a pipeline: which offsets a batch reads, by the decisions of the stream reader."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from quorate.common.topic_partition import TopicPartition
from quorate.spark.committing.stream_commits import StreamCommits
from quorate.spark.offset_ranges import EARLIEST, DescribedTopic, OffsetQuestion, OffsetRange
from quorate.spark.options.read_options import StreamOptions
from quorate.spark.options.topic_subscription import Subscription
from quorate.spark.reading.offset_resolver import known_topics, list_offsets
from quorate.spark.reading.range_planning import select_partitions
from quorate.spark.streaming.log_view import exactly, observe, what_is_there
from quorate.spark.streaming.micro_batch_planning import (
    begin_next_batch,
    plan_batch,
    waiting_offsets,
)
from quorate.spark.streaming.stream_checkpoint import StreamOffsets
from quorate.spark.streaming.stream_planner import StreamPlanner


@dataclass(frozen=True, slots=True)
class PipelineBatch:
    """The offsets of one commit, with at most one range per partition."""

    ranges: tuple[OffsetRange, ...]
    ends: Mapping[TopicPartition, int]
    """The offsets of all partitions after the commit."""
    topic_ids: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """The number of offsets: an upper bound of the number of records."""
        return sum(offsets.size for offsets in self.ranges)


class PipelinePlanner:
    """Plans the batches of a pipeline by asking the cluster; close it.

    It plans up to the ends of the logs at its first look, or at the last call of `look_again`. All
    methods raise ``QuorateSourceError``; the message names what is missing.
    """

    def __init__(self, options: StreamOptions, commits: StreamCommits | None = None) -> None:
        """
        Args:
            options: the options of the source.
            commits: commits the pipeline's offsets to a consumer group, too. Closed with the
                planner.
        """
        self._options = options
        self._commits = commits
        self._cluster = options.reading.connection.open()
        self._planner = StreamPlanner(options, commits=commits)
        self._planner.stop_at_what_is_there()

    def close(self) -> None:
        """Close all connections."""
        self._planner.close()
        self._cluster.close()

    def look_again(self) -> None:
        """Plan from now on up to the ends that the logs have at the next look."""
        self._planner.close()
        self._planner = StreamPlanner(self._options, commits=self._commits)
        self._planner.stop_at_what_is_there()

    def subscription(self) -> Subscription:
        """Return what the pipeline subscribes to."""
        return self._options.reading.subscription

    def topics(self) -> list[str]:
        """Return the existing topics that the pipeline subscribes to."""
        return sorted(observe(self._cluster, self.subscription()).topic_ids)

    def described(self) -> dict[str, DescribedTopic]:
        """Return the existing topics that the pipeline subscribes to, with their partitions."""
        found = known_topics(self._cluster, self.subscription())
        there, _ = what_is_there(self.subscription(), found)
        names = {partition.topic for partition in select_partitions(there, found)}
        return {name: found[name] for name in sorted(names)}

    def starts(self) -> StreamOffsets:
        """Return the offsets at which a new pipeline begins."""
        return self._planner.initial(time.time_ns() // 1_000_000)

    def end_of_batch(self, start: StreamOffsets) -> StreamOffsets:
        """Return the end of the batch from ``start``, or ``start`` itself if nothing is new."""
        return self._planner.next(start, limited=True, at_most=self._options.limits.at_most)

    def ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        """Return the ranges that the batch from ``start`` to ``end`` reads."""
        return self._planner.ranges(start, end)

    def all_there_is(self, start: StreamOffsets) -> StreamOffsets:
        """Return the end of one batch that holds everything from ``start``, however much it is."""
        return self._planner.next(start, limited=False)

    def ranges_per_partition(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        """Return the ranges from ``start`` to ``end``, one per partition."""
        view = observe(self._cluster, exactly(end.offsets))
        return plan_batch(start, end, view)[0]

    def waiting(self, start: StreamOffsets) -> int:
        """Return how many offsets there are to read from ``start`` on."""
        view = observe(self._cluster, self.subscription())
        return sum(waiting_offsets(begin_next_batch(start, view), view).values())

    def topic_ids(self, topics: list[str]) -> dict[str, bytes]:
        """Return the ids of those topics that exist."""
        found = known_topics(self._cluster, Subscription(topics=tuple(topics)))
        return {name: topic.topic_id for name, topic in found.items()}

    def earliest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the earliest offset of each partition."""
        known_topics(
            self._cluster,
            Subscription(topics=tuple(sorted({partition.topic for partition in partitions}))),
        )
        questions = [OffsetQuestion(one, EARLIEST) for one in partitions]
        offsets = list_offsets(self._cluster, questions)
        return {question.topic_partition: offsets[question] for question in questions}


def next_batch(planner: PipelinePlanner, start: StreamOffsets) -> PipelineBatch | None:
    """Return the batch that begins at ``start``, or None if everything is done."""
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
    return PipelineBatch(ranges, end.offsets, end.topic_ids)


def still_read(
    subscription: Subscription,
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, bytes],
) -> StreamOffsets:
    """Return the offsets of those begun partitions that the pipeline still subscribes to.

    The offsets of all other partitions stay where they are.
    """
    counts: dict[str, DescribedTopic] = {}
    for topic, number in sorted(offsets):
        counts[topic] = DescribedTopic(topic_ids[topic], number + 1)
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
