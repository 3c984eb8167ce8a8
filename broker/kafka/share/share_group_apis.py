"""ShareGroupHeartbeat (76) and ShareGroupDescribe (77): share groups (KIP-932)."""

from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.share.share_member import (
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    ShareMember,
    check_share_heartbeat,
)
from quorate.broker.coordinator.groups.share.simple_assignor import SIMPLE
from quorate.broker.kafka.allowed_topics import allowed_topics
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.groups.coordinator_topics import SHARES, CoordinatorTopics
from quorate.broker.kafka.groups.epoch_group_messages import (
    describe_each,
    described_assignment,
    heartbeat_response,
    require_described,
)
from quorate.broker.kafka.groups.group_membership_apis import require_group
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.share.share_level import require_level
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation
from quorate_proto.v1 import errors_pb2

_NOT_DESCRIBED: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)


class ShareGroupHeartbeatApi:
    """The handler of ShareGroupHeartbeat, with the internal topic that is being created."""

    def __init__(self) -> None:
        self._topics = CoordinatorTopics()

    async def handle(
        self, services: KafkaServices, context: RequestContext, request: Message
    ) -> Message:
        """Answer when what the heartbeat says is in the log."""
        limits_of = services.groups.share_parts.limits_of
        return await heartbeat_response(
            self._heartbeat(services, context, request),
            lambda: limits_of(request["group_id"])().heartbeat_interval_ms,
        )

    async def _heartbeat(
        self, services: KafkaServices, context: RequestContext, request: Message
    ) -> ShareHeartbeatAnswer:
        group_id = request["group_id"]
        if not group_id:
            raise KafkaError(errors_pb2.INVALID_REQUEST, "the group id is empty")
        require_group(services, context, AclOperation.READ, group_id)
        names = request["subscribed_topic_names"]
        heartbeat = ShareHeartbeat(
            member_id=request["member_id"],
            member_epoch=request["member_epoch"],
            client_id=context.client_id,
            client_host=f"/{context.client_host}",
            rack_id=request["rack_id"],
            topic_names=None if names is None else frozenset(names),
        )
        check_share_heartbeat(heartbeat)
        await require_described(services, context, heartbeat.topic_names or ())
        if heartbeat.joins:
            require_level(services)
            missing = await self._topics.create_if_missing(services, context, SHARES)
            if missing is not None:
                raise KafkaError(errors_pb2.COORDINATOR_NOT_AVAILABLE, missing)
        return await services.groups.shard_of(group_id).share_heartbeat(group_id, heartbeat)


async def share_group_describe(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """ShareGroupDescribe (77): describe share groups. Each has its own error code."""
    return await describe_each(services, context, request, _described)


async def _described(services: KafkaServices, context: RequestContext, group_id: str) -> Message:
    require_group(services, context, AclOperation.DESCRIBE, group_id)
    group = services.groups.shard_of(group_id).share_group(group_id)
    names = tuple(group.subscribed_topics())
    rights = services.authorizer.rights_of(context)
    allowed = await allowed_topics(services, rights, AclOperation.DESCRIBE, names)
    if len(allowed) < len(names):
        raise KafkaError(errors_pb2.TOPIC_AUTHORIZATION_FAILED, _NOT_DESCRIBED)
    members = tuple(group.members.values())
    await AnswerPrice(services, context).add(len(members))
    return {
        "error_code": errors_pb2.NONE,
        "error_message": None,
        "group_id": group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": SIMPLE,
        "members": [_member(services, member) async for member in services.turns.through(members)],
    }


def _member(services: KafkaServices, member: ShareMember) -> Message:
    metadata, current = member.metadata, member.current
    return {
        "member_id": member.member_id,
        "rack_id": metadata.rack_id,
        "member_epoch": current.epoch,
        "client_id": metadata.client_id,
        "client_host": metadata.client_host,
        "subscribed_topic_names": sorted(metadata.topic_names),
        "assignment": described_assignment(services, current.partitions),
    }
