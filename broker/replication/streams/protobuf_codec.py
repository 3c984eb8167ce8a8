"""Writes and reads the messages of a replication stream as protobuf, for the frames of gRPC."""

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from quorate.broker.replication.api import Bytes
from quorate.broker.replication.frames import MalformedFrame, pack_frame, unpack_frame
from quorate.broker.replication.streams.fetch_messages import (
    FetchedPartition,
    ReplicaFetchRequest,
    ReplicaPosition,
)
from quorate.common.types import BrokerEpoch, BrokerId, TopicId, TopicIdPartition
from quorate_proto.v1 import replication_pb2


def encode_request(request: ReplicaFetchRequest) -> bytes:
    """Return the frame of a request."""
    message = replication_pb2.ReplicaFetchRequest(
        replica_id=request.replica_id,
        broker_epoch=request.broker_epoch,
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        ack_only=request.ack_only,
    )
    for position in request.positions:
        message.positions.add(
            topic_id=position.tip.topic_id,
            partition=position.tip.partition,
            current_leader_epoch=position.current_leader_epoch,
            fetch_offset=position.fetch_offset,
            flushed_offset=position.flushed_offset,
            log_start_offset=position.log_start_offset,
            forget=position.forget,
        )
    return pack_frame(message.SerializeToString())


def decode_request(frame: bytes) -> ReplicaFetchRequest:
    """Return the request in a frame.

    Raises:
        MalformedFrame: it has none.
    """
    try:
        message = replication_pb2.ReplicaFetchRequest.FromString(unpack_frame(frame)[0])
    except DecodeError as error:
        raise MalformedFrame(f"a request of {len(frame)} bytes is no message: {error}") from error
    positions = [
        ReplicaPosition(
            TopicIdPartition(TopicId(told.topic_id), told.partition),
            told.current_leader_epoch,
            told.fetch_offset,
            told.flushed_offset,
            told.log_start_offset,
            told.forget,
        )
        for told in message.positions
    ]
    return ReplicaFetchRequest(
        BrokerId(message.replica_id),
        BrokerEpoch(message.broker_epoch),
        message.max_wait_ms,
        message.max_bytes,
        message.ack_only,
        positions,
    )


def encode_response(partitions: Sequence[FetchedPartition]) -> bytes:
    """Return the frame of a response."""
    message = replication_pb2.ReplicaFetchResponse()
    chunks: list[Bytes] = []
    for fetched in partitions:
        message.partitions.add(
            topic_id=fetched.tip.topic_id,
            partition=fetched.tip.partition,
            error_code=fetched.error_code,
            high_watermark=fetched.high_watermark,
            log_start_offset=fetched.log_start_offset,
            records_size=fetched.size,
            leader_epoch=fetched.leader_epoch,
        )
        chunks += fetched.records
    return pack_frame(message.SerializeToString(), chunks)


def decode_response(frame: bytes) -> list[FetchedPartition]:
    """Return the response in a frame. The records are views of it.

    Raises:
        MalformedFrame: it has none, or fewer records than it says.
    """
    header, records = unpack_frame(frame)
    try:
        message = replication_pb2.ReplicaFetchResponse.FromString(header)
    except DecodeError as error:
        raise MalformedFrame(f"a response of {len(frame)} bytes is no message: {error}") from error
    partitions = []
    begin = 0
    for told in message.partitions:
        end = begin + told.records_size
        if not begin <= end <= len(records):
            raise MalformedFrame(f"{len(records)} bytes of records, {end} announced")
        partitions.append(
            FetchedPartition(
                TopicIdPartition(TopicId(told.topic_id), told.partition),
                told.error_code,
                told.high_watermark,
                told.log_start_offset,
                told.leader_epoch,
                end - begin,
                (records[begin:end],) if begin < end else (),
            )
        )
        begin = end
    return partitions
