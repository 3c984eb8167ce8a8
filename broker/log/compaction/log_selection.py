"""Selects the log to clean next, and how far it may be cleaned. The code only decides from figures.

It decides as Kafka does: the dirtiest log first, once ``min.cleanable.dirty.ratio`` of it is dirty,
or once a record has waited for ``max.compaction.lag.ms``. Records younger than
``min.compaction.lag.ms`` are never cleaned.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

K = TypeVar("K")


class CompactionOptions(NamedTuple):
    """The configuration of a compacted topic that determines its cleaning."""

    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 86_400_000
    segment_ms: int = 7 * 86_400_000
    segment_bytes: int = 1 << 30


class LogToClean(NamedTuple):
    """The figures of one log. Everything up to the end of the last cleaning is clean, and what
    follows is dirty, as far as it may be cleaned.

    ``oldest_dirty_ms`` is the greatest timestamp of the first dirty batch, or -1 if no batch is
    dirty.
    """

    clean_bytes: int
    dirty_bytes: int
    oldest_dirty_ms: int
    compaction: CompactionOptions

    @property
    def dirty_ratio(self) -> float:
        """The dirty bytes as a fraction of all bytes, from 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def newest_cleanable_ms(now_ms: int, compaction: CompactionOptions) -> int | None:
    """Return the greatest timestamp that may be cleaned now, or None if there is no limit."""
    lag_ms = compaction.min_compaction_lag_ms
    return now_ms - lag_ms if lag_ms > 0 else None


def is_overdue(oldest_ms: int, compaction: CompactionOptions, now_ms: int) -> bool:
    """Return whether a record of that timestamp has waited longer than ``max.compaction.lag.ms``.
    The timestamp -1 means that there is no record."""
    return oldest_ms >= 0 and now_ms - oldest_ms > compaction.max_compaction_lag_ms


def should_be_cleaned(log: LogToClean, now_ms: int) -> bool:
    """Return whether cleaning the log is worth the work, or is due."""
    if not log.dirty_bytes:
        return False
    return log.dirty_ratio >= log.compaction.min_cleanable_dirty_ratio or _is_due(log, now_ms)


def should_be_sealed(log: LogToClean, oldest_ms: int, size: int, now_ms: int) -> bool:
    """Return whether the active segment must be sealed, so that what ``log`` has in it can be
    cleaned.

    That part of the log is ``size`` bytes, and ``oldest_ms`` is the timestamp of its first batch.
    The segment is sealed once a record has waited too long; or when Kafka, whose logs have segments
    of their own, would roll the segment and a cleaning would then be worth the work. Segments are
    shared by all logs here, so each segment that is sealed early costs the other logs something.
    """
    if is_overdue(oldest_ms, log.compaction, now_ms):
        return True
    ended = size >= log.compaction.segment_bytes or (
        oldest_ms >= 0 and now_ms - oldest_ms >= log.compaction.segment_ms
    )
    return ended and should_be_cleaned(log._replace(dirty_bytes=log.dirty_bytes + size), now_ms)


def next_to_clean(logs: Iterable[tuple[K, LogToClean]], now_ms: int) -> K | None:
    """Return the log to clean now: a log that is due, else the dirtiest, or None."""
    candidates = [(key, log) for key, log in logs if should_be_cleaned(log, now_ms)]
    if not candidates:
        return None
    key, _ = max(candidates, key=lambda one: (_is_due(one[1], now_ms), one[1].dirty_ratio))
    return key


def _is_due(log: LogToClean, now_ms: int) -> bool:
    return is_overdue(log.oldest_dirty_ms, log.compaction, now_ms)
