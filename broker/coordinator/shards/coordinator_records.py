"""The records of coordinators' topics: their fields, batches and encoding, which are Kafka's,
big-endian."""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.record_batch import TRANSACTIONAL, BatchHeader, own_batch
from quorate.broker.log.batches.records import plain_records, signed_varint, sized_field, walk
from quorate.broker.log.options import Records
from quorate.broker.replication.api import TransactionSupport

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")


class UnknownRecord(Exception):
    """A record of an unknown format: a newer release wrote it, or something else than a
    coordinator."""


def text_field(text: str | None) -> bytes:
    """Encode a text: length i16, -1 for None, and UTF-8."""
    if text is None:
        return INT16.pack(-1)
    raw = text.encode()
    return INT16.pack(len(raw)) + raw


def unsigned_varint(number: int) -> bytes:
    """Encode a number from 0 on, 7 bits per byte, lowest first."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def compact_length(length: int) -> bytes:
    """Encode the length of a compact field; -1 stands for null."""
    return unsigned_varint(length + 1)


def compact_text_field(text: str) -> bytes:
    """Encode a text as flexible versions do: compact length and UTF-8."""
    raw = text.encode()
    return compact_length(len(raw)) + raw


def data_field(data: bytes) -> bytes:
    """Encode bytes: length i32 and the bytes."""
    return INT32.pack(len(data)) + data


class CoordinatorRecordReader:
    """Reads a record from front to back. Each method may raise UnknownRecord."""

    def __init__(self, record: bytes) -> None:
        self._record = record
        self._position = 0

    def int8(self) -> int:
        return int.from_bytes(self._take(1), signed=True)

    def int16(self) -> int:
        return self._unpack(INT16)

    def int32(self) -> int:
        return self._unpack(INT32)

    def int64(self) -> int:
        return self._unpack(INT64)

    def optional_text(self) -> str | None:
        """Read a text as ``text_field`` writes it; bytes that are not UTF-8 are replaced."""
        length = self.int16()
        return None if length < 0 else self._take(length).decode("utf-8", "replace")

    def text(self) -> str:
        """Read a text as ``text_field`` writes it; None becomes the empty text."""
        return self.optional_text() or ""

    def data(self) -> bytes:
        """Read bytes as ``data_field`` writes them; a negative length becomes empty bytes."""
        return self._take(max(0, self.int32()))

    def compact_length(self) -> int:
        """Read a length as ``compact_length`` writes it."""
        return self._unsigned_varint() - 1

    def optional_compact_text(self) -> str | None:
        """Read a text as ``compact_text_field`` writes it, or null."""
        length = self.compact_length()
        return None if length < 0 else self._take(length).decode("utf-8", "replace")

    def compact_text(self) -> str:
        """Read a text as ``compact_text_field`` writes it; null becomes the empty text."""
        return self.optional_compact_text() or ""

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields at the end of a flexible structure, by their tags."""
        found = {}
        for _ in range(self._unsigned_varint()):
            tag = self._unsigned_varint()
            found[tag] = self._take(self._unsigned_varint())
        return found

    def _unsigned_varint(self) -> int:
        number = 0
        for shift in range(0, 5 * 7, 7):
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise UnknownRecord("a length of more than five bytes")

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._record):
            raise UnknownRecord(f"{len(self._record)} bytes, cut off in a field that ends at {end}")
        taken = self._record[self._position : end]
        self._position = end
        return taken

    def _unpack(self, layout: struct.Struct) -> int:
        return int(layout.unpack(self._take(layout.size))[0])


# The contents of one partition of a coordinator's topic: records, and markers of transactions.


class LogRecord(NamedTuple):
    """A record; it is a tombstone if ``value`` is None."""

    key: bytes
    value: bytes | None

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value or b"")


class TransactionOwner(NamedTuple):
    """The transaction that records belong to; they count once its commit marker is written.

    ``support`` says whether the partition is added to it by this write.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    support: TransactionSupport = TransactionSupport.ANNOUNCED


class LogBatch(NamedTuple):
    """Records at base offset ``place``; ``producer_id`` is None if they belong to no
    transaction."""

    place: int
    records: Sequence[LogRecord]
    producer_id: int | None = None


class TransactionEnd(NamedTuple):
    """A marker at offset ``place``; it ends the transaction of what that producer wrote before
    it."""

    place: int
    producer_id: int
    committed: bool


class CommitOutcomeUnknown(KafkaError):
    """Records are in the log at offset ``place``, but were not committed in time.

    They will be committed, unless the leader fails.
    """

    def __init__(self, code: int, message: str, place: int) -> None:
        super().__init__(code, message)
        self.place = place


# Encoding and decoding of record batches in a coordinator's topic; these functions are pure.


_VARINTS: Final = tuple(map(signed_varint, range(1024)))
"""The encoded lengths of nearly all records; encoding one costs more than the rest of a record."""


def encode_batch(
    records: Sequence[LogRecord], timestamp_ms: int, transaction: TransactionOwner | None = None
) -> bytes:
    """Encode all ``records`` as one uncompressed batch; the log assigns its offsets."""
    body = b"".join(_encode(record, delta) for delta, record in enumerate(records))
    if transaction is None:
        return own_batch(body, len(records), timestamp_ms)
    return own_batch(
        body,
        len(records),
        timestamp_ms,
        attributes=TRANSACTIONAL,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
    )


def decode_batch(header: BatchHeader, batch: Records) -> Iterator[LogRecord]:
    """Decode the records of a batch that have a key.

    Raises:
        UndecodableRecords: the batch cannot be decompressed, or holds no valid records.
    """
    plain = plain_records(header, batch)
    for *_, key_at, key_length, _ in walk(plain, header.record_count):
        if key_length >= 0:
            key_end = key_at + key_length
            yield LogRecord(plain[key_at:key_end], sized_field(plain, key_end))


def _encode(record: LogRecord, offset_delta: int) -> bytes:
    key, value = record
    sized_value = b"\1" if value is None else _varint(len(value)) + value
    # The record has no attributes and no headers, and its timestamp is that of the batch.
    body = b"\0\0%b%b%b%b\0" % (_varint(offset_delta), _varint(len(key)), key, sized_value)
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    return _VARINTS[value] if value < len(_VARINTS) else signed_varint(value)
