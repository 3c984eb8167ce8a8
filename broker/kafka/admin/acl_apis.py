"""DescribeAcls (29) from the image, and CreateAcls (30) and DeleteAcls (31) by the controller."""

from typing import Final

from quorate.broker.changes.table import CREATE_ACLS, DELETE_ACLS
from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.security.acl_bindings import described_bindings
from quorate.metadata_log.acls import AclPattern
from quorate_proto.v1 import admin_pb2, errors_pb2

_NO_TIMEOUT_MS: Final = 0
"""The timeout of these requests, which have none. The default applies."""


async def describe_acls(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    image = services.images.image
    code, message = 0, ""
    steps = described_bindings(services.authorizer, context, image.acls, _filter(request))
    try:
        found = await services.turns.carry_out(steps)
    except KafkaError as error:
        found, code, message = [], error.code, error.message
    await AnswerPrice(services, context).add(len(found))
    resources: list[Message] = []
    before: AclPattern | None = None
    async for pattern, entry in services.turns.through(found):
        if pattern != before:
            resources.append(
                {
                    "resource_type": pattern.resource_type,
                    "resource_name": pattern.name,
                    "pattern_type": pattern.pattern_type,
                    "acls": [],
                }
            )
            before = pattern
        resources[-1]["acls"].append(
            {
                "principal": entry.principal,
                "host": entry.host,
                "operation": entry.operation,
                "permission_type": entry.permission,
            }
        )
    return {
        "throttle_time": 0,
        "error_code": code,
        "error_message": message or None,
        "resources": resources,
    }


async def create_acls(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    asked = request["creations"]
    response = await services.forwarder.forward(
        CREATE_ACLS,
        admin_pb2.CreateAclsRequest(
            context=context.for_controller("CreateAcls", _NO_TIMEOUT_MS),
            bindings=[_binding(one) for one in asked],
        ),
        api_version=context.version,
    )
    results = list(response.results) or [
        admin_pb2.AclResult(error_code=response.error_code) for _ in asked
    ]
    values = {
        "throttle_time": 0,
        "results": [
            {"error_code": one.error_code, "error_message": one.error_message or None}
            for one in results
        ],
    }
    return values


async def delete_acls(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    asked = request["filters"]
    response = await services.forwarder.forward(
        DELETE_ACLS,
        admin_pb2.DeleteAclsRequest(
            context=context.for_controller("DeleteAcls", _NO_TIMEOUT_MS),
            filters=[_filter(one) for one in asked],
        ),
        api_version=context.version,
    )
    results = list(response.results) or [
        admin_pb2.DeleteAclsResult(error_code=response.error_code) for _ in asked
    ]
    values = {
        "throttle_time": 0,
        "filter_results": [
            {
                "error_code": one.error_code,
                "error_message": one.error_message or None,
                "matching_acls": [_gone(binding) for binding in one.deleted],
            }
            for one in results
        ],
    }
    return values


def _binding(one: Message) -> admin_pb2.AclBinding:
    return admin_pb2.AclBinding(
        resource_type=one["resource_type"],
        resource_name=one["resource_name"],
        pattern_type=one["resource_pattern_type"],
        principal=one["principal"],
        host=one["host"],
        operation=one["operation"],
        permission_type=one["permission_type"],
    )


def _filter(one: Message) -> admin_pb2.AclFilter:
    return admin_pb2.AclFilter(
        resource_type=one["resource_type_filter"],
        resource_name=one["resource_name_filter"],
        pattern_type=one["pattern_type_filter"],
        principal=one["principal_filter"],
        host=one["host_filter"],
        operation=one["operation"],
        permission_type=one["permission_type"],
    )


def _gone(binding: admin_pb2.AclBinding) -> Message:
    return {
        "error_code": errors_pb2.NONE,
        "error_message": None,
        "resource_type": binding.resource_type,
        "resource_name": binding.resource_name,
        "pattern_type": binding.pattern_type,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission_type,
    }
