"""The aborted transactions of a partition, for readers with isolation level read_committed
(KIP-98).

They take thirty-two bytes each, in four arrays, because a log that is kept for long may have very
many.
"""

from array import array
from bisect import bisect_left
from typing import NamedTuple


class AbortedTransaction(NamedTuple):
    """An aborted transaction. The transactional records of this producer from ``first_offset`` up
    to its marker at ``last_offset`` do not count."""

    producer_id: int
    first_offset: int
    last_offset: int


class AbortedTransactions:
    """The aborted transactions in the order in which they ended. Transactions of several producers
    overlap, so their first offsets are not in order.

    ``_stable_offsets`` has, for each transaction, the first offset of the oldest transaction that
    had not ended when this one did. It never falls, and every transaction that ended later began
    there or later, so a search knows where to stop.
    """

    __slots__ = ("_first_offsets", "_last_offsets", "_producer_ids", "_stable_offsets")

    def __init__(self) -> None:
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._stable_offsets = array("q")

    def __len__(self) -> int:
        return len(self._last_offsets)

    def add(self, aborted: AbortedTransaction, stable_offset: int) -> None:
        """Add a transaction that ended after all others."""
        self._producer_ids.append(aborted.producer_id)
        self._first_offsets.append(aborted.first_offset)
        self._last_offsets.append(aborted.last_offset)
        self._stable_offsets.append(stable_offset)

    def overlapping(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the transactions that may have records in [start, end), in the order in which they
        ended."""
        first = bisect_left(self._last_offsets, start_offset)
        # A transaction that ended at or beyond the end is the last one that can have begun before
        # it.
        end = bisect_left(self._stable_offsets, end_offset, first) + 1
        return [
            AbortedTransaction(*each)
            for each in zip(
                self._producer_ids[first:end],
                self._first_offsets[first:end],
                self._last_offsets[first:end],
                strict=True,
            )
            if each[1] < end_offset
        ]

    def drop_before(self, offset: int) -> None:
        """Remove the transactions that ended below ``offset``, because the log no longer has their
        records."""
        self._delete(0, bisect_left(self._last_offsets, offset))

    def truncate(self, end_offset: int) -> None:
        """Remove the transactions that ended at or beyond ``end_offset``."""
        self._delete(bisect_left(self._last_offsets, end_offset), len(self))

    def _delete(self, first: int, end: int) -> None:
        for column in (
            self._producer_ids,
            self._first_offsets,
            self._last_offsets,
            self._stable_offsets,
        ):
            del column[first:end]
