"""Transaction markers: control batches that say how a producer's transaction ended (KIP-98).

A marker is one batch with one record, as Kafka writes it. Only brokers write markers: the
coordinator of a transaction has the leaders append one to every partition of the transaction.

    key    version i16 = 0 | type i16: 0 aborted, 1 committed
    value  version i16 = 0 | coordinator epoch i32

Every replica reads every marker. The bytes that all markers have in common are therefore compared
at once, and a marker that differs in one of them is read like any other record. This module is
pure.
"""

import struct
from typing import Final, NamedTuple

from quorate.broker.log.batches.codecs import UndecodableRecords
from quorate.broker.log.batches.record_batch import (
    CONTROL,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    own_batch,
)
from quorate.broker.log.batches.records import signed_varint, sized_field, walk
from quorate.broker.log.options import Records

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_RECORD: Final = struct.Struct(">7sh3sis")
"""The record of a marker as brokers write it. The fields are the bytes up to the key's version, the
marker's type, the bytes up to the value's version, the coordinator's epoch, and the number of
headers."""
_ABORT: Final = 0
_COMMIT: Final = 1
_TO_TYPE: Final = b"".join(
    (
        signed_varint(_RECORD.size - 1),
        b"\0\0\0",  # No attributes, the timestamp of the batch, the first offset of the batch.
        signed_varint(_KEY.size),
        b"\0\0",
    )
)
_TO_EPOCH: Final = signed_varint(_VALUE.size) + b"\0\0"
_NO_HEADERS: Final = b"\0"


class EndMarker(NamedTuple):
    """The end of a transaction, and the coordinator that decided it.

    ``coordinator_epoch`` is the leader epoch of the coordinator's partition of __transaction_state.
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


def encode_marker(marker: EndMarker, timestamp_ms: int) -> bytes:
    """Return the marker as a batch. The log assigns its offset and leader epoch."""
    kind = _COMMIT if marker.committed else _ABORT
    return own_batch(
        _RECORD.pack(_TO_TYPE, kind, _TO_EPOCH, marker.coordinator_epoch, _NO_HEADERS),
        1,
        timestamp_ms,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )


def decode_marker(header: BatchHeader, batch: Records) -> EndMarker | None:
    """Return the marker in a control batch, or None if the batch does not end a transaction.

    Kafka has control records of other kinds and may add more. They end no transaction here, and
    neither does a record that cannot be read: all replicas must come to the same result from the
    same log.
    """
    if len(batch) == HEADER_BYTES + _RECORD.size and header.record_count == 1:
        to_type, kind, to_epoch, epoch, headers = _RECORD.unpack_from(batch, HEADER_BYTES)
        is_usual = (to_type, to_epoch, headers) == (_TO_TYPE, _TO_EPOCH, _NO_HEADERS)
        if is_usual and kind in (_ABORT, _COMMIT):
            return EndMarker(header.producer_id, header.producer_epoch, kind == _COMMIT, epoch)
    try:
        return _decode(header, bytes(memoryview(batch)[HEADER_BYTES:]))
    except (UndecodableRecords, struct.error, IndexError):
        return None


def _decode(header: BatchHeader, records: bytes) -> EndMarker | None:
    for *_, key_at, key_length, _ in walk(records, min(1, header.record_count)):
        key_end = key_at + max(0, key_length)
        _, kind = _KEY.unpack_from(records[key_at:key_end])
        value = sized_field(records, key_end)
        if kind in (_ABORT, _COMMIT) and value is not None:
            _, coordinator_epoch = _VALUE.unpack_from(value)
            return EndMarker(
                header.producer_id, header.producer_epoch, kind == _COMMIT, coordinator_epoch
            )
    return None
