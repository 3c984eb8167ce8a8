"""The figures of a broker's dead letters, and a line in the log for those that are missing."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from quorate.broker.coordinator.share.dead_letters.dead_letter_batch import Source
from quorate.broker.coordinator.share.state.dead_records import DeadRecords
from quorate.common.metrics.family import Family, MetricKind, Sample

_log: Final = logging.getLogger(__name__)

_COMPLAIN_EVERY_MS: Final = 10_000

CONFIGURATION: Final = "configuration"
"""The reason of records that are missed because something is misconfigured."""
UNAVAILABLE: Final = "unavailable"
"""The reason of records that are missed because the topic was unavailable for too long."""

WRITTEN: Final = Family(
    "quorate_share_dead_letters_total",
    MetricKind.COUNTER,
    "ShareGroupMetrics",
    "DlqRecordsPerSec",
    "Dead letters that this broker has written for share groups.",
)
MISSED: Final = Family(
    "quorate_share_dead_letters_missed_total",
    MetricKind.COUNTER,
    "ShareGroupMetrics",
    "DeadLettersMissed",
    "Records that left their share group without a dead letter, because the topic is misconfigured "
    "or was unavailable for too long.",
    ("reason",),
)
WAITING: Final = Family(
    "quorate_share_dead_letters_waiting",
    MetricKind.GAUGE,
    "ShareGroupMetrics",
    "DeadLettersWaiting",
    "Records that leave their share group when their dead letter is written.",
)


class DeadLetterFigures:
    """The figures of one broker."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.written = 0
        self.waiting = 0
        self.missed: Counter[str] = Counter()
        """The records without dead letters, by reason."""
        self._complained_ms: int | None = None

    def miss(self, source: Source, dead: Sequence[DeadRecords], reason: str, why: str) -> None:
        """Count records that have no dead letter, and say so, but not too often."""
        records = sum(one.records for one in dead)
        self.missed[reason] += records
        now_ms, before_ms = self._now_ms(), self._complained_ms
        if before_ms is not None and now_ms - before_ms < _COMPLAIN_EVERY_MS:
            return
        self._complained_ms = now_ms
        _log.warning(
            "share group %s: %d records of %s, offsets %d to %d, have no dead letters: %s "
            "(others are not named in the next %d s)",
            source.group_id,
            records,
            source.tp,
            dead[0].first,
            dead[-1].last,
            why,
            _COMPLAIN_EVERY_MS // 1000,
        )

    def samples(self) -> Iterator[Sample]:
        """Yield the figures of dead letters."""
        yield Sample(WRITTEN, self.written)
        yield Sample(WAITING, self.waiting)
        for reason in (CONFIGURATION, UNAVAILABLE):
            yield Sample(MISSED, self.missed[reason], (reason,))
