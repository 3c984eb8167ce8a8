"""Finds the batches of a frame that belong to aborted transactions (KIP-98).

A producer has at most one transaction open in a partition at a time, so a transaction is identified
by its producer and by its range of offsets. Other batches of that producer, before or after, count.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from quorate_proto.v1.replication_pb2 import AbortedTransaction


class AbortedBatches:
    """The aborted transactions in the header of a frame; false if there are none."""

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for one in aborted:
            spans = self._spans.setdefault(one.producer_id, [])
            spans.append((one.last_offset, one.first_offset))
        for spans in self._spans.values():
            spans.sort()

    def __bool__(self) -> bool:
        return bool(self._spans)

    def hide(self, producer_id: int, base_offset: int) -> bool:
        """Return True if the producer's transactional batch at ``base_offset`` was aborted."""
        spans = self._spans.get(producer_id)
        if spans is None:
            return False
        ends_next = bisect_left(spans, (base_offset,))
        return ends_next < len(spans) and spans[ends_next][1] <= base_offset


NONE_ABORTED: Final = AbortedBatches()
