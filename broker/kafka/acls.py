"""DescribeAcls (29) from the image, CreateAcls (30) and DeleteAcls (31) by the controller."""

import itertools
from typing import Final

from broker.control.changes import CREATE_ACLS, DELETE_ACLS
from broker.kafka import codec
from broker.kafka.admin_context import admin_context, ask_controller
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from broker.security.described_acls import describe
from quorate_proto.v1 import admin_pb2, errors_pb2

_NO_TIMEOUT_MS: Final = 0
"""These requests name none: the default holds."""


async def describe_acls(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    answer = describe(services.authorizer, context, services.image().acls, _filter(request))
    by_resource = itertools.groupby(
        answer.bindings,
        key=lambda one: (one.resource_type, one.resource_name, one.pattern_type),
    )
    values = {
        "throttle_time": 0,
        "error_code": answer.error_code,
        "error_message": answer.error_message or None,
        "resources": [
            {
                "resource_type": resource_type,
                "resource_name": name,
                "pattern_type": pattern_type,
                "acls": [_entry(one) for one in bindings],
            }
            for (resource_type, name, pattern_type), bindings in by_resource
        ],
    }
    return [codec.encode_response("describe_acls", context.version, values)]


async def create_acls(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    asked = request["creations"]
    response = await ask_controller(
        services,
        context,
        CREATE_ACLS,
        admin_pb2.CreateAclsRequest(
            context=admin_context(context, "CreateAcls", _NO_TIMEOUT_MS),
            bindings=[_binding(one) for one in asked],
        ),
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
    return [codec.encode_response("create_acls", context.version, values)]


async def delete_acls(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    asked = request["filters"]
    response = await ask_controller(
        services,
        context,
        DELETE_ACLS,
        admin_pb2.DeleteAclsRequest(
            context=admin_context(context, "DeleteAcls", _NO_TIMEOUT_MS),
            filters=[_filter(one) for one in asked],
        ),
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
    return [codec.encode_response("delete_acls", context.version, values)]


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


def _entry(binding: admin_pb2.AclBinding) -> Message:
    return {
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation,
        "permission_type": binding.permission_type,
    }


def _gone(binding: admin_pb2.AclBinding) -> Message:
    return {
        "error_code": errors_pb2.NONE,
        "error_message": None,
        "resource_type": binding.resource_type,
        "resource_name": binding.resource_name,
        "pattern_type": binding.pattern_type,
        **_entry(binding),
    }
