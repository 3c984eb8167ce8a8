"""Finds batches of which a reader of offsets needs no byte: those whose records fill their offsets.

The log checks a producer's records when it appends them, and a batch's checksum when it reads it
from a file. So such a header alone says which offsets have a record. A compacted batch may have
fewer records than offsets; a transaction's batch may be aborted; a control batch has no record for
a reader. This module is pure.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quorate.broker.log import Records
from quorate.broker.log.batches.record_batch import HEADER_BYTES, BatchHeader, read_header


class OffsetRun(NamedTuple):
    """The offsets [start, end), each of which has a record of no transaction."""

    start: int
    end: int


def first_run(chunks: Sequence[Records]) -> OffsetRun | None:
    """Return the run at the front of whole batches; None if the first batch is of no run."""
    run: OffsetRun | None = None
    for header in _headers(chunks):
        if not _fills_its_offsets(header) or (run and header.base_offset != run.end):
            break
        run = OffsetRun(run.start if run else header.base_offset, header.last_offset + 1)
    return run


def _fills_its_offsets(header: BatchHeader) -> bool:
    is_plain = not (header.is_control or header.is_transactional)
    return is_plain and header.record_count == header.last_offset_delta + 1


def _headers(chunks: Sequence[Records]) -> Iterator[BatchHeader]:
    """Yield the headers of batches, up to one that lies in two chunks. A batch may."""
    at = 0
    for chunk in chunks:
        view = memoryview(chunk)
        while at + HEADER_BYTES <= len(view):
            header = read_header(view[at:])
            yield header
            at += header.size
        if at < len(view):
            return
        at -= len(view)
