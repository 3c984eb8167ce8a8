"""Transaction markers: the control batches that say how a producer's transaction ended (KIP-98).

One batch, one record, as Kafka writes them. Only brokers do: a transaction's coordinator has the
leaders append one to every partition of the transaction.

    key    version i16 = 0 | type i16: 0 aborted, 1 committed
    value  version i16 = 0 | coordinator epoch i32

Pure.
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
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1


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
    key = _KEY.pack(_VERSION, _COMMIT if marker.committed else _ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    body = b"".join(
        (
            b"\0\0\0",  # No attributes; the batch's time; the batch's first offset.
            signed_varint(len(key)),
            key,
            signed_varint(len(value)),
            value,
            b"\0",  # No headers.
        )
    )
    return own_batch(
        signed_varint(len(body)) + body,
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
