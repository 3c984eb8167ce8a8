"""Recompression of batches for topics that have a codec of their own (``compression.type``). This
module is pure.

Offsets, sequences, records and batch boundaries stay as they are. Only the bytes change.
"""

import struct
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.codecs import UndecodableRecords, compress
from quorate.broker.log.batches.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LAST_COMPRESSION,
    encoded,
    iterate_batches,
)
from quorate.broker.log.batches.records import plain_records
from quorate.broker.log.options import Records
from quorate_proto.v1 import errors_pb2

MOST_BYTES: Final = 64 << 20
"""The largest size of the decompressed records of one batch, in bytes."""

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


def recompressed(records: Records, codec: int, max_batch_bytes: int, where: str) -> Records:
    """Return the batches of ``records``, all compressed with ``codec``, in a new buffer that the
    caller may write to.

    A batch that will be refused for its size or its codec stays as it is.

    Raises:
        KafkaError: what ``iterate_batches`` raises; INVALID_RECORD if records cannot be
            decompressed.
    """
    out = bytearray()
    for header, data in iterate_batches(records, where):
        is_stored_so = header.compression == codec
        if is_stored_so or header.compression > LAST_COMPRESSION or header.size > max_batch_bytes:
            out += data
            continue
        try:
            plain = plain_records(header, data, MOST_BYTES)
        except UndecodableRecords as error:
            raise KafkaError(
                errors_pb2.INVALID_RECORD, f"{where}: a batch cannot be decompressed: {error}"
            ) from error
        attributes = header.attributes & ~COMPRESSION_MASK | codec
        out += encoded(header._replace(attributes=attributes), compress(codec, plain))
    return memoryview(out)
