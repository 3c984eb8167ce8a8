"""What the APIs of consumer groups (KIP-848) and of share groups (KIP-932) have in common: members
with epochs, and groups that are described one by one."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from uuid import UUID

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer.consumer_member import JOINING_EPOCH
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import HeartbeatAnswer
from quorate.broker.coordinator.groups.share.share_member import ShareHeartbeatAnswer
from quorate.broker.kafka.allowed_topics import allowed_topics
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import TopicId
from quorate_proto.v1 import errors_pb2


async def heartbeat_response(
    answering: Awaitable[HeartbeatAnswer | ShareHeartbeatAnswer], interval_ms: Callable[[], int]
) -> Message:
    """Return the response to a heartbeat. ``interval_ms`` returns the interval until the next."""
    try:
        answer = await answering
    except KafkaError as error:
        return {
            "throttle_time": 0,
            "error_code": error.code,
            "error_message": error.message,
            "member_epoch": 0,
            "heartbeat_interval": 0,
        }
    leaves = answer.member_epoch < JOINING_EPOCH
    assigned = answer.assigned
    return {
        "throttle_time": 0,
        "error_code": errors_pb2.NONE,
        "error_message": None,
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval": 0 if leaves else interval_ms(),
        "assignment": None if assigned is None else {"topic_partitions": _by_topic_id(assigned)},
    }


def _by_topic_id(assigned: Mapping[TopicId, Iterable[int]]) -> list[Message]:
    return [
        {"topic_id": UUID(bytes=topic_id), "partitions": sorted(partitions)}
        for topic_id, partitions in assigned.items()
    ]


async def require_described(
    services: KafkaServices, context: RequestContext, names: Collection[str]
) -> None:
    """Refuse a subscription to topics that the client may not see.

    Raises:
        KafkaError: TOPIC_AUTHORIZATION_FAILED.
    """
    rights = services.authorizer.rights_of(context)
    allowed = await allowed_topics(services, rights, AclOperation.DESCRIBE, names)
    for name in names:
        if name not in allowed:
            reason = rights.refusal(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
            raise KafkaError(errors_pb2.TOPIC_AUTHORIZATION_FAILED, reason)


async def describe_each(
    services: KafkaServices,
    context: RequestContext,
    request: Message,
    describe: Callable[[KafkaServices, RequestContext, str], Awaitable[Message]],
) -> Message:
    """Return the response that describes groups. Each group has its own error code."""
    wants_operations = request["include_authorized_operations"]
    groups = []
    for group_id in request["group_ids"]:
        try:
            described = await describe(services, context, group_id)
            if wants_operations:
                rights = services.authorizer.rights_of(context)
                described["authorized_operations"] = rights.operations(ResourceType.GROUP, group_id)
        except KafkaError as error:
            described = {
                "error_code": error.code,
                "error_message": error.message,
                "group_id": group_id,
                "group_state": "",
                "group_epoch": 0,
                "assignment_epoch": 0,
                "assignor_name": "",
                "members": [],
            }
        groups.append(described)
    return {"throttle_time": 0, "groups": groups}


def described_assignment(
    services: KafkaServices, partitions: Mapping[TopicId, Iterable[int]]
) -> Message:
    """Describe the partitions of topics that exist."""
    return {
        "topic_partitions": [
            {"topic_id": UUID(bytes=topic_id), "topic_name": name, "partitions": sorted(own)}
            for topic_id, own in partitions.items()
            if (name := services.metadata.topic_name(topic_id)) is not None
        ]
    }
