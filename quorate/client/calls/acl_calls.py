"""Lists, adds and removes access control entries."""

from collections.abc import Sequence

from quorate.client.call_steps import Steps, ToAnyBroker, ToController
from quorate.client.errors import RequestFailed
from quorate.client.results import AclBinding, AclDeletion, AclFilter, AclResult
from quorate_proto.v1 import admin_pb2


def create_acls(bindings: Sequence[AclBinding]) -> Steps[list[AclResult]]:
    """Add entries independently of each other; return one result per entry, in order.

    An entry that exists already is kept.
    """
    request = admin_pb2.CreateAclsRequest(bindings=[one.to_proto() for one in bindings])
    answer: admin_pb2.CreateAclsResponse = yield ToController(
        "CreateAcls", request, "adding access control entries"
    )
    return [
        AclResult.from_proto(binding, result)
        for binding, result in zip(bindings, answer.results, strict=True)
    ]


def delete_acls(filters: Sequence[AclFilter]) -> Steps[list[AclDeletion]]:
    """Remove the entries that match each filter; return one result per filter, in order."""
    request = admin_pb2.DeleteAclsRequest(filters=[one.to_proto() for one in filters])
    answer: admin_pb2.DeleteAclsResponse = yield ToController(
        "DeleteAcls", request, "removing access control entries"
    )
    return [AclDeletion.from_proto(result) for result in answer.results]


def describe_acls(wanted: AclFilter | None = None) -> Steps[list[AclBinding]]:
    """Return the entries that match ``wanted``, by default all, from the first broker that answers.

    Raises:
        RequestFailed: SECURITY_DISABLED, or the client is not authorized.
    """
    request = admin_pb2.DescribeAclsRequest(filter=(wanted or AclFilter()).to_proto())
    answer: admin_pb2.DescribeAclsResponse = yield ToAnyBroker("DescribeAcls", request)
    if answer.error_code:
        raise RequestFailed(answer.error_code, answer.error_message)
    return [AclBinding.from_proto(one) for one in answer.bindings]
