"""Record batches of format v2 as the log handles them: a header of 61 bytes, and records that the
log does not decode.

    0 base offset i64 | 8 length i32 (of what follows) | 12 leader epoch i32 | 16 magic i8
    | 17 crc u32 (of [21:]) | 21 attributes i16 | 23 last offset delta i32 | 27 base timestamp i64
    | 35 max timestamp i64 | 43 producer id i64 | 51 producer epoch i16 | 53 base sequence i32
    | 57 record count i32 | 61 records

The fields that a broker sets, base offset and leader epoch, lie before the range of the CRC, so
they can be changed without a new checksum. This module is pure. Its work is per batch, never per
record.
"""

import struct
import sys
from collections.abc import Iterator
from mmap import mmap
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.options import LARGEST_BATCH_BYTES, Records
from quorate.common.types import LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2

Where: TypeAlias = str | TopicPartition
"""The partition that a message names. It is made a text only if there is a message."""

HEADER_BYTES: Final = 61
MAGIC: Final = 2

_LENGTH: Final = struct.Struct(">8xi")
_LENGTH_BYTES: Final = _LENGTH.size
"""The size of base offset and length. The length field counts the bytes after these."""
_MAGIC_AT: Final = 16
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
CRC_FROM: Final = 21
_BASE_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")

COMPRESSION_MASK: Final = 0x07
LAST_COMPRESSION: Final = 4
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
HAS_DELETE_HORIZON: Final = 0x40

NO_PRODUCER: Final = -1
"""The producer id and the producer epoch of a batch without a producer."""
NO_SEQUENCE: Final = -1
_NO_LEADER_EPOCH: Final = -1


class BatchHeader(NamedTuple):
    """The header of one batch: its fields in the order of the wire format, with the values that the
    batch has."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return _LENGTH_BYTES + self.length

    @property
    def compression(self) -> int:
        """The codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. The values 5 to 7 are not defined."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record has the max timestamp of the batch (timestamp type
        LogAppendTime)."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_control(self) -> bool:
        """Whether this is a control batch, such as a transaction marker. Only brokers write
        them."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction, or the marker that ends one."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether ``base_timestamp`` is the delete horizon: the time from which on the tombstones
        of the batch may be removed (KIP-534)."""
        return bool(self.attributes & HAS_DELETE_HORIZON)


class Batch(NamedTuple):
    """The header of a batch, and the bytes of the whole batch."""

    header: BatchHeader
    data: memoryview


def read_header(buffer: Records) -> BatchHeader:
    """Return the header at the start of ``buffer``, which must be a valid batch."""
    return BatchHeader(*_HEADER.unpack_from(buffer))


def read_headers(buffer: Records) -> list[BatchHeader]:
    """Return the headers in ``buffer``, which has nothing but headers of valid batches."""
    return [*map(BatchHeader._make, _HEADER.iter_unpack(buffer))]


def check_of(key: bytes, batch: Records) -> bytes:
    """Return a checksum of the key that a batch is stored by, and of what a broker sets in its
    header. The batch's own checksum is covered too, so it is a check of this batch alone."""
    return _CRC.pack(crc32c(batch[:CRC_FROM], crc32c(key)))


def read_crc(buffer: Records) -> int:
    """Return the checksum in the header at the start of ``buffer``."""
    return int(_CRC.unpack_from(buffer, _CRC_AT)[0])


def iterate_batches(records: Records, where: Where) -> Iterator[Batch]:
    """Yield the batches in ``records``, each verified: length, magic and CRC.

    ``where`` names the partition in messages.

    Raises:
        KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT or MESSAGE_TOO_LARGE; the
            message names the partition, the position in the request and the value.
    """
    view = memoryview(records)
    end = len(view)
    position = 0
    while position < end:
        size = _size_at(view, position, where)
        data = view if size == end else view[position : position + size]
        header = read_header(data)
        crc = crc32c(data[CRC_FROM:])
        if crc != header.crc:
            raise corrupt(where, position, f"CRC is {crc:#010x}, header says {header.crc:#010x}")
        yield Batch(header, data)
        position += size


