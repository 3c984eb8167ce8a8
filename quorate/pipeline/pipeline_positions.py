"""The positions of a pipeline in its topics, for `status`, `run --dry-run` and `reset`."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from quorate.client.results import NOT_BEGUN, Pipeline, PipelineTopic
from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.pipeline_errors import PipelineError
from quorate.pipeline.pipeline_planner import PipelinePlanner, still_read
from quorate.pipeline.pipeline_registry import offsets_of
from quorate.spark.options.connection_options import ConnectionOptions
from quorate.spark.options.offset_positions import ByPartition, OffsetBound
from quorate.spark.options.topic_subscription import Subscription
from quorate.spark.reading.offset_resolver import (
    OffsetResolver,
    known_topics,
    list_offsets,
    offset_questions,
)
from quorate.spark.streaming.log_view import exactly, observe
from quorate.spark.streaming.stream_checkpoint import StreamOffsets


@dataclass(frozen=True, slots=True)
class PipelineLag:
    """The committed offset of one partition, and the end of its log."""

    partition: TopicPartition
    committed: int
    end: int | None
    """The offset behind the last record, or None if the partition does not exist any more."""

    @property
    def lag(self) -> int | None:
        """The number of offsets that are not read yet."""
        return None if self.end is None else max(self.end - self.committed, 0)


def pipeline_lags(connection: ConnectionOptions, state: Pipeline) -> list[PipelineLag]:
    """Return the position of the pipeline in every partition that it has begun."""
    offsets = offsets_of(state)
    if not offsets:
        return []
    with connection.open() as cluster:
        view = observe(cluster, exactly(offsets))
    ids = {one.topic: one.topic_id for one in state.topics}
    ends = {
        one: edges.behind_last
        for one, edges in view.edges.items()
        if view.topic_ids[one.topic] == ids[one.topic]
    }
    return [PipelineLag(one, offset, ends.get(one)) for one, offset in sorted(offsets.items())]


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """The range that a run would read of one partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def planned_ranges(planner: PipelinePlanner, state: Pipeline | None) -> list[PlannedRange]:
    """Return the ranges that a run would read in all its batches together.

    Raises:
        QuorateSourceError: something that the pipeline needs is missing.
    """
    start = planner.starts() if state is None or not offsets_of(state) else _start(planner, state)
    ends = planner.all_there_is(start)
    return [
        PlannedRange(one.topic_partition, one.start, one.end)
        for one in planner.ranges_per_partition(start, ends)
    ]


def _start(planner: PipelinePlanner, state: Pipeline) -> StreamOffsets:
    ids = {one.topic: one.topic_id for one in state.topics}
    known = still_read(planner.subscription(), offsets_of(state), ids)
    new = set(planner.topics()) - {one.topic for one in state.topics}
    if not new:
        return known
    starts = planner.starts()
    added = {one: offset for one, offset in starts.offsets.items() if one.topic in new}
    return StreamOffsets(
        {**known.offsets, **added},
        {**known.topic_ids, **{topic: starts.topic_ids[topic] for topic in new}},
    )


def reset_targets(
    connection: ConnectionOptions, state: Pipeline, bound: OffsetBound, topics: Iterable[str] = ()
) -> list[PipelineTopic]:
    """Return the offsets to reset a pipeline to.

    Args:
        connection: the cluster.
        state: the pipeline as the cluster describes it.
        bound: the new position. If it names partitions, only those are reset.
        topics: the topics to reset; empty for all topics of the pipeline.

    Raises:
        PipelineError: a partition or an offset does not exist.
    """
    names = sorted(set(topics)) or [one.topic for one in state.topics]
    if isinstance(bound, ByPartition):
        names = sorted({partition.topic for partition in bound.partitions})
    now_ms = time.time_ns() // 1_000_000
    with connection.open() as cluster:
        known = known_topics(cluster, Subscription(topics=tuple(names)))
        if missing := [name for name in names if name not in known]:
            raise PipelineError(f"the cluster has no topic {', '.join(missing)}")
        partitions = [
            TopicPartition(name, number)
            for name in names
            for number in range(known[name].partitions)
        ]
        if isinstance(bound, ByPartition):
            if absent := sorted(bound.partitions - set(partitions)):
                raise PipelineError(f"there is no partition {', '.join(map(str, absent))}")
            partitions = sorted(bound.partitions)
        resolver = OffsetResolver(
            list_offsets(cluster, offset_questions(partitions, now_ms, bound)), now_ms
        )
        targets = {
            one: _checked(
                one, resolver.resolve(bound.at(one), one, absent_is_latest=True), resolver
            )
            for one in partitions
        }
    return [
        PipelineTopic(
            topic=name,
            topic_id=known[name].topic_id,
            offsets=tuple(
                targets.get(TopicPartition(name, number), NOT_BEGUN)
                for number in range(known[name].partitions)
            ),
        )
        for name in names
    ]


def _checked(partition: TopicPartition, offset: int, resolver: OffsetResolver) -> int:
    first, behind_last = resolver.edges(partition)
    if not first <= offset <= behind_last:
        raise PipelineError(
            f"offset {offset} of {partition} is not there: the log holds [{first}, {behind_last})"
        )
    return offset
