"""ListOffsets (2) and OffsetForLeaderEpoch (23): offsets in the log of a partition."""

from collections.abc import Iterable, Mapping
from typing import Final

from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.replication.api import (
    EARLIEST_TIMESTAMP_MS,
    LATEST_TIMESTAMP_MS,
    MAX_TIMESTAMP_MS,
    Isolation,
    OffsetOutcome,
    isolation_of,
)
from quorate.common.acl_types import AclOperation
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_UNCHECKED_EPOCH: Final = -1
_UNKNOWN: Final = -1
_FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE: Final = 5

_EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -4, -5, -6
_REMOTE_STORAGE: Final = frozenset({_EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD})
"""The special timestamps for logs that are partly in remote storage (KIP-405, KIP-1005,
KIP-1023). Here the whole log is local. No part of it is tiered or waits to be.
"""

_FIRST_VERSION_OF_PLACE: Final[Mapping[int, int]] = {
    LATEST_TIMESTAMP_MS: 1,
    EARLIEST_TIMESTAMP_MS: 1,
    MAX_TIMESTAMP_MS: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version in which a client may send each special timestamp."""


async def list_offsets(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """ListOffsets (2). With isolation level 1 (read_committed), a partition ends at its last
    stable offset.
    """
    isolation = isolation_of(request.get("isolation_level", Isolation.READ_UNCOMMITTED))
    describable = _describable(services, context, (one["name"] for one in request["topics"]))
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                _listed(services, context.version, topic["name"], partition, isolation)
                if topic["name"] in describable
                else _offset_hidden(partition)
                for partition in topic["partitions"]
            ],
        }
        for topic in request["topics"]
    ]
    values = {"throttle_time": 0, "topics": topics}
    return values


def _describable(
    services: KafkaServices, context: RequestContext, topics: Iterable[str]
) -> frozenset[str]:
    return services.authorizer.rights_of(context).topics(AclOperation.DESCRIBE, topics)


def _offset_hidden(partition: Message) -> Message:
    return {
        "partition_index": partition["partition_index"],
        "error_code": errors_pb2.TOPIC_AUTHORIZATION_FAILED,
        "timestamp": _UNKNOWN,
        "offset": _UNKNOWN,
        "leader_epoch": _UNKNOWN,
    }


def _listed(
    services: KafkaServices, version: int, topic: str, partition: Message, isolation: Isolation
) -> Message:
    tp = TopicPartition(topic, partition["partition_index"])
    timestamp_ms = partition["timestamp"]
    epoch = partition.get("current_leader_epoch", _UNCHECKED_EPOCH)
    if timestamp_ms < 0 and version < _FIRST_VERSION_OF_PLACE.get(timestamp_ms, version + 1):
        outcome = OffsetOutcome(errors_pb2.UNSUPPORTED_VERSION)
    elif timestamp_ms in _REMOTE_STORAGE:
        outcome = services.replicas.list_offset(tp, EARLIEST_TIMESTAMP_MS, epoch)
        if timestamp_ms != _EARLIEST_LOCAL and not outcome.error_code:
            outcome = OffsetOutcome()
    else:
        outcome = services.replicas.list_offset(tp, timestamp_ms, epoch, isolation)
    return {
        "partition_index": tp.partition,
        "error_code": _code_known_to(version, outcome.error_code),
        "timestamp": outcome.timestamp_ms,
        "offset": outcome.offset,
        "leader_epoch": outcome.leader_epoch,
    }


def _code_known_to(version: int, error_code: int) -> int:
    """Return the error code by which a client of this version understands that a new leader is
    not ready.
    """
    if (
        error_code == errors_pb2.OFFSET_NOT_AVAILABLE
        and version < _FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
    ):
        return errors_pb2.LEADER_NOT_AVAILABLE
    return error_code


async def offset_for_leader_epoch(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    describable = _describable(services, context, (one["topic"] for one in request["topics"]))
    topics = [
        {
            "topic": topic["topic"],
            "partitions": [
                _epoch_end(services, topic["topic"], partition)
                if topic["topic"] in describable
                else _epoch_hidden(partition)
                for partition in topic["partitions"]
            ],
        }
        for topic in request["topics"]
    ]
    values = {"throttle_time": 0, "topics": topics}
    return values


def _epoch_hidden(partition: Message) -> Message:
    return {
        "error_code": errors_pb2.TOPIC_AUTHORIZATION_FAILED,
        "partition": partition["partition"],
        "leader_epoch": _UNKNOWN,
        "end_offset": _UNKNOWN,
    }


def _epoch_end(services: KafkaServices, topic: str, partition: Message) -> Message:
    end = services.replicas.offset_for_leader_epoch(
        TopicPartition(topic, partition["partition"]),
        partition["current_leader_epoch"],
        partition["leader_epoch"],
    )
    return {
        "error_code": end.error_code,
        "partition": partition["partition"],
        "leader_epoch": end.leader_epoch,
        "end_offset": end.end_offset,
    }
