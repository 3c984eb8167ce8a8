"""Transaction markers: the control batches that say how a producer's transaction ended (KIP-98).

One batch, one record, as Kafka writes them. Only brokers do: a transaction's coordinator has the
leaders append one to every partition of the transaction.

    key    version i16 = 0 | type i16: 0 aborted, 1 committed
    value  version i16 = 0 | coordinator epoch i32

Every replica reads every marker, so the bytes that they all have in common are compared at once;
what differs in a single one of them is read as any record is. Pure.
"""

import struct
from typing import Final, NamedTuple

from broker.log.codecs import UndecodableRecords
from broker.log.options import Records
from broker.log.record_batch import (
    CONTROL,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    own_batch,
)
from broker.log.records import signed_varint, sized_field, walk

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_RECORD: Final = struct.Struct(">7sh3sis")
"""A marker's record as brokers write it: up to the key's version, its type, up to the value's
version, the coordinator's epoch, the number of headers."""
_ABORT: Final = 0
_COMMIT: Final = 1
_TO_TYPE: Final = b"".join(
    (
        signed_varint(_RECORD.size - 1),
        b"\0\0\0",  # No attributes; the batch's time; the batch's first offset.
        signed_varint(_KEY.size),
        b"\0\0",
    )
)
_TO_EPOCH: Final = signed_varint(_VALUE.size) + b"\0\0"
_NO_HEADERS: Final = b"\0"


class EndMarker(NamedTuple):
    """How a transaction ended, and who says so.

    ``coordinator_epoch``: the leader epoch of the coordinator's partition of __transaction_state.
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


def encode_marker(marker: EndMarker, timestamp_ms: int) -> bytes:
    """The batch; the log gives it its place."""
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
    """What a control batch says; None if it does not end a transaction.

    Kafka has control records of other kinds, and may come to have more. They end nothing here, nor
    does what cannot be read: whatever is in the log, all its replicas must make the same of it.
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
