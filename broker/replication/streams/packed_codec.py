"""Writes and reads the messages of a replication stream as packed structs, for framed streams.

    u32 length of what follows | u32 CRC-32C of kind and header | u8 kind
        | u32 header length | header | record batches, back to back

All numbers are big-endian. The checksum covers what says where bytes belong, such as offsets and
epochs; batches have checksums of their own. A frame of each kind:

- HELLO, the follower's first: version, its own id, the id of the leader that it wants.
- REQUEST and RESPONSE: counts and sizes first, then a struct of fixed size for each partition.
- REFUSAL: why the leader closes the stream, in UTF-8.

Packing costs a tenth of what protobuf messages cost, and there is one frame per handful of batches.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from quorate.broker.replication.api import Bytes
from quorate.broker.replication.frames import MalformedFrame
from quorate.broker.replication.streams.fetch_messages import (
    FetchedPartition,
    ReplicaFetchRequest,
    ReplicaPosition,
)
from quorate.common.types import BrokerEpoch, BrokerId, TopicId, TopicIdPartition

HELLO, REQUEST, RESPONSE, REFUSAL = range(1, 5)

VERSION: Final = 1
"""The version of these frames. A leader refuses a follower that asks for another one."""

LENGTH: Final = struct.Struct(">I")
_START: Final = struct.Struct(">IIBI")
"""Length, checksum, kind, header length."""
_FIXED: Final = _START.size - LENGTH.size
_CHECKED: Final = struct.Struct(">BI")
_CHECKED_AT: Final = _START.size - LENGTH.size - _CHECKED.size
_HELLO: Final = struct.Struct(">4sHii")
_MAGIC: Final = b"QREP"
_REQUEST: Final = struct.Struct(">iqii?I")
_POSITION: Final = struct.Struct(">16siiqqq?")
_COUNT: Final = struct.Struct(">I")
_PARTITION: Final = struct.Struct(">16sihqqiI")

HELLO_BYTES_MAX: Final = 64
"""The largest frame that a leader takes from a connection before its hello."""


class Hello(NamedTuple):
    """The first frame of a follower."""

    version: int
    follower: BrokerId
    leader: BrokerId
    """The broker that it wants to reach."""


def encode_hello(hello: Hello) -> bytes:
    """Return the frame of a hello."""
    return _frame(HELLO, _HELLO.pack(_MAGIC, *hello))


def encode_refusal(why: str) -> bytes:
    """Return the frame that tells why the stream ends."""
    return _frame(REFUSAL, why.encode())


def encode_request(request: ReplicaFetchRequest) -> bytes:
    """Return the frame of a request."""
    positions = request.positions
    parts = [
        _REQUEST.pack(
            request.replica_id,
            request.broker_epoch,
            request.max_wait_ms,
            request.max_bytes,
            request.ack_only,
            len(positions),
        )
    ]
    for tip, *rest in positions:
        parts.append(_POSITION.pack(tip.topic_id, tip.partition, *rest))
    return _frame(REQUEST, b"".join(parts))


def encode_response(partitions: Sequence[FetchedPartition]) -> list[Bytes]:
    """Return the frame of a response, in pieces. The records are not copied."""
    parts: list[bytes] = [_COUNT.pack(len(partitions))]
    chunks: list[Bytes] = [b""]
    size = 0
    for fetched in partitions:
        parts.append(
            _PARTITION.pack(
                fetched.tip.topic_id,
                fetched.tip.partition,
                fetched.error_code,
                fetched.high_watermark,
                fetched.log_start_offset,
                fetched.leader_epoch,
                fetched.size,
            )
        )
        size += fetched.size
        chunks += fetched.records
    chunks[0] = _frame(RESPONSE, b"".join(parts), size)
    return chunks


class Frame(NamedTuple):
    """The contents of a frame that is whole."""

    kind: int
    header: memoryview
    records: memoryview


def open_frame(frame: Bytes) -> Frame:
    """Return the contents of a frame. ``frame`` is what follows its length.

    Raises:
        MalformedFrame: it is too short, or its checksum is wrong.
    """
    view = memoryview(frame)
    if len(view) < _FIXED:
        raise MalformedFrame(f"a frame of {len(view)} bytes is shorter than its beginning")
    (checksum,) = LENGTH.unpack_from(view)
    kind, header_length = _CHECKED.unpack_from(view, _CHECKED_AT)
    end = _FIXED + header_length
    if end > len(view):
        raise MalformedFrame(f"a frame of {len(view)} bytes announces a header of {header_length}")
    if crc32c(view[_CHECKED_AT:end]) != checksum:
        raise MalformedFrame(f"the checksum of a frame of {len(view)} bytes is wrong")
    return Frame(kind, view[_FIXED:end], view[end:])


def decode_hello(header: memoryview) -> Hello:
    """Return the hello in a header.

    Raises:
        MalformedFrame: the header is none.
    """
    if len(header) != _HELLO.size:
        raise MalformedFrame(f"a hello of {len(header)} bytes, {_HELLO.size} are expected")
    magic, version, follower, leader = _HELLO.unpack(header)
    if magic != _MAGIC:
        raise MalformedFrame(f"a hello begins with {magic!r}, {_MAGIC!r} is expected")
    return Hello(version, BrokerId(follower), BrokerId(leader))


def decode_request(header: memoryview) -> ReplicaFetchRequest:
    """Return the request in a header.

    Raises:
        MalformedFrame: the header is none.
    """
    if len(header) < _REQUEST.size:
        raise MalformedFrame(f"a request of {len(header)} bytes is too short")
    *start, ack_only, count = _REQUEST.unpack_from(header)
    replica_id, broker_epoch, max_wait_ms, max_bytes = start
    told = header[_REQUEST.size :]
    if len(told) != count * _POSITION.size:
        raise MalformedFrame(f"a request has {len(told)} bytes for {count} positions")
    positions = [
        ReplicaPosition(TopicIdPartition(TopicId(topic_id), partition), *rest)
        for topic_id, partition, *rest in _POSITION.iter_unpack(told)
    ]
    return ReplicaFetchRequest(
        BrokerId(replica_id),
        BrokerEpoch(broker_epoch),
        max_wait_ms,
        max_bytes,
        ack_only,
        positions,
    )


def decode_response(header: memoryview, records: memoryview) -> list[FetchedPartition]:
    """Return the response in a header. Its records are views of ``records``.

    Raises:
        MalformedFrame: the header is none, or its sizes are not those of the records.
    """
    if len(header) < _COUNT.size:
        raise MalformedFrame(f"a response of {len(header)} bytes is too short")
    (count,) = _COUNT.unpack_from(header)
    told = header[_COUNT.size :]
    if len(told) != count * _PARTITION.size:
        raise MalformedFrame(f"a response has {len(told)} bytes for {count} partitions")
    partitions = []
    begin = 0
    for topic_id, partition, code, watermark, start, epoch, size in _PARTITION.iter_unpack(told):
        end = begin + size
        tip = TopicIdPartition(TopicId(topic_id), partition)
        own = (records[begin:end],) if size else ()
        partitions.append(FetchedPartition(tip, code, watermark, start, epoch, size, own))
        begin = end
    if begin != len(records):
        raise MalformedFrame(f"{len(records)} bytes of records, {begin} announced")
    return partitions


def _frame(kind: int, header: bytes, records_size: int = 0) -> bytes:
    checked = _CHECKED.pack(kind, len(header)) + header
    length = _FIXED + len(header) + records_size
    return LENGTH.pack(length) + LENGTH.pack(crc32c(checked)) + checked
