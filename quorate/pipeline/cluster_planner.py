"""The planner that asks a cluster."""

import time

from quorate.spark.committing.stream_commits import StreamCommits
from quorate.spark.options.subscription import Subscription
from quorate.spark.ranges import EARLIEST, OffsetRange, TopicPartition
from quorate.spark.reading.asking import ask_offsets, known_topics
from quorate.spark.streaming.checkpoint import StreamOffsets
from quorate.spark.streaming.observing import exactly, observe
from quorate.spark.streaming.planner import StreamPlanner
from quorate.spark.streaming.progress import plan_batch, take_up, waiting
from quorate.spark.streaming.stream_options import StreamOptions


class ClusterPlanner:
    """Plans batches up to what is there at the first look; close it.

    ``look_again``: up to what is there by then.
    """

    def __init__(self, options: StreamOptions, commits: StreamCommits | None = None) -> None:
        """``commits``: told how far the pipeline is; closed with the planner."""
        self._options = options
        self._commits = commits
        self._cluster = options.reading.connection.open()
        self._planner = StreamPlanner(options, commits=commits)
        self._planner.stop_at_what_is_there()

    def close(self) -> None:
        self._planner.close()
        self._cluster.close()

    def look_again(self) -> None:
        self._planner.close()
        self._planner = StreamPlanner(self._options, commits=self._commits)
        self._planner.stop_at_what_is_there()

    def subscription(self) -> Subscription:
        return self._options.reading.subscription

    def topics(self) -> list[str]:
        return sorted(observe(self._cluster, self.subscription()).topic_ids)

    def starts(self) -> StreamOffsets:
        return self._planner.initial(time.time_ns() // 1_000_000)

    def end_of_batch(self, start: StreamOffsets) -> StreamOffsets:
        return self._planner.next(start, limited=True, at_most=self._options.limits.at_most)

    def ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        return self._planner.ranges(start, end)

    def all_there_is(self, start: StreamOffsets) -> StreamOffsets:
        """As ``end_of_batch``, however much it is."""
        return self._planner.next(start, limited=False)

    def unsplit(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        """As ``ranges``, one per partition."""
        view = observe(self._cluster, exactly(end.offsets))
        return plan_batch(start, end, view)[0]

    def waiting(self, start: StreamOffsets) -> int:
        view = observe(self._cluster, self.subscription())
        return sum(waiting(take_up(start, view), view).values())

    def topic_ids(self, topics: list[str]) -> dict[str, bytes]:
        found = known_topics(self._cluster, Subscription(topics=tuple(topics)))
        return {name: topic.topic_id for name, topic in found.items()}

    def earliest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        known_topics(
            self._cluster,
            Subscription(topics=tuple(sorted({partition.topic for partition in partitions}))),
        )
        offset_of = ask_offsets(self._cluster, [(one, EARLIEST) for one in partitions])
        return {one: offset_of(one, EARLIEST) for one in partitions}
