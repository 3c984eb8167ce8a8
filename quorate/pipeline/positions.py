"""Where pipelines are and where they could be: what `status`, `--dry-run` and `reset` look at."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from quorate.client.results import NOT_BEGUN, Pipeline, PipelineTopic
from quorate.pipeline.cluster_planner import ClusterPlanner
from quorate.pipeline.errors import PipelineError
from quorate.pipeline.planning import still_read
from quorate.pipeline.registry import offsets_of
from quorate.spark.options.connection import Connection
from quorate.spark.options.offset_bounds import ByPartition, OffsetBound
from quorate.spark.options.subscription import Subscription
from quorate.spark.ranges import TopicPartition
from quorate.spark.reading.asking import ask_offsets, known_topics
from quorate.spark.reading.resolving import Resolver, questions_for
from quorate.spark.streaming.checkpoint import StreamOffsets
from quorate.spark.streaming.observing import exactly, observe


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one partition. ``end`` None: the partition is not there any more."""

    partition: TopicPartition
    committed: int
    end: int | None

    @property
    def lag(self) -> int | None:
        return None if self.end is None else max(self.end - self.committed, 0)


def standings(connection: Connection, state: Pipeline) -> list[Standing]:
    """How far the pipeline is in every partition that it has begun."""
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
    return [Standing(one, offset, ends.get(one)) for one, offset in sorted(offsets.items())]


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """What a run would read of one partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def planned(planner: ClusterPlanner, state: Pipeline | None) -> list[PlannedRange]:
    """What a run would read, in all its batches.

    Raises:
        QuorateSourceError: something is missing.
    """
    start = planner.starts() if state is None or not offsets_of(state) else _start(planner, state)
    ends = planner.all_there_is(start)
    return [
        PlannedRange(one.topic_partition, one.start, one.end)
        for one in planner.unsplit(start, ends)
    ]


def _start(planner: ClusterPlanner, state: Pipeline) -> StreamOffsets:
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
    connection: Connection, state: Pipeline, bound: OffsetBound, topics: Iterable[str] = ()
) -> list[PipelineTopic]:
    """Offsets to put a pipeline at: of the partitions that are named; else of all of its topics,
    or of those in ``topics``.

    Raises:
        PipelineError: a partition or an offset is not there.
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
        resolver = Resolver(ask_offsets(cluster, questions_for(partitions, now_ms, bound)), now_ms)
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


def _checked(partition: TopicPartition, offset: int, resolver: Resolver) -> int:
    first, behind_last = resolver.edges(partition)
    if not first <= offset <= behind_last:
        raise PipelineError(
            f"offset {offset} of {partition} is not there: the log holds [{first}, {behind_last})"
        )
    return offset
