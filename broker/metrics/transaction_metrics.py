"""Metrics of the transactions that a broker coordinates."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from quorate.broker.coordinator.transactions.marker_sender import MarkerSender
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    AT_REST,
    TransactionState,
)
from quorate.broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from quorate.common.metrics.family import Family, MetricKind, Sample

_COORDINATOR: Final = "transaction-coordinator-metrics"
_MARKERS: Final = "TransactionMarkerChannelManager"

TRANSACTIONS: Final = Family(
    "quorate_transactions",
    MetricKind.GAUGE,
    _COORDINATOR,
    "transactional-id-count",
    "Transactional ids coordinated here, by the state of their last transaction.",
    ("state",),
)
OLDEST: Final = Family(
    "quorate_transaction_oldest_seconds",
    MetricKind.GAUGE,
    _COORDINATOR,
    "transaction-open-time-max",
    "How long ago the oldest transaction began that is coordinated here and not complete; 0: none.",
)
TIMED_OUT: Final = Family(
    "quorate_transactions_timed_out_total",
    MetricKind.COUNTER,
    _COORDINATOR,
    "transaction-timeout-total",
    "Transactions aborted here because they were open for longer than their producers asked for.",
)
MARKERS_PENDING: Final = Family(
    "quorate_transaction_markers_pending",
    MetricKind.GAUGE,
    _MARKERS,
    "PendingMarkerCount",
    "Partitions that have not yet taken the markers of decided transactions.",
)
MARKERS_WRITTEN: Final = Family(
    "quorate_transaction_markers_written_total",
    MetricKind.COUNTER,
    _MARKERS,
    "WrittenMarkersPerSec",
    "Markers that this coordinator has had written.",
)

_SHOWN: Final = [state for state in TransactionState if state <= TransactionState.COMPLETE_ABORT]
"""The states that can be in the log."""


def transaction_samples(
    coordinator: TransactionCoordinator, markers: MarkerSender, now_wall_ms: int
) -> Iterator[Sample]:
    """Yield all samples of transactional ids; ids may come and go in the meantime."""
    states: Counter[TransactionState] = Counter()
    oldest_ms = now_wall_ms
    for _, transaction in coordinator.all():
        states[transaction.state] += 1
        if transaction.state not in AT_REST:
            oldest_ms = min(oldest_ms, transaction.started_ms)
    for state in _SHOWN:
        yield Sample(TRANSACTIONS, states[state], (state.title,))
    yield Sample(OLDEST, (now_wall_ms - oldest_ms) / 1000)
    yield Sample(TIMED_OUT, coordinator.timed_out)
    yield Sample(MARKERS_PENDING, markers.pending)
    yield Sample(MARKERS_WRITTEN, markers.written)
