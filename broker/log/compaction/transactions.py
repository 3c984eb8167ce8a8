"""Transactions during a cleaning: whose records count, and which markers are still needed.

Only offsets below the last stable offset are cleaned, so every transaction in that part has ended.
The records of aborted transactions are removed. A marker stays as long as batches of its
transaction are in the log, and for ``delete.retention.ms`` after that, as tombstones do: a follower
or consumer that has the batches must learn how they ended (KIP-98, KIP-534).
"""

from bisect import bisect_right
from collections.abc import Iterable

from quorate.broker.log.batches.record_batch import BatchHeader
from quorate.broker.log.state.aborted_transactions import AbortedTransaction


class CleanedTransactions:
    """The transactions of the log that is cleaned. The batches are passed to it in the order of the
    log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        """The aborted transactions by producer, oldest first. One transaction of a producer ends
        before its next one begins."""
        for one in aborted:
            self._aborted.setdefault(one.producer_id, []).append(one)
        self._with_batches: set[int] = set()
        """The producers of transactional batches that stay, up to the next marker of each."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether the batch is part of an aborted transaction."""
        if not header.is_transactional or header.is_control:
            return False
        known = self._aborted.get(header.producer_id)
        if known is None:
            return False
        at = bisect_right(known, header.base_offset, key=lambda one: one.first_offset) - 1
        return at >= 0 and header.base_offset < known[at].last_offset

    def stays(self, header: BatchHeader) -> None:
        """Record that the batch, or a part of it, stays in the log."""
        if header.is_transactional and not header.is_control:
            self._with_batches.add(header.producer_id)

    def is_marker_needed(self, header: BatchHeader) -> bool:
        """Return whether a batch of the transaction that this marker ends stays in the log."""
        needed = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        return needed
