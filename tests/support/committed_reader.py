"""Reads an answer as a consumer of Kafka with ``isolation.level=read_committed`` does."""

import heapq
from collections.abc import Iterable

from quorate.broker.log.batches.control_batches import decode_marker
from quorate.broker.log.batches.record_batch import iterate_batches
from quorate.broker.log.state.aborted_transactions import AbortedTransaction


def committed_batches(data: bytes, aborted: Iterable[AbortedTransaction]) -> list[int]:
    """Base offsets of the batches whose records an application gets."""
    begun = [(one.first_offset, one.producer_id) for one in aborted]
    heapq.heapify(begun)
    skipped: set[int] = set()
    found: list[int] = []
    for header, batch in iterate_batches(data, "read"):
        while begun and begun[0][0] <= header.last_offset:
            skipped.add(heapq.heappop(begun)[1])
        if header.is_control:
            marker = decode_marker(header, batch)
            if marker is not None and not marker.committed:
                skipped.discard(header.producer_id)
        elif header.record_count and not (
            header.is_transactional and header.producer_id in skipped
        ):
            found.append(header.base_offset)
    return found
