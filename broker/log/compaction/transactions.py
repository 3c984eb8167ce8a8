"""What a cleaning knows of transactions: which records count, and which markers are still needed.

All that is cleaned lies below the last stable offset, so every transaction in it is over: it was
aborted, or it was committed. The records of the former go. A marker stays as long as batches of its
transaction are there, and for ``delete.retention.ms`` after that, as tombstones do: whoever has the
batches, a follower or a consumer, must learn how they ended (KIP-98, KIP-534).
"""

from bisect import bisect_right
from collections.abc import Iterable

from broker.log.aborted_transactions import AbortedTransaction
from broker.log.record_batch import BatchHeader


class CleanedTransactions:
    """Batches are shown to it in the order of the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        """By producer, one after the other: one of a producer ends before the next begins."""
        for one in aborted:
            self._aborted.setdefault(one.producer_id, []).append(one)
        self._with_batches: set[int] = set()
        """Producers of batches that stay, as far as their next marker."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch's records are of a transaction that was aborted."""
        if not header.is_transactional or header.is_control:
            return False
        known = self._aborted.get(header.producer_id)
        if known is None:
            return False
        at = bisect_right(known, header.base_offset, key=lambda one: one.first_offset) - 1
        return at >= 0 and header.base_offset < known[at].last_offset

    def stays(self, header: BatchHeader) -> None:
        """The batch, or what is left of it, is in the log after the cleaning."""
        if header.is_transactional and not header.is_control:
            self._with_batches.add(header.producer_id)

    def is_marker_needed(self, header: BatchHeader) -> bool:
        """Whether a batch stays that this marker says the end of."""
        needed = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        return needed
