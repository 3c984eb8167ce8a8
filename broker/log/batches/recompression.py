"""Recompression of batches for topics that have a codec of their own (``compression.type``). This
module is pure.

Offsets, sequences, records and batch boundaries stay as they are. Only the bytes change.
"""

import struct
from typing import Final

from quorate.broker.log.batches.codecs import compress
from quorate.broker.log.batches.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LAST_COMPRESSION,
    Batch,
    Where,
    encoded,
    read_header,
    too_large,
)
from quorate.broker.log.batches.records import plain_records
from quorate.broker.log.options import Records

_LENGTH: Final = struct.Struct(">8xi")
_ATTRIBUTES_LOW_AT: Final = 22


def needs_recompression(records: Records, codec: int) -> bool:
    """Return whether any batch has another codec than ``codec``. Return False for bytes that are no
    batch, because they will be refused anyway."""
    position, end = 0, len(records)
    while end - position >= HEADER_BYTES:
        found = records[position + _ATTRIBUTES_LOW_AT] & COMPRESSION_MASK
        if found not in (codec, *range(LAST_COMPRESSION + 1, COMPRESSION_MASK + 1)):
            return True
        size = _LENGTH.size + _LENGTH.unpack_from(records, position)[0]
        if size < HEADER_BYTES:
            return False
        position += size
    return False


def recompressed(
    batches: list[Batch], codec: int, max_batch_bytes: int, where: Where
) -> list[Batch]:
    """Return validated batches, all compressed with ``codec``. Those that change are copies.

    Raises:
        KafkaError: MESSAGE_TOO_LARGE if a batch has more bytes with this codec than the log takes.
    """
    return [
        batch
        if batch.header.compression == codec
        else _recoded(batch, codec, max_batch_bytes, where)
        for batch in batches
    ]


def _recoded(batch: Batch, codec: int, max_batch_bytes: int, where: Where) -> Batch:
    header = batch.header
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    records = compress(codec, plain_records(*batch))
    data = encoded(header._replace(attributes=attributes), records)
    if len(data) > max_batch_bytes:
        raise too_large(where, 0, len(data), max_batch_bytes)
    return Batch(read_header(data), memoryview(bytearray(data)))
