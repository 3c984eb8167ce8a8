"""From where a stream is and what the cluster has to the next batch: pure, for a table to test.

What a stream has still to read can be gone: removed by retention, cut off by an unclean election,
deleted with its topic. Each such `Loss` is named here; whether it ends the query or is passed over
(failOnDataLoss) is for the caller to decide, before the batch is written down.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from quorate.spark.ranges import OffsetRange, TopicPartition
from quorate.spark.streaming.admission import share_out
from quorate.spark.streaming.checkpoint import StreamOffsets


@dataclass(frozen=True, slots=True)
class LogEdges:
    """What a log holds: ``first <= offset < behind_last``."""

    first: int
    behind_last: int

    def __str__(self) -> str:
        return f"[{self.first}, {self.behind_last})"


@dataclass(frozen=True, slots=True)
class LogView:
    """What the cluster has, of what is asked for, at one moment."""

    edges: Mapping[TopicPartition, LogEdges]
    topic_ids: Mapping[str, bytes]
    """Of every topic in `edges`."""
    missing: frozenset[TopicPartition | str] = frozenset()
    """Partitions and topics that were asked for by name and are not there."""

    def ends(self) -> StreamOffsets:
        """Behind the last record of every partition."""
        return StreamOffsets(
            {partition: edges.behind_last for partition, edges in self.edges.items()},
            self.topic_ids,
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that was still to be read and is not there."""

    what: str
    may_heal: bool
    """A broker that does not know the latest yet may say the same: worth asking again."""


@dataclass(frozen=True, slots=True)
class Step:
    """From where a batch reads, and what is missing there."""

    begins: Mapping[TopicPartition, int]
    losses: Sequence[Loss] = ()


def take_up(start: StreamOffsets, view: LogView) -> Step:
    """Where the next batch begins in every partition that is subscribed to.

    A partition that ``start`` does not know is new and begins at its earliest offset, and so does
    one of a topic that was created anew.
    """
    losses = [*_created_anew(start, view), *_gone(start, view)]
    begins: dict[TopicPartition, int] = {}
    for partition, edges in sorted(view.edges.items()):
        begins[partition], lost = _begin(partition, edges, start, view.topic_ids[partition.topic])
        losses += lost
    return Step(begins, losses)


def waiting(step: Step, view: LogView) -> dict[TopicPartition, int]:
    """How many offsets there are to read in every partition."""
    return {p: view.edges[p].behind_last - begin for p, begin in step.begins.items()}


def next_offsets(
    start: StreamOffsets, step: Step, view: LogView, *, at_most: int | None
) -> StreamOffsets:
    """Where a batch of at most so many offsets ends; ``start`` itself if there is nothing new."""
    sizes = waiting(step, view)
    shares = sizes if at_most is None else share_out(at_most, sizes)
    ends = {p: begin + shares.get(p, 0) for p, begin in step.begins.items()}
    if ends == start.offsets and view.topic_ids == start.topic_ids:
        return start
    return StreamOffsets(ends, view.topic_ids, since=start if start.initial else None)


def plan_batch(
    start: StreamOffsets, end: StreamOffsets, view: LogView
) -> tuple[list[OffsetRange], list[Loss]]:
    """The ranges of the batch from ``start`` to ``end``, by topic and partition.

    A batch that is repeated after a restart has the same ranges, whatever was produced, created or
    subscribed to in between; only what is lost is left out.
    """
    losses = [*_created_anew(end, view), *_gone(end, view)]
    ranges: list[OffsetRange] = []
    for partition, until in sorted(end.offsets.items()):
        topic_id = end.topic_ids[partition.topic]
        edges = view.edges.get(partition)
        if edges is None or view.topic_ids[partition.topic] != topic_id:
            continue
        begin, lost = _begin(partition, edges, start, topic_id)
        losses += lost
        if until > edges.behind_last:
            losses.append(_cut_off(partition, until, edges))
            until = edges.behind_last
        if begin < until:
            ranges.append(OffsetRange(partition, begin, until, topic_id))
    return ranges, losses


def never_there(start: StreamOffsets, view: LogView) -> Iterator[Loss]:
    """What is subscribed to by name, is not there, and was not there before either."""
    topics = {partition.topic for partition in start.offsets}
    for name in sorted(view.missing - start.offsets.keys() - topics, key=str):
        noun = "partition" if isinstance(name, TopicPartition) else "topic"
        yield Loss(f"the cluster has no {noun} {name}, which is subscribed to", may_heal=True)


def _begin(
    partition: TopicPartition, edges: LogEdges, start: StreamOffsets, topic_id: bytes
) -> tuple[int, list[Loss]]:
    known_id = start.topic_ids.get(partition.topic, topic_id)
    if known_id != topic_id:
        return edges.first, []
    wanted = start.offsets.get(partition)
    if wanted is None:
        new = f"{partition} is new to the query"
        what = f"{new}, and its offsets before {edges.first} have been removed already"
        return edges.first, [Loss(what, may_heal=False)] if edges.first > 0 else []
    if wanted < edges.first:
        what = f"offsets [{wanted}, {edges.first}) of {partition}: the log holds {edges}"
        return edges.first, [Loss(what, may_heal=False)]
    if wanted > edges.behind_last:
        return edges.behind_last, [_cut_off(partition, wanted, edges)]
    return wanted, []


def _cut_off(partition: TopicPartition, wanted: int, edges: LogEdges) -> Loss:
    what = f"{partition} held offsets up to {wanted} before, and now the log holds {edges}"
    return Loss(what, may_heal=True)


def _created_anew(known: StreamOffsets, view: LogView) -> Iterator[Loss]:
    for topic, known_id in sorted(known.topic_ids.items()):
        found = view.topic_ids.get(topic, known_id)
        if found != known_id:
            ids = f"its id was {known_id.hex()} and is {found.hex()}"
            yield Loss(f"topic {topic} was deleted and created anew: {ids}", may_heal=True)


def _gone(known: StreamOffsets, view: LogView) -> Iterator[Loss]:
    gone = (
        partition
        for partition in sorted(known.offsets)
        if partition not in view.edges
        # Of a topic created anew that is said once, for all its partitions.
        and view.topic_ids.get(partition.topic) in (None, known.topic_ids[partition.topic])
    )
    for topic, partitions in itertools.groupby(gone, key=lambda partition: partition.topic):
        numbers = ", ".join(str(partition.partition) for partition in partitions)
        what = f"topic {topic} partition {numbers} is deleted, or no longer subscribed to"
        yield Loss(what, may_heal=True)
