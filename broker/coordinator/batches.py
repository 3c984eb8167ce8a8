"""Keys and values of a coordinator's topic as record batches, and back. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from broker.coordinator.log_entries import LogRecord, TransactionOwner
from broker.log.options import Records
from broker.log.record_batch import TRANSACTIONAL, BatchHeader, own_batch
from broker.log.records import plain_records, signed_varint, sized_field, walk

_VARINTS: Final = tuple(map(signed_varint, range(1024)))
"""Lengths of nearly all records; to make one anew costs more than all else of a record."""


def encode_batch(
    records: Sequence[LogRecord], timestamp_ms: int, transaction: TransactionOwner | None = None
) -> bytes:
    """One batch of all ``records``, uncompressed; the log gives it its place."""
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
    """The records of a batch that have a key.

    Raises:
        UndecodableRecords: they cannot be decompressed, or are no records.
    """
    plain = plain_records(header, batch)
    for *_, key_at, key_length, _ in walk(plain, header.record_count):
        if key_length >= 0:
            key_end = key_at + key_length
            yield LogRecord(plain[key_at:key_end], sized_field(plain, key_end))


def _encode(record: LogRecord, offset_delta: int) -> bytes:
    key, value = record
    sized_value = b"\1" if value is None else _varint(len(value)) + value
    # No attributes; all records have the batch's time. No headers.
    body = b"\0\0%b%b%b%b\0" % (_varint(offset_delta), _varint(len(key)), key, sized_value)
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    return _VARINTS[value] if value < len(_VARINTS) else signed_varint(value)
