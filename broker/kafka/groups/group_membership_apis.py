"""JoinGroup (11), Heartbeat (12), LeaveGroup (13) and SyncGroup (14): the membership of a group."""

from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.state.group_effects import (
    JoinAnswer,
    JoinRequest,
    Leaver,
    SyncAnswer,
    SyncRequest,
)
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation, ResourceType
from quorate_proto.v1 import errors_pb2

_FIRST_JOIN_WITH_ID_REQUIRED: Final = 4
_FIRST_JOIN_WITH_NULL_PROTOCOL: Final = 7
_FIRST_JOIN_WITH_SKIP: Final = 9
_FIRST_LEAVE_OF_MANY: Final = 3


async def join_group(services: KafkaServices, context: RequestContext, request: Message) -> Message:
    """JoinGroup (11). The response is sent when all members have joined, which may take as long
    as the rebalance timeout.
    """
    try:
        outcome = await _join(services, context, request)
    except KafkaError as error:
        outcome = JoinAnswer(error.code, request["member_id"])
    no_protocol = None if context.version >= _FIRST_JOIN_WITH_NULL_PROTOCOL else ""
    values: Message = {
        "throttle_time": 0,
        "error_code": outcome.error_code,
        "generation_id": outcome.generation_id,
        "protocol_type": outcome.protocol_type,
        "protocol_name": no_protocol if outcome.protocol_name is None else outcome.protocol_name,
        "leader": outcome.leader_id,
        "skip_assignment": outcome.skip_assignment,
        "member_id": outcome.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in outcome.members
        ],
    }
    return values


async def _join(services: KafkaServices, context: RequestContext, request: Message) -> JoinAnswer:
    group_id = request["group_id"]
    require_reader(services, context, group_id)
    session_timeout_ms: int = request["session_timeout"]
    rebalance_timeout_ms: int = request.get("rebalance_timeout", session_timeout_ms)
    services.groups.check_session_timeout(group_id, session_timeout_ms)
    shard = services.groups.shard_of(group_id)
    instance_id = request.get("group_instance_id")
    joining = JoinRequest(
        token=0,
        member_id=request["member_id"],
        new_member_id=services.groups.new_member_id(instance_id or context.client_id),
        instance_id=instance_id,
        client_id=context.client_id,
        client_host=f"/{context.client_host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=request["protocol_type"],
        protocols=tuple(
            (protocol["name"], bytes(protocol["metadata"])) for protocol in request["protocols"]
        ),
        needs_known_id=context.version >= _FIRST_JOIN_WITH_ID_REQUIRED,
        can_skip_assignment=context.version >= _FIRST_JOIN_WITH_SKIP,
    )
    return await shard.join(group_id, joining)


async def sync_group(services: KafkaServices, context: RequestContext, request: Message) -> Message:
    """SyncGroup (14). The response is sent when the leader has sent the assignment and it is in
    the log.
    """
    group_id = request["group_id"]
    try:
        require_reader(services, context, group_id)
        syncing = SyncRequest(
            token=0,
            member_id=request["member_id"],
            instance_id=request.get("group_instance_id"),
            generation_id=request["generation_id"],
            protocol_type=request.get("protocol_type"),
            protocol_name=request.get("protocol_name"),
            assignments=tuple(
                (each["member_id"], bytes(each["assignment"])) for each in request["assignments"]
            ),
        )
        outcome = await services.groups.shard_of(group_id).sync(group_id, syncing)
    except KafkaError as error:
        outcome = SyncAnswer(error.code)
    values: Message = {
        "throttle_time": 0,
        "error_code": outcome.error_code,
        "protocol_type": outcome.protocol_type,
        "protocol_name": outcome.protocol_name,
        "assignment": outcome.assignment,
    }
    return values


async def heartbeat(services: KafkaServices, context: RequestContext, request: Message) -> Message:
    """Heartbeat (12). The error code REBALANCE_IN_PROGRESS asks the member to join again."""
    group_id = request["group_id"]
    try:
        require_reader(services, context, group_id)
        code = services.groups.shard_of(group_id).heartbeat(
            group_id,
            request["member_id"],
            request.get("group_instance_id"),
            request["generation_id"],
        )
    except KafkaError as error:
        code = error.code
    values: Message = {"throttle_time": 0, "error_code": code}
    return values


async def leave_group(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """LeaveGroup (13). Each member has its own error code. Versions with a single member have
    one error code for the request.
    """
    group_id = request["group_id"]
    many = context.version >= _FIRST_LEAVE_OF_MANY
    members = request["members"] if many else [request]
    leavers = [Leaver(each["member_id"], each.get("group_instance_id")) for each in members]
    values: Message = {"throttle_time": 0, "error_code": errors_pb2.NONE, "members": []}
    try:
        require_reader(services, context, group_id)
        codes = services.groups.shard_of(group_id).leave(group_id, leavers)
    except KafkaError as error:
        values["error_code"] = error.code
    else:
        values["members"] = [
            {
                "member_id": leaver.member_id,
                "group_instance_id": leaver.instance_id,
                "error_code": code,
            }
            for leaver, code in zip(leavers, codes, strict=True)
        ]
        if not many:
            values["error_code"] = codes[0]
    return values


def require_reader(services: KafkaServices, context: RequestContext, group_id: str) -> None:
    """Refuse the request unless its client may read as a member of the group.

    Raises:
        KafkaError: INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED.
    """
    if not group_id:
        raise KafkaError(errors_pb2.INVALID_GROUP_ID, "group.id is empty: a group needs a name")
    require_group(services, context, AclOperation.READ, group_id)


def require_group(
    services: KafkaServices, context: RequestContext, operation: AclOperation, group_id: str
) -> None:
    """Refuse the request unless its client may perform the operation on the group.

    Raises:
        KafkaError: GROUP_AUTHORIZATION_FAILED.
    """
    rights = services.authorizer.rights_of(context)
    if not rights.may_group(operation, group_id):
        reason = rights.refusal(operation, ResourceType.GROUP, group_id)
        raise KafkaError(errors_pb2.GROUP_AUTHORIZATION_FAILED, reason)