def put_in_place(data: memoryview, base_offset: int, leader_epoch: LeaderEpoch) -> Records:
    """Set the base offset and leader epoch of a batch. Return ``data`` itself, changed, or a
    changed copy.

    ``data`` is changed where its memory is writable, which means that nobody else uses it, and
    where the batch is most of that memory, because the log keeps the whole memory as long as the
    batch.
    """
    if data.readonly or 2 * len(data) < _memory_bytes(data.obj):
        return patched(data, base_offset, leader_epoch)
    _BASE_OFFSET.pack_into(data, 0, base_offset)
    _LEADER_EPOCH.pack_into(data, _LENGTH_BYTES, leader_epoch)
    return data


def patched(data: memoryview, base_offset: int, leader_epoch: LeaderEpoch) -> bytes:
    """Return a copy of the batch with base offset and leader epoch set. The bytes under the CRC
    stay as they are."""
    return b"".join(
        (
            _BASE_OFFSET.pack(base_offset),
            data[_BASE_OFFSET.size : _LENGTH_BYTES],
            _LEADER_EPOCH.pack(leader_epoch),
            data[_MAGIC_AT:],
        )
    )


def own_batch(
    records: bytes,
    record_count: int,
    timestamp_ms: int,
    *,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_PRODUCER,
) -> bytes:
    """Return a batch that a broker writes itself: all records have one timestamp, and there is no
    sequence because it is never sent again.

    ``records`` are ``record_count`` records whose offset deltas begin at 0, compressed as
    ``attributes`` say. The log assigns the offset and leader epoch of the batch.
    """
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=_NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=record_count - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=record_count,
    )
    return encoded(header, records)


def encoded(header: BatchHeader, records: bytes) -> bytes:
    """Return a batch with these fields and records. Its length and CRC are computed."""
    length = HEADER_BYTES - _LENGTH_BYTES + len(records)
    batch = bytearray(_HEADER.pack(*header._replace(length=length, crc=0)))
    batch += records
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return bytes(batch)


def _memory_bytes(owner: object) -> int:
    return len(owner) if isinstance(owner, bytearray | mmap) else sys.maxsize


def _size_at(view: memoryview, position: int, where: Where) -> int:
    """Return the size of the batch at ``position``, after checking that it is a batch that ends
    within the buffer."""
    left = len(view) - position
    if left >= HEADER_BYTES and view[position + _MAGIC_AT] == MAGIC:
        (length,) = _LENGTH.unpack_from(view, position)
        if HEADER_BYTES <= _LENGTH_BYTES + length <= min(left, LARGEST_BATCH_BYTES):
            return int(_LENGTH_BYTES + length)
    raise _no_batch(view, position, left, where)


def _no_batch(view: memoryview, position: int, left: int, where: Where) -> KafkaError:
    """Return the error for bytes at ``position`` that are no batch."""
    magic = view[position + _MAGIC_AT] if left > _MAGIC_AT else MAGIC
    if magic < MAGIC:
        # The format is checked before the size, because a message of an old format is shorter than
        # a header of this format.
        return KafkaError(
            errors_pb2.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"{where}: message set at byte {position} of the request has magic {magic}; "
            f"send record batches of magic {MAGIC}",
        )
    if left < HEADER_BYTES:
        return corrupt(where, position, f"{left} bytes are left, a header has {HEADER_BYTES}")
    if magic > MAGIC:
        return corrupt(where, position, f"magic is {magic}, must be {MAGIC}")
    (length,) = _LENGTH.unpack_from(view, position)
    size: int = _LENGTH_BYTES + length
    if not HEADER_BYTES <= size <= left:
        return corrupt(
            where,
            position,
            f"length is {length}, must be from {HEADER_BYTES - _LENGTH_BYTES} "
            f"to the {left - _LENGTH_BYTES} bytes that are there",
        )
    return too_large(where, position, size, LARGEST_BATCH_BYTES)


def corrupt(where: Where, position: int, problem: str) -> KafkaError:
    """Return the error that refuses bytes that are no batch."""
    return KafkaError(
        errors_pb2.CORRUPT_MESSAGE, f"{where}: batch at byte {position} of the request: {problem}"
    )


def too_large(where: Where, position: int, size: int, max_bytes: int) -> KafkaError:
    """Return the error that refuses a batch above ``max_bytes``."""
    return KafkaError(
        errors_pb2.MESSAGE_TOO_LARGE,
        f"{where}: batch at byte {position} of the request has {size} bytes, "
        f"at most {max_bytes} are accepted (message.max.bytes)",
    )
