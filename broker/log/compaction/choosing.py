"""Which log to clean next, and how far: decisions from figures.

As Kafka decides: the dirtiest first, once ``min.cleanable.dirty.ratio`` of it is dirty, or once
something in it has waited for ``max.compaction.lag.ms``; never what is younger than
``min.compaction.lag.ms``.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

K = TypeVar("K")


class Compaction(NamedTuple):
    """What a compacted topic's configuration says."""

    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 86_400_000
    segment_ms: int = 7 * 86_400_000
    segment_bytes: int = 1 << 30


class DirtyLog(NamedTuple):
    """A log's figures. Clean: up to the last cleaning; dirty: from there as far as it may be.

    ``oldest_dirty_ms``: the greatest timestamp of the first dirty batch, -1 if it has none.
    """

    clean_bytes: int
    dirty_bytes: int
    oldest_dirty_ms: int
    compaction: Compaction

    @property
    def dirty_ratio(self) -> float:
        """Of all bytes, from 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def newest_cleanable_ms(now_ms: int, compaction: Compaction) -> int | None:
    """Batches with a greater timestamp must wait; None: none must."""
    lag_ms = compaction.min_compaction_lag_ms
    return now_ms - lag_ms if lag_ms > 0 else None


def is_overdue(oldest_ms: int, compaction: Compaction, now_ms: int) -> bool:
    """Whether something of that time has waited for longer than it may; -1: there is nothing."""
    return oldest_ms >= 0 and now_ms - oldest_ms > compaction.max_compaction_lag_ms


def should_be_cleaned(log: DirtyLog, now_ms: int) -> bool:
    """Whether a cleaning is worth its work, or due."""
    if not log.dirty_bytes:
        return False
    return log.dirty_ratio >= log.compaction.min_cleanable_dirty_ratio or _is_due(log, now_ms)


def should_be_sealed(log: DirtyLog, oldest_ms: int, size: int, now_ms: int) -> bool:
    """Whether the segment that is written must end for what ``log`` has in it: ``size`` bytes, the
    first batch of that time.

    Once something has waited for too long; or when Kafka, where the log would have a segment of its
    own, would begin another, and a cleaning is worth its work then. Segments are shared here, so
    others pay for each that ends early.
    """
    if is_overdue(oldest_ms, log.compaction, now_ms):
        return True
    ended = size >= log.compaction.segment_bytes or (
        oldest_ms >= 0 and now_ms - oldest_ms >= log.compaction.segment_ms
    )
    return ended and should_be_cleaned(log._replace(dirty_bytes=log.dirty_bytes + size), now_ms)


def next_to_clean(logs: Iterable[tuple[K, DirtyLog]], now_ms: int) -> K | None:
    """Which one to clean now: what is due first, then the dirtiest."""
    candidates = [(key, log) for key, log in logs if should_be_cleaned(log, now_ms)]
    if not candidates:
        return None
    key, _ = max(candidates, key=lambda one: (_is_due(one[1], now_ms), one[1].dirty_ratio))
    return key


def _is_due(log: DirtyLog, now_ms: int) -> bool:
    return is_overdue(log.oldest_dirty_ms, log.compaction, now_ms)
