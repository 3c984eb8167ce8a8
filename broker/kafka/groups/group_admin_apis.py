"""DescribeGroups (15), ListGroups (16) and DeleteGroups (42)."""

from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.known_groups import Group
from quorate.broker.coordinator.groups.share.share_group import ShareGroup
from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup
from quorate.broker.coordinator.groups.state.group_basis import GroupState
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.groups.group_membership_apis import require_group
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation, ResourceType
from quorate_proto.v1 import errors_pb2

_DEAD: Final = "Dead"
"""The state that is returned for a group that does not exist."""
_FIRST_DESCRIPTION_NOT_FOUND: Final = 6
"""From this version of DescribeGroups on, groups that do not exist have an error (KIP-1043)."""
_CLASSIC: Final = "classic"
_CONSUMER: Final = "consumer"
_SHARE: Final = "share"
"""The types of groups, as clients see them."""


async def describe_groups(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """DescribeGroups (15): describe groups. Each group has its own error code."""
    wants_operations = request.get("include_authorized_operations", False)
    groups = []
    for group_id in request["groups"]:
        described: Message = {"group_id": group_id, **_nothing(errors_pb2.NONE)}
        try:
            require_group(services, context, AclOperation.DESCRIBE, group_id)
            group = services.groups.shard_of(group_id).group(group_id)
        except KafkaError as error:
            described |= _nothing(error.code)
        else:
            if isinstance(group, ClassicGroup):
                described |= _described(group)
            elif context.version >= _FIRST_DESCRIPTION_NOT_FOUND:
                described |= _not_found(group_id)
            if wants_operations:
                rights = services.authorizer.rights_of(context)
                described["authorized_operations"] = rights.operations(ResourceType.GROUP, group_id)
        groups.append(described)
    values = {"throttle_time": 0, "groups": groups}
    return values


def _not_found(group_id: str) -> Message:
    """Return the answer for a group that does not exist, or is of the consumer protocol."""
    return {
        "error_code": errors_pb2.GROUP_ID_NOT_FOUND,
        "error_message": f"Group {group_id} not found.",
    }


def _nothing(error_code: int) -> Message:
    return {
        "error_code": error_code,
        "group_state": "" if error_code else _DEAD,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


def _described(group: ClassicGroup) -> Message:
    """Describe a group. Subscriptions and assignments are included only while the group is
    stable.
    """
    agreed = group.state is GroupState.STABLE
    protocol = group.protocol_name if agreed and group.protocol_name is not None else ""
    return {
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(protocol) if agreed else b"",
                "member_assignment": member.assignment if agreed else b"",
            }
            for member in group.members
        ],
    }


async def list_groups(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """ListGroups (16): list the groups that this broker coordinates. Clients ask every broker."""
    states = {state.lower() for state in request.get("states_filter") or ()}
    types = {kind.lower() for kind in request.get("types_filter") or ()}
    rights = services.authorizer.rights_of(context)
    sees_all = rights.may_cluster(AclOperation.DESCRIBE, log_denied=False)
    known = tuple(services.groups.groups())
    await AnswerPrice(services, context).add(len(known))
    groups = [
        {
            "group_id": group.group_id,
            "protocol_type": group.protocol_type or "",
            "group_state": group.state.value,
            "group_type": _type(group),
        }
        async for group in services.turns.through(known)
        if (not states or group.state.value.lower() in states)
        and (not types or _type(group) in types)
        and (
            sees_all
            or rights.may(
                AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id, log_denied=False
            )
        )
    ]
    code = (
        errors_pb2.COORDINATOR_LOAD_IN_PROGRESS if services.groups.is_loading else errors_pb2.NONE
    )
    values = {"throttle_time": 0, "error_code": code, "groups": groups}
    return values


def _type(group: Group) -> str:
    if isinstance(group, ShareGroup):
        return _SHARE
    return _CLASSIC if isinstance(group, ClassicGroup) else _CONSUMER


async def delete_groups(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """DeleteGroups (42): delete groups. Each group has its own error code."""
    results = []
    for group_id in dict.fromkeys(request["groups_names"]):
        try:
            require_group(services, context, AclOperation.DELETE, group_id)
            code = await services.groups.shard_of(group_id).delete(group_id)
        except KafkaError as error:
            code = error.code
        results.append({"group_id": group_id, "error_code": code})
    values = {"throttle_time": 0, "results": results}
    return values
