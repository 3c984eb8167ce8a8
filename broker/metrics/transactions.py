"""Figures of the transactions that a broker coordinates."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from broker.coordinator.marker_sender import MarkerSender
from broker.coordinator.transaction_coordinator import TransactionCoordinator
from broker.coordinator.transactions.transaction import AT_REST, TransactionState
from quorum.metrics.family import Family, Kind, Sample

_COORDINATOR: Final = "transaction-coordinator-metrics"
_MARKERS: Final = "TransactionMarkerChannelManager"

TRANSACTIONS: Final = Family(
    "quorate_transactions",
    Kind.GAUGE,
    _COORDINATOR,
    "transactional-id-count",
    "Transactional ids coordinated here, by the state of their last transaction.",
    ("state",),
)
OLDEST: Final = Family(
    "quorate_transaction_oldest_seconds",
    Kind.GAUGE,
    _COORDINATOR,
    "transaction-open-time-max",
    "How long ago the oldest transaction began that is coordinated here and not complete; 0: none.",
)
TIMED_OUT: Final = Family(
    "quorate_transactions_timed_out_total",
    Kind.COUNTER,
    _COORDINATOR,
    "transaction-timeout-total",
    "Transactions aborted here because they were open for longer than their producers asked for.",
)
MARKERS_PENDING: Final = Family(
    "quorate_transaction_markers_pending",
    Kind.GAUGE,
    _MARKERS,
    "PendingMarkerCount",
    "Partitions that have not yet taken the markers of decided transactions.",
)
MARKERS_WRITTEN: Final = Family(
    "quorate_transaction_markers_written_total",
    Kind.COUNTER,
    _MARKERS,
    "WrittenMarkersPerSec",
    "Markers that this coordinator has had written.",
)

_SHOWN: Final = [state for state in TransactionState if state <= TransactionState.COMPLETE_ABORT]
"""The others are in no log."""


def transaction_samples(
    coordinator: TransactionCoordinator, markers: MarkerSender, now_wall_ms: int
) -> Iterator[Sample]:
    """All figures of transactional ids, which may come and go between any two of them."""
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
