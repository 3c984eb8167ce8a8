"""DescribeQuorum (55): the state of the metadata quorum, as known to the voter that was asked.

Kafka describes the one partition of its metadata log. Quorate's metadata log is described under the
same name. The node ids here are those of voters, which are separate processes.
"""

import asyncio
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation
from quorate.quorum.quorum_errors import QuorumError
from quorate_proto.v1 import errors_pb2
from quorate_proto.v1.quorum_pb2 import QuorumStatusResponse, VoterStatus

METADATA_TOPIC: Final = "__cluster_metadata"

_TIMEOUT_S: Final = 5.0
_LISTENERS: Final = ("RAFT", "GRPC")
_ID_BYTES: Final = 16


async def describe_quorum(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    services.authorizer.rights_of(context).require_cluster(AclOperation.DESCRIBE)
    values: Message = {
        "error_code": errors_pb2.NONE,
        "error_message": None,
        "topics": [],
        "nodes": [],
    }
    try:
        status = await asyncio.wait_for(services.quorum.status(), _TIMEOUT_S)
    except (QuorumError, TimeoutError) as error:
        values["error_code"] = errors_pb2.REQUEST_TIMED_OUT
        values["error_message"] = f"the metadata quorum does not answer: {error}"
    else:
        now_ms = services.wall_clock_ms()
        values["topics"] = [_topic(topic, status, now_ms) for topic in request["topics"]]
        values["nodes"] = [_node(voter) for voter in status.voters]
    return values


def _topic(topic: Message, status: QuorumStatusResponse, now_ms: int) -> Message:
    partitions = [
        _metadata_log(status, now_ms)
        if (topic["topic_name"], one["partition_index"]) == (METADATA_TOPIC, 0)
        else _unknown(one["partition_index"])
        for one in topic["partitions"]
    ]
    return {"topic_name": topic["topic_name"], "partitions": partitions}


def _metadata_log(status: QuorumStatusResponse, now_ms: int) -> Message:
    return {
        "partition_index": 0,
        "error_code": errors_pb2.NONE,
        "error_message": None,
        "leader_id": status.leader_id or -1,
        "leader_epoch": status.term,
        "high_watermark": status.commit_offset,
        "current_voters": _replicas(status, now_ms, observers=False),
        "observers": _replicas(status, now_ms, observers=True),
    }


def _unknown(partition: int) -> Message:
    return {
        "partition_index": partition,
        "error_code": errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
        "error_message": f"the metadata log is partition 0 of {METADATA_TOPIC}",
        "leader_id": -1,
        "leader_epoch": -1,
        "high_watermark": -1,
        "current_voters": [],
        "observers": [],
    }


def _replicas(status: QuorumStatusResponse, now_ms: int, *, observers: bool) -> list[Message]:
    return [
        _replica(voter, status, now_ms) for voter in status.voters if voter.observer == observers
    ]


def _replica(voter: VoterStatus, status: QuorumStatusResponse, now_ms: int) -> Message:
    """Describe one voter. A value is -1 if the voter that was asked does not know it, because a
    follower knows only its own state.
    """
    itself = voter.voter_id == status.voter_id
    heard_ms = now_ms if itself else now_ms - voter.last_heard_ms
    known = itself or voter.last_heard_ms >= 0
    has_id = len(voter.directory_id) == _ID_BYTES
    return {
        "replica_id": voter.voter_id,
        "replica_directory_id": UUID(bytes=voter.directory_id) if has_id else None,
        "log_end_offset": voter.match_offset,
        "last_fetch_timestamp": heard_ms if known else -1,
        "last_caught_up_timestamp": heard_ms if known and voter.lag == 0 else -1,
    }


def _node(voter: VoterStatus) -> Message:
    addresses: Iterable[str] = (voter.raft_address, voter.grpc_address)
    return {
        "node_id": voter.voter_id,
        "listeners": [
            {"name": name, "host": address.rpartition(":")[0], "port": int(port)}
            for name, address in zip(_LISTENERS, addresses, strict=True)
            if (port := address.rpartition(":")[2]).isdecimal()
        ],
    }
