"""What a leader reads of its log for a share group: record batches, and those among them whose
records members must not see."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from quorate.broker.coordinator.share.state.acquiring import ReadBatch
from quorate.broker.coordinator.share.state.record_state import AcquiredRecords
from quorate.broker.log.batches.record_batch import BatchHeader, read_header
from quorate.broker.log.state.aborted_transactions import AbortedTransaction
from quorate.broker.replication.api import Bytes, FetchOutcome


class FoundBatch(NamedTuple):
    """A record batch that was read, and its bytes."""

    header: BatchHeader
    data: memoryview


def batches_for(
    outcome: FetchOutcome, window_end: int, records: int
) -> tuple[list[FoundBatch], list[ReadBatch]]:
    """Return the batches that are needed to hand out so many records, by what they are in the log
    and for the group: those with offsets before ``window_end``, and so many records behind it.

    A fetch may read thousands of batches for a member that wants one record.
    """
    found: list[FoundBatch] = []
    read: list[ReadBatch] = []
    behind = 0
    every = found_batches(outcome.chunks)
    for one, batch in read_batches(every, outcome.aborted_transactions):
        found.append(one)
        read.append(batch)
        if not batch.is_hidden and batch.last >= window_end:
            behind += batch.last - max(batch.first, window_end) + 1
            if behind >= records:
                break
    return found, read


def found_batches(chunks: Iterable[Bytes]) -> Iterator[FoundBatch]:
    """Yield the batches, which were verified when they were read."""
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            header = read_header(view)
            yield FoundBatch(header, view[: header.size])
            view = view[header.size :]


def read_batches(
    found: Iterable[FoundBatch], aborted: Sequence[AbortedTransaction]
) -> Iterator[tuple[FoundBatch, ReadBatch]]:
    """Yield batches with their offsets, and whether they are hidden: the records of transactions
    that were aborted. Markers are handed out, as in Kafka: members acknowledge them as gaps."""
    coming = iter(sorted(aborted, key=lambda one: one.first_offset))
    following = next(coming, None)
    open_ids: set[int] = set()
    for one in found:
        header = one.header
        while following is not None and following.first_offset <= header.last_offset:
            open_ids.add(following.producer_id)
            following = next(coming, None)
        is_aborted = header.is_transactional and header.producer_id in open_ids
        if header.is_control:
            open_ids.discard(header.producer_id)
            is_aborted = False
        yield one, ReadBatch(header.base_offset, header.last_offset, is_aborted)


def records_of(
    found: Sequence[FoundBatch], acquired: Sequence[AcquiredRecords]
) -> Iterator[memoryview]:
    """Yield the batches that have records from the first to the last that was handed out."""
    if acquired:
        first, last = acquired[0].first, acquired[-1].last
        for header, data in found:
            if header.last_offset >= first and header.base_offset <= last:
                yield data
