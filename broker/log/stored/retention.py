"""Retention of a log by the age of its records and by its size. The code here only decides.

Whole batches are deleted, oldest first, and only committed ones. The age of a batch is that of its
greatest timestamp. If it has none, or one in the future (which would keep the rest of the log for
good), the time of the last write to its segment counts. Therefore neither a clock that jumps back
nor what is written meanwhile deletes anything too early. A clock that jumps ahead makes old
whatever has an old timestamp, as in Kafka.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.broker.log.segments.batch_index import BatchIndex
from quorate.broker.log.segments.segment import Segment

NO_LIMIT: Final = -1


class Retention(NamedTuple):
    """The retention limits of a log. ``NO_LIMIT`` (-1) means that there is no limit."""

    ms: int = NO_LIMIT
    bytes: int = NO_LIMIT

    @property
    def is_for_ever(self) -> bool:
        return self.ms < 0 and self.bytes < 0


KEEP_ALL: Final = Retention()

SegmentTimes = Mapping[int, int]
"""The times (in ms since the epoch) by segment id. No batch in that segment or an older one was
written after its time."""


def segment_times(segments: Mapping[int, Segment]) -> SegmentTimes:
    """Return the times of last writes, corrected so that they never fall from one segment to the
    next.

    Otherwise a clock that was set back while a segment was written would make the segment look old.
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
    """Return the number of oldest batches to delete: at most ``limit``, all committed and
    flushed."""
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
    """Return the number of batches that are too old. The greatest timestamps never fall along the
    index: first none, then past ones, then future ones."""
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
    """Return the position of the first batch from ``first`` on that may have been written after the
    horizon."""
    position = first
    for segment, _, beyond in index.spans(first, end):
        if times.get(segment.id, horizon_ms) >= horizon_ms:
            break
        position = beyond
    return position


def _too_much(index: BatchIndex, limit: int, retention_bytes: int) -> int:
    """Return the number of batches that can be deleted while ``retention_bytes`` stay."""
    left_bytes = index.total_bytes
    position = 0
    while position < limit and left_bytes - index.size(position) >= retention_bytes:
        left_bytes -= index.size(position)
        position += 1
    return position
