"""Metrics of compaction, with the meanings of Kafka's log cleaner."""

from collections.abc import Iterator
from typing import Final

from quorate.broker.replication.maintenance.compaction_task import CompactionFigures
from quorate.common.metrics.family import Family, MetricKind, Sample

_MANAGER: Final = "LogCleanerManager"
_CLEANER: Final = "LogCleaner"

MAX_DIRTY_RATIO: Final = Family(
    "quorate_log_cleaner_max_dirty_ratio",
    MetricKind.GAUGE,
    _MANAGER,
    "max-dirty-percent",
    "Part of the dirtiest compacted log that has not been cleaned, from 0 to 1.",
)
UNCLEANABLE: Final = Family(
    "quorate_log_cleaner_uncleanable_partitions",
    MetricKind.GAUGE,
    _MANAGER,
    "uncleanable-partitions-count",
    "Compacted logs with records that cannot be decoded: they only grow.",
)
SINCE_LAST_RUN: Final = Family(
    "quorate_log_cleaner_idle_seconds",
    MetricKind.GAUGE,
    _MANAGER,
    "time-since-last-run-ms",
    "Time since the cleaner last had no log left to clean.",
)
READ_BYTES: Final = Family(
    "quorate_log_cleaner_read_bytes_total",
    MetricKind.COUNTER,
    _CLEANER,
    "CleanerReadBytes",
    "Bytes of batches that were read to clean logs.",
)
REPLACED_BYTES: Final = Family(
    "quorate_log_cleaner_replaced_bytes_total",
    MetricKind.COUNTER,
    _CLEANER,
    "CleanerReplacedBytes",
    "Bytes of batches that others took the place of.",
)
WRITTEN_BYTES: Final = Family(
    "quorate_log_cleaner_written_bytes_total",
    MetricKind.COUNTER,
    _CLEANER,
    "CleanerWrittenBytes",
    "Bytes of batches that took the place of others.",
)


def compaction_samples(figures: CompactionFigures, now_ms: int) -> Iterator[Sample]:
    """Return the samples of compaction; ``now_ms`` is of the same clock as the figures."""
    yield Sample(MAX_DIRTY_RATIO, figures.max_dirty_ratio)
    yield Sample(UNCLEANABLE, len(figures.uncleanable))
    yield Sample(SINCE_LAST_RUN, (now_ms - figures.finished_at_ms) / 1000)
    yield Sample(READ_BYTES, figures.read_bytes)
    yield Sample(REPLACED_BYTES, figures.replaced_bytes)
    yield Sample(WRITTEN_BYTES, figures.written_bytes)
