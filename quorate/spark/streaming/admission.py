"""How much a micro-batch takes of what there is: pure, so that a table can test it.

As in Spark's Kafka source, ``maxOffsetsPerTrigger`` is shared out in proportion to what waits in
each partition, but no partition starves: each gets an offset at least, so that a limit below the
number of partitions is exceeded. Unlike there, the shares add up to the limit exactly otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate.spark.ranges import TopicPartition


@dataclass(frozen=True, slots=True)
class Limits:
    """What a batch may hold, in offsets; None is no limit."""

    at_most: int | None = None
    at_least: int | None = None
    """A batch waits until there is so much, but not for longer than `delay_ms_max`."""
    delay_ms_max: int = 0


def is_due(available: int, limits: Limits, waited_ms: int | None) -> bool:
    """Whether a batch of ``available`` offsets is worth it.

    Args:
        waited_ms: since the last batch; None before the first, which never waits.
    """
    if limits.at_least is None or waited_ms is None:
        return True
    return available >= limits.at_least or waited_ms >= limits.delay_ms_max


def share_out(limit: int, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """How many offsets of each partition are admitted; ``sizes`` are what waits there.

    The shares are in proportion to the sizes, each at least 1 and at most its size. They add up to
    the limit, or to the number of partitions where that is more, or to all there is if it is less.
    """
    waiting = {partition: size for partition, size in sizes.items() if size > 0}
    total = sum(waiting.values())
    if total <= limit:
        return waiting
    shares: dict[TopicPartition, int] = {}
    # Smallest first: whose part is less than one offset gets one, at the expense of the larger.
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
