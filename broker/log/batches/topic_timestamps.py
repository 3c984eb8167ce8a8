"""The topic configuration that determines how produced batches are stored, and the timestamp in
the header of a batch, by which the log goes everywhere.
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from quorate.broker.log.batches.record_batch import CRC_FROM, Batch
from quorate.broker.log.batches.schema_prefixes import NamedParts

NO_LIMIT_MS: Final = 2**63 - 1

_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35


class TopicStorageOptions(NamedTuple):
    """The topic configuration that determines how produced batches are stored.

    ``log_append_time`` gives records the time at which they are appended instead of the producer's
    timestamps (timestamp type LogAppendTime). Otherwise a timestamp may be at most
    ``before_max_ms`` before and ``after_max_ms`` after the current time (``message.timestamp.*``).
    ``codec`` is the codec of all batches (``compression.type``, see ``recompression``), or None to
    keep the producer's codec. A batch may decompress to ``decompressed_max_bytes`` at most.
    ``named_parts`` are the parts of records that must name a schema, or None.
    """

    log_append_time: bool = False
    before_max_ms: int = NO_LIMIT_MS
    after_max_ms: int = NO_LIMIT_MS
    codec: int | None = None
    decompressed_max_bytes: int = 64 << 20
    named_parts: NamedParts | None = None


AS_SENT: Final = TopicStorageOptions()


def with_timestamp(batch: Batch, attributes: int, max_timestamp_ms: int) -> Batch:
    """Return the batch with these attributes and this greatest timestamp in its header.

    A batch whose memory is writable is changed in place.
    """
    header, data = batch
    if data.readonly:
        data = memoryview(bytearray(data))
    _ATTRIBUTES.pack_into(data, CRC_FROM, attributes)
    _MAX_TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_AT, max_timestamp_ms)
    crc = crc32c(data[CRC_FROM:])
    _CRC.pack_into(data, _CRC_AT, crc)
    return Batch(
        header._replace(attributes=attributes, max_timestamp=max_timestamp_ms, crc=crc), data
    )
