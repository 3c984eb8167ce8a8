"""Batches compressed anew, for topics that have a codec of their own (``compression.type``). Pure.

Offsets, sequences and records stay as they are, only their bytes change: each batch is one again.
"""

import struct
from typing import Final

from broker.errors import KafkaError
from broker.log.codecs import UndecodableRecords, compress
from broker.log.options import Records
from broker.log.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LAST_COMPRESSION,
    encoded,
    iterate_batches,
)
from broker.log.records import plain_records
from quorate_proto.v1 import errors_pb2

MOST_BYTES: Final = 64 << 20
"""Decompressed, of one batch."""

_LENGTH: Final = struct.Struct(">8xi")
_ATTRIBUTES_LOW_AT: Final = 22


def needs_recoding(records: Records, codec: int) -> bool:
    """Whether a batch has another codec; of what is no batch, False: nobody will store it."""
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


def recoded(records: Records, codec: int, max_batch_bytes: int, where: str) -> Records:
    """The batches of ``records``, all with ``codec``: to be written to by whoever gets them.

    What would be refused for its size or its codec stays as it is.

    Raises:
        KafkaError: as ``iterate_batches``; INVALID_RECORD if records cannot be decompressed.
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
