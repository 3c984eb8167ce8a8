"""How far back a log is kept: by the age of its records, and by its size. Decisions alone.

A log loses whole batches, oldest first, and never one that is not committed. A batch is as old as
its greatest timestamp. Where that says nothing (it has none, or one in the future, which would keep
the log behind it for good) the time counts at which its segment was last written. So neither a
clock that jumps back nor what is written meanwhile removes anything too early; a clock that leaps
ahead makes old whatever its time says is old, as with Kafka.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.log.batch_index import BatchIndex
from broker.log.segment import Segment

NO_LIMIT: Final = -1


class Retention(NamedTuple):
    """What is kept of a log; ``NO_LIMIT`` (-1): all, as far as that goes."""

    ms: int = NO_LIMIT
    bytes: int = NO_LIMIT

    @property
    def is_for_ever(self) -> bool:
        return self.ms < 0 and self.bytes < 0


KEEP_ALL: Final = Retention()

SegmentTimes = Mapping[int, int]
"""Segment id → no batch in it, or in an older one, was written later (ms since the epoch)."""


def segment_times(segments: Mapping[int, Segment]) -> SegmentTimes:
    """Times of last writes that never fall from one segment to the next.

    A clock that was set back while a segment was written must not make it look old.
    """
    times: dict[int, int] = {}
    latest_ms = 0
    for segment_id in sorted(segments):
        latest_ms = max(latest_ms, segments[segment_id].written_at_ms)
        times[segment_id] = latest_ms
    return times


def batches_to_delete(
    index: BatchIndex, limit: int, retention: Retention, now_ms: int, times: SegmentTimes
) -> int:
    """How many of the oldest batches go; at most ``limit``, which are committed and flushed."""
    if not limit:
        return 0
    by_age = by_size = 0
    if retention.ms >= 0:
        by_age = _too_old(index, limit, retention.ms, now_ms, times)
    if retention.bytes >= 0:
        by_size = _too_much(index, limit, retention.bytes)
    return max(by_age, by_size)


def _too_old(
    index: BatchIndex, limit: int, retention_ms: int, now_ms: int, times: SegmentTimes
) -> int:
    """Greatest timestamps never fall along the index: first none, then past ones, then future."""
    horizon_ms = now_ms - retention_ms
    with_timestamp = min(limit, index.first_with_timestamp(0))
    position = _written_before(index, 0, with_timestamp, horizon_ms, times)
    if position < with_timestamp:
        return position
    young = min(limit, max(with_timestamp, index.first_with_timestamp(horizon_ms)))
    future = min(limit, max(young, index.first_with_timestamp(now_ms + 1)))
    if young < future:
        return young
    return _written_before(index, future, limit, horizon_ms, times)


def _written_before(
    index: BatchIndex, first: int, end: int, horizon_ms: int, times: SegmentTimes
) -> int:
    """Position of the first batch from ``first`` on that may have been written since."""
    position = first
    for segment, _, beyond in index.spans(first, end):
        if times.get(segment.id, horizon_ms) >= horizon_ms:
            break
        position = beyond
    return position


def _too_much(index: BatchIndex, limit: int, retention_bytes: int) -> int:
    """As many as may go while ``retention_bytes`` stay."""
    left_bytes = index.total_bytes
    position = 0
    while position < limit and left_bytes - index.size(position) >= retention_bytes:
        left_bytes -= index.size(position)
        position += 1
    return position
