"""Which log to clean next, and how far: decisions from figures.

As Kafka decides: the dirtiest first, once ``min.cleanable.dirty.ratio`` of it is dirty, or once
something in it has waited for ``max.compaction.lag.ms``; never what is younger than
``min.compaction.lag.ms``.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Compaction(NamedTuple):
    """What a compacted topic's configuration says."""

    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 86_400_000


class DirtyLog(NamedTuple):
    """A log's figures. Clean: up to the last cleaning; dirty: from there as far as it may be.

    ``oldest_dirty_ms``: the greatest timestamp of the first dirty batch, -1 if it has none.
    """

    number: int
    clean_bytes: int
    dirty_bytes: int
    oldest_dirty_ms: int
    compaction: Compaction

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def newest_cleanable_ms(now_ms: int, compaction: Compaction) -> int | None:
    """Batches with a greater timestamp must wait; None: none must."""
    return (
        now_ms - compaction.min_compaction_lag_ms if compaction.min_compaction_lag_ms > 0 else None
    )


def must_be_cleaned(log: DirtyLog, now_ms: int) -> bool:
    """Whether something in it has waited for as long as it may."""
    if not log.dirty_bytes or log.oldest_dirty_ms < 0:
        return False
    return now_ms - log.oldest_dirty_ms > log.compaction.max_compaction_lag_ms


def should_be_cleaned(log: DirtyLog, now_ms: int) -> bool:
    """Whether a cleaning is worth its work, or due."""
    if not log.dirty_bytes:
        return False
    return log.dirty_ratio >= log.compaction.min_cleanable_dirty_ratio or must_be_cleaned(
        log, now_ms
    )


def next_to_clean(logs: Iterable[DirtyLog], now_ms: int) -> DirtyLog | None:
    """The one to clean now: what is due first, then the dirtiest."""
    candidates = [log for log in logs if should_be_cleaned(log, now_ms)]
    return max(
        candidates,
        key=lambda log: (must_be_cleaned(log, now_ms), log.dirty_ratio),
        default=None,
    )
