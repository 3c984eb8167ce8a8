"""ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69): groups of the consumer protocol
(KIP-848)."""

from collections.abc import Collection, Iterable
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.consumer.consumer_member import (
    ConsumerMember,
    Partitions,
)
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
    check_heartbeat,
)
from quorate.broker.kafka.allowed_topics import allowed_topics
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.groups.epoch_group_messages import (
    describe_each,
    described_assignment,
    heartbeat_response,
    require_described,
)
from quorate.broker.kafka.groups.group_membership_apis import require_group
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation
from quorate.common.types import TopicId
from quorate.metadata_log.features import CONSUMER_GROUPS
from quorate_proto.v1 import errors_pb2

_FIRST_WITH_MEMBER_ID: Final = 1
"""From this version of ConsumerGroupHeartbeat on, members choose their own ids (KIP-1082)."""
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1
"""The types of members, by the protocol that they use (KIP-1099)."""


async def consumer_group_heartbeat(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """ConsumerGroupHeartbeat (68). The response is sent when what it says is in the log."""
    limits_of = services.groups.consumer_parts.limits_of
    return await heartbeat_response(
        _heartbeat(services, context, request),
        lambda: limits_of(request["group_id"]).heartbeat_interval_ms,
    )


async def _heartbeat(
    services: KafkaServices, context: RequestContext, request: Message
) -> HeartbeatAnswer:
    group_id = request["group_id"]
    if not group_id:
        raise KafkaError(errors_pb2.INVALID_REQUEST, "the group id is empty")
    require_group(services, context, AclOperation.READ, group_id)
    heartbeat = _read(context, request)
    parts = services.groups.consumer_parts
    needs_member_id = context.version >= _FIRST_WITH_MEMBER_ID
    check_heartbeat(heartbeat, parts.assignors, needs_member_id=needs_member_id)
    if not heartbeat.member_id:
        heartbeat = heartbeat._replace(member_id=services.groups.new_id())
    await require_described(services, context, heartbeat.topic_names or ())

    _require_level(services)

    async def visible(names: Collection[str]) -> Collection[str]:
        rights = services.authorizer.rights_of(context)
        return await allowed_topics(
            services, rights, AclOperation.DESCRIBE, names, log_denied=False
        )

    return await services.groups.shard_of(group_id).consumer_heartbeat(group_id, heartbeat, visible)


def _require_level(services: KafkaServices) -> None:
    """Refuse the consumer protocol while a broker of an earlier release may become coordinator.

    Raises:
        KafkaError: UNSUPPORTED_VERSION.
    """
    level = services.images.image.inter_broker_protocol
    if level < CONSUMER_GROUPS:
        raise KafkaError(
            errors_pb2.UNSUPPORTED_VERSION,
            f"the consumer protocol needs inter_broker_protocol {CONSUMER_GROUPS}, which is {level}"
            " now: `quorate features upgrade`",
        )


def _read(context: RequestContext, request: Message) -> HeartbeatRequest:
    names, topics = request["subscribed_topic_names"], request["topic_partitions"]
    return HeartbeatRequest(
        member_id=request["member_id"],
        member_epoch=request["member_epoch"],
        client_id=context.client_id,
        client_host=f"/{context.client_host}",
        instance_id=request["instance_id"],
        rack_id=request["rack_id"],
        rebalance_timeout_ms=request["rebalance_timeout"],
        topic_names=None if names is None else frozenset(names),
        topic_regex=request.get("subscribed_topic_regex"),
        server_assignor=request["server_assignor"],
        claimed=None if topics is None else _claimed(topics),
    )


def _claimed(topics: Iterable[Message]) -> Partitions:
    claimed: dict[TopicId, set[int]] = {}
    for topic in topics:
        topic_id = TopicId(topic["topic_id"].bytes)
        claimed.setdefault(topic_id, set()).update(topic["partitions"])
    return {topic_id: frozenset(own) for topic_id, own in claimed.items() if own}


async def consumer_group_describe(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """ConsumerGroupDescribe (69): describe groups of the consumer protocol. Each has its own error
    code."""
    return await describe_each(services, context, request, _described)


async def _described(services: KafkaServices, context: RequestContext, group_id: str) -> Message:
    require_group(services, context, AclOperation.DESCRIBE, group_id)
    group = services.groups.shard_of(group_id).group(group_id)
    if not isinstance(group, ConsumerGroup):
        what = "there is no" if group is None else "it is a classic group, and no"
        raise KafkaError(errors_pb2.GROUP_ID_NOT_FOUND, f"{what} consumer group {group_id!r}")
    await require_described(services, context, tuple(group.subscribed_topics()))
    members = tuple(group.members)
    await AnswerPrice(services, context).add(len(members))
    parts = services.groups.consumer_parts
    return {
        "error_code": errors_pb2.NONE,
        "error_message": None,
        "group_id": group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.members.preferred_assignor() or parts.default_assignor,
        "members": [
            _member(services, group, member) async for member in services.turns.through(members)
        ],
    }


def _member(services: KafkaServices, group: ConsumerGroup, member: ConsumerMember) -> Message:
    metadata, current = member.metadata, member.current
    owned: dict[TopicId, set[int]] = {}
    for topic_id, partition in current.partitions():
        owned.setdefault(topic_id, set()).add(partition)
    return {
        "member_id": member.member_id,
        "instance_id": metadata.instance_id,
        "rack_id": metadata.rack_id,
        "member_epoch": current.epoch,
        "client_id": metadata.client_id,
        "client_host": metadata.client_host,
        "subscribed_topic_names": sorted(metadata.topic_names),
        "subscribed_topic_regex": metadata.topic_regex or None,
        "assignment": described_assignment(services, owned),
        "target_assignment": described_assignment(services, group.target_of(member.member_id)),
        "member_type": _CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    }
