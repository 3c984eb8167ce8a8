"""The records that dead letters copy. They are read from the log of the partition, which is led
here."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.share.dead_letters.dead_letter_batch import Content, Source
from quorate.broker.coordinator.share.share_reads import found_batches
from quorate.broker.log.batches.codecs import UndecodableRecords
from quorate.broker.log.batches.own_records import Header
from quorate.broker.log.batches.record_batch import BatchHeader
from quorate.broker.log.batches.records import plain_records, sized_field, varint, walk
from quorate.broker.replication.api import Bytes, FetchParams, FetchPartition
from quorate.broker.replication.manager import ReplicaManager
from quorate_proto.v1 import errors_pb2

READ_BYTES: Final = 1 << 20
"""The bytes that are read at a time. A larger batch comes whole."""
PLAIN_BYTES_MAX: Final = 16 << 20
"""The most bytes that a batch may have without compression. The dead letters of others have no
content. Of several batches, no further one is decoded once they have so many."""


_SMALL_BYTES: Final = 16 << 10
"""The bytes that are decoded on the event loop if they are not compressed: a few hundred records.
More is decoded in a thread."""
_PARAMS: Final = FetchParams(max_wait_ms=0, min_bytes=0, max_bytes=READ_BYTES)


class SourceRecords(NamedTuple):
    """The records of one read up to offset ``last``. Those that the log does not have are
    missing."""

    last: int
    contents: Mapping[int, Content]


async def read_source(
    replicas: ReplicaManager, source: Source, first: int, last: int
) -> SourceRecords:
    """Read records from offset ``first`` on, up to ``last`` at most.

    Records that are no longer in the log, or cannot be decoded, have no content; their dead letters
    still say where they were.

    Raises:
        KafkaError: the partition cannot be read now.
    """
    want = FetchPartition(source.tp, first, READ_BYTES, source.leader_epoch, source.topic_id)
    (outcome,) = await replicas.fetch([want], _PARAMS)
    code = outcome.error_code
    if code and code != errors_pb2.OFFSET_OUT_OF_RANGE:
        raise KafkaError(code, f"{source.tp} cannot be read at offset {first}")
    if code and first < outcome.log_start_offset <= last:
        return SourceRecords(outcome.log_start_offset - 1, {})
    if not outcome.size:
        return SourceRecords(last, {})
    if outcome.size <= _SMALL_BYTES and not _is_compressed(outcome.chunks):
        return decoded(outcome.chunks, first, last)
    return await asyncio.to_thread(decoded, outcome.chunks, first, last)


def _is_compressed(chunks: Sequence[Bytes]) -> bool:
    return any(batch.header.compression for batch in found_batches(chunks))


def decoded(chunks: Sequence[Bytes], first: int, last: int) -> SourceRecords:
    """Return the records from ``first`` to ``last`` that are in ``chunks``."""
    contents: dict[int, Content] = {}
    read_to = first - 1
    room = PLAIN_BYTES_MAX
    for header, data in found_batches(chunks):
        if header.base_offset > last:
            return SourceRecords(last, contents)
        if room <= 0:
            break  # Few compressed bytes may be very many; the rest is read next time.
        read_to = min(last, header.last_offset)
        if header.is_control:
            continue
        try:
            plain = plain_records(header, data, PLAIN_BYTES_MAX)
            room -= len(plain)
            contents.update(_records(header, plain, first, last))
        except UndecodableRecords:
            continue
    return SourceRecords(max(read_to, first), contents)


def _records(
    header: BatchHeader, plain: bytes, first: int, last: int
) -> Iterator[tuple[int, Content]]:
    for _, _, end, _, delta, key_at, key_length, _ in walk(plain, header.record_count):
        offset = header.base_offset + delta
        if offset > last:
            return
        if offset >= first:
            yield offset, _content(plain, key_at, key_length, end)


def _content(plain: bytes, key_at: int, key_length: int, end: int) -> Content:
    value_at = key_at + max(key_length, 0)
    key = plain[key_at:value_at] if key_length >= 0 else None
    value = sized_field(plain, value_at)
    return Content(key, value, tuple(_headers(plain, value_at, end)))


def _headers(plain: bytes, at: int, end: int) -> Iterator[Header]:
    """Yield the headers behind the value at position ``at``."""
    length, at = varint(plain, at)
    count, at = varint(plain, at + max(length, 0))
    for _ in range(count):
        name = sized_field(plain, at)
        length, at = varint(plain, at)
        value_at = at + max(length, 0)
        length, at = varint(plain, value_at)
        at += max(length, 0)
        if name is None or at > end:
            raise UndecodableRecords(f"a header of the record that ends at byte {end} is none")
        yield name, sized_field(plain, value_at)
