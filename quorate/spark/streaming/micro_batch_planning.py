"""Plans micro-batches from the offsets of a stream and a view of the logs. It is pure.

Records that a stream still has to read can be gone: removed by retention, truncated after an
unclean leader election, or deleted with their topic. Each such `Loss` is named here. The caller
decides, before the batch is stored, whether it fails the query or is ignored (failOnDataLoss).

As in Spark's Kafka source, ``maxOffsetsPerTrigger`` is shared in proportion to the offsets that
wait in each partition. No partition starves: each gets at least one offset, so a limit below the
number of partitions is exceeded. In all other cases the shares add up to exactly the limit, unlike
in Spark's Kafka source.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from quorate.common.topic_partition import TopicPartition
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.options.read_options import MicroBatchLimits
from quorate.spark.streaming.log_view import LogEdges, LogView
from quorate.spark.streaming.stream_checkpoint import StreamOffsets


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that were still to be read and do not exist."""

    what: str
    may_heal: bool
    """True if asking again may help, because a broker may not know the latest state yet."""


@dataclass(frozen=True, slots=True)
class BatchBeginning:
    """The offsets from which a batch reads, and the records that are missing there."""

    begins: Mapping[TopicPartition, int]
    losses: Sequence[Loss] = ()


def begin_next_batch(start: StreamOffsets, view: LogView) -> BatchBeginning:
    """Decide where the next batch begins in every partition of the subscription.

    A partition that ``start`` does not know is new, and begins at its earliest offset. So does a
    partition of a topic that was re-created.
    """
    losses = [*_created_anew(start, view), *_gone(start, view)]
    begins: dict[TopicPartition, int] = {}
    for partition, edges in sorted(view.edges.items()):
        begins[partition], lost = _begin(partition, edges, start, view.topic_ids[partition.topic])
        losses += lost
    return BatchBeginning(begins, losses)


def waiting_offsets(step: BatchBeginning, view: LogView) -> dict[TopicPartition, int]:
    """Return how many offsets there are to read in every partition."""
    return {p: view.edges[p].behind_last - begin for p, begin in step.begins.items()}


def next_offsets(
    start: StreamOffsets, step: BatchBeginning, view: LogView, *, at_most: int | None
) -> StreamOffsets:
    """Return the end of a batch of at most ``at_most`` offsets, or ``start`` if nothing is new."""
    sizes = waiting_offsets(step, view)
    shares = sizes if at_most is None else share_out(at_most, sizes)
    ends = {p: begin + shares.get(p, 0) for p, begin in step.begins.items()}
    if ends == start.offsets and view.topic_ids == start.topic_ids:
        return start
    return StreamOffsets(ends, view.topic_ids, since=start if start.initial else None)


def plan_batch(
    start: StreamOffsets, end: StreamOffsets, view: LogView
) -> tuple[list[OffsetRange], list[Loss]]:
    """Return the ranges of the batch from ``start`` to ``end``, by topic and partition.

    A batch that is repeated after a restart has the same ranges, whatever was produced, created or
    subscribed to in between. Only lost records are left out.
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


def missing_from_subscription(start: StreamOffsets, view: LogView) -> Iterator[Loss]:
    """Yield the names of the subscription that do not exist and did not exist before either."""
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
        # A re-created topic is reported once for all its partitions, by `_created_anew`.
        and view.topic_ids.get(partition.topic) in (None, known.topic_ids[partition.topic])
    )
    for topic, partitions in itertools.groupby(gone, key=lambda partition: partition.topic):
        numbers = ", ".join(str(partition.partition) for partition in partitions)
        what = f"topic {topic} partition {numbers} is deleted, or no longer subscribed to"
        yield Loss(what, may_heal=True)


def is_due(available: int, limits: MicroBatchLimits, waited_ms: int | None) -> bool:
    """Return True if a batch of ``available`` offsets should run now.

    Args:
        available: how many offsets there are to read.
        limits: the limits of a batch.
        waited_ms: the time since the last batch; None before the first one, which never waits.
    """
    if limits.at_least is None or waited_ms is None:
        return True
    return available >= limits.at_least or waited_ms >= limits.delay_ms_max


def share_out(limit: int, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return how many offsets of each partition a batch may read.

    The shares are in proportion to the sizes; each is at least 1 and at most its size. They add up
    to the limit, or to the number of partitions if that is more, or to all offsets if they are
    fewer.

    Args:
        limit: how many offsets the batch may read.
        sizes: how many offsets wait in each partition.
    """
    waiting = {partition: size for partition, size in sizes.items() if size > 0}
    total = sum(waiting.values())
    if total <= limit:
        return waiting
    shares: dict[TopicPartition, int] = {}
    # The smallest come first: a partition whose share is less than one offset gets one, and the
    # larger ones get less.
    by_size = sorted(waiting, key=lambda partition: (waiting[partition], partition))
    for partition in by_size:
        if limit * waiting[partition] >= total:
            break
        shares[partition] = 1
        limit = max(limit - 1, 0)
        total -= waiting[partition]
    proportional = by_size[len(shares) :]
    remainders: list[tuple[int, TopicPartition]] = []
    for partition in proportional:
        shares[partition], remainder = divmod(limit * waiting[partition], total)
        remainders.append((-remainder, partition))
    left_over = limit - sum(shares[partition] for partition in proportional)
    for _, partition in sorted(remainders)[:left_over]:
        shares[partition] += 1
    return shares
