"""Batches without records, which cover offsets of which compaction left nothing.

There are two kinds. The first is the header of a batch that a producer may send again; it keeps its
first and last offset, epoch and sequence. The second, an empty *span*, has no producer. It only
covers a range of offsets, so it can be merged with its neighbours and cut at any offset. This
module is pure.
"""

from quorate.broker.log.batches.codecs import NONE
from quorate.broker.log.batches.record_batch import (
    COMPRESSION_MASK,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTIONAL,
    Batch,
    BatchHeader,
    encoded,
    read_header,
)


def emptied(header: BatchHeader) -> bytes:
    """Return the header of a batch without its records. It keeps what must be known about the
    producer.

    The header is no longer part of a transaction, because the marker of that transaction may be
    removed earlier.
    """
    attributes = header.attributes & ~(COMPRESSION_MASK | TRANSACTIONAL) | NONE
    return encoded(header._replace(attributes=attributes, record_count=0), b"")


def empty_span(first: BatchHeader, last_offset: int, max_timestamp: int) -> bytes:
    """Return a batch without records from the first offset of ``first`` to ``last_offset``, in the
    leader epoch of ``first``."""
    return encoded(
        first._replace(
            attributes=NONE,
            last_offset_delta=last_offset - first.base_offset,
            base_timestamp=max_timestamp,
            max_timestamp=max_timestamp,
            producer_id=NO_PRODUCER,
            producer_epoch=NO_PRODUCER,
            base_sequence=NO_SEQUENCE,
            record_count=0,
        ),
        b"",
    )


def is_empty_span(header: BatchHeader) -> bool:
    """Return whether the batch was made by ``empty_span``."""
    return not header.record_count and header.producer_id == NO_PRODUCER


def span_from(header: BatchHeader, base_offset: int) -> Batch:
    """Return the part of an ``empty_span`` from ``base_offset`` to its end."""
    delta = header.last_offset - base_offset
    data = encoded(header._replace(base_offset=base_offset, last_offset_delta=delta), b"")
    return Batch(read_header(data), memoryview(data))
