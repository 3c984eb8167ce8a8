"""Which batches of a frame belong to transactions that were aborted (KIP-98).

A producer has one transaction under way in a partition at a time: it is told by its producer and by
where it lies. What else that producer has written, before or after, counts.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, Protocol


class Aborted(Protocol):
    """``replication_pb2.AbortedTransaction``."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...


class AbortedBatches:
    """As the header of a frame has them; false if there are none."""

    def __init__(self, aborted: Iterable[Aborted] = ()) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for one in aborted:
            spans = self._spans.setdefault(one.producer_id, [])
            spans.append((one.last_offset, one.first_offset))
        for spans in self._spans.values():
            spans.sort()

    def __bool__(self) -> bool:
        return bool(self._spans)

    def hide(self, producer_id: int, base_offset: int) -> bool:
        """Whether a transactional batch of that producer, there, does not count."""
        spans = self._spans.get(producer_id)
        if spans is None:
            return False
        ends_next = bisect_left(spans, (base_offset,))
        return ends_next < len(spans) and spans[ends_next][1] <= base_offset


NONE_ABORTED: Final = AbortedBatches()
