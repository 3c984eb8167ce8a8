"""The newest batches of all partitions, in memory: what followers and live consumers read.

One queue for the whole store, oldest first: so every partition keeps the same stretch of the recent
past. A batch stays at least until it is flushed, for until then it can be read nowhere else.
"""

from collections import OrderedDict

from broker.log.work import PendingBatch


class MemoryTail:
    """Batches by (local partition number, base offset)."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._batches: OrderedDict[tuple[int, int], PendingBatch] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: PendingBatch) -> None:
        self._batches[batch.number, batch.base_offset] = batch
        self.bytes += batch.size

    def get(self, number: int, base_offset: int) -> PendingBatch | None:
        return self._batches.get((number, base_offset))

    def drop(self, number: int, base_offset: int) -> None:
        """The batch was truncated or its partition deleted; no matter if it is not here."""
        batch = self._batches.pop((number, base_offset), None)
        if batch is not None:
            batch.dropped = True
            self.bytes -= batch.size

    def evict(self) -> None:
        """Let go of the oldest batches above the limit, up to the first unflushed one.

        Batches are flushed in the order of their append: behind that one, none is flushed.
        """
        while self.bytes > self._max_bytes:
            batch = next(iter(self._batches.values()))
            if not batch.flushed:
                return
            self._batches.popitem(last=False)
            self.bytes -= batch.size
