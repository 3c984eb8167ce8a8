"""What a leader reads of its log for a share group: record batches, and those among them whose
records members must not see."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quorate.broker.coordinator.share.state.acquiring import ReadBatch
from quorate.broker.coordinator.share.state.record_state import AcquiredRecords
from quorate.broker.log.batches.record_batch import BatchHeader, read_header
from quorate.broker.log.state.aborted_transactions import AbortedTransaction
from quorate.broker.replication.api import Bytes


class FoundBatch(NamedTuple):
    """A record batch that was read, and its bytes."""

    header: BatchHeader
    data: memoryview


def found_batches(chunks: Sequence[Bytes]) -> list[FoundBatch]:
    """Return the batches, which were verified when they were read."""
    found: list[FoundBatch] = []
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            header = read_header(view)
            found.append(FoundBatch(header, view[: header.size]))
            view = view[header.size :]
    return found


def read_batches(
    found: Sequence[FoundBatch], aborted: Sequence[AbortedTransaction]
) -> list[ReadBatch]:
    """Return the offsets of batches, and which of them are hidden: the records of transactions that
    were aborted. Markers are handed out, as in Kafka: members acknowledge them as gaps."""
    coming = iter(sorted(aborted, key=lambda one: one.first_offset))
    following = next(coming, None)
    open_ids: set[int] = set()
    read: list[ReadBatch] = []
    for header, _ in found:
        while following is not None and following.first_offset <= header.last_offset:
            open_ids.add(following.producer_id)
            following = next(coming, None)
        is_aborted = header.is_transactional and header.producer_id in open_ids
        if header.is_control:
            open_ids.discard(header.producer_id)
            is_aborted = False
        read.append(ReadBatch(header.base_offset, header.last_offset, is_aborted))
    return read


def records_of(
    found: Sequence[FoundBatch], acquired: Sequence[AcquiredRecords]
) -> Iterator[memoryview]:
    """Yield the batches that have records from the first to the last that was handed out."""
    if acquired:
        first, last = acquired[0].first, acquired[-1].last
        for header, data in found:
            if header.last_offset >= first and header.base_offset <= last:
                yield data
