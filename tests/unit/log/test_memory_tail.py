"""The memory tail keeps what is unflushed, and forgets the oldest first."""

from quorate.broker.log.segments.batch_index import MemoryTail
from quorate.broker.log.segments.pending_batch import PendingBatch


def pending(number: int, base_offset: int, size: int = 100) -> PendingBatch:
    return PendingBatch(number, base_offset, base_offset, bytes(size), 0, 0, size)


def test_unflushed_batches_stay_whatever_their_size() -> None:
    tail = MemoryTail(max_bytes=150)
    batches = [pending(1, 0), pending(2, 0), pending(1, 1)]
    for batch in batches:
        tail.add(batch)
    tail.evict()
    assert len(tail) == 3
    batches[0].flushed = True
    tail.evict()
    assert (len(tail), tail.bytes) == (2, 200)
    assert tail.get(1, 0) is None
    assert tail.get(2, 0) is batches[1]
    batches[1].flushed = True
    tail.evict()
    assert (len(tail), tail.bytes) == (1, 100)
    batches[2].flushed = True
    tail.evict()
    assert tail.get(1, 1) is batches[2]


def test_a_dropped_batch_is_marked_and_not_counted() -> None:
    tail = MemoryTail(max_bytes=150)
    batch = pending(1, 0)
    tail.add(batch)
    tail.drop(1, 0)
    tail.drop(1, 0)
    assert batch.dropped
    assert (len(tail), tail.bytes) == (0, 0)
