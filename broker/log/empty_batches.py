"""Batches without records: they cover offsets of which compaction left nothing.

Two kinds. One is the header of a batch that a producer may send again: its ends, epoch and
sequence stay as they were. The other, an empty *span*, has no producer; it stands for any offsets
between its ends, so it can take in its neighbours, and can be cut anywhere. Pure.
"""

from broker.log.codecs import NONE
from broker.log.record_batch import (
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
    """The header alone: what is remembered of its producer.

    It is of no transaction any more, whose marker may go before it does.
    """
    attributes = header.attributes & ~(COMPRESSION_MASK | TRANSACTIONAL) | NONE
    return encoded(header._replace(attributes=attributes, record_count=0), b"")


def empty_span(first: BatchHeader, last_offset: int, max_timestamp: int) -> bytes:
    """Nothing, from where ``first`` begins to ``last_offset``, in the leader epoch of ``first``."""
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
    """Whether this is an ``empty_span``."""
    return not header.record_count and header.producer_id == NO_PRODUCER


def span_from(header: BatchHeader, base_offset: int) -> Batch:
    """An ``empty_span`` from ``base_offset`` on, up to where it ended."""
    delta = header.last_offset - base_offset
    data = encoded(header._replace(base_offset=base_offset, last_offset_delta=delta), b"")
    return Batch(read_header(data), memoryview(data))
