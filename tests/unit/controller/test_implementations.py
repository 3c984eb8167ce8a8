"""Which function carries out a change."""

from broker.control.changes import CREATE_ACLS, DELETE_ACLS
from broker.controller.implementations import Implementations
from quorate_proto.v1 import admin_pb2, errors_pb2


async def test_a_change_goes_to_its_function_and_one_without_is_declined_item_by_item() -> None:
    found = Implementations()

    async def create(request: admin_pb2.CreateAclsRequest) -> admin_pb2.CreateAclsResponse:
        return admin_pb2.CreateAclsResponse(results=[admin_pb2.AclResult()] * len(request.bindings))

    found.add(CREATE_ACLS, create)
    bindings = [admin_pb2.AclBinding(), admin_pb2.AclBinding()]
    done = await found.carry_out(CREATE_ACLS, admin_pb2.CreateAclsRequest(bindings=bindings))
    assert [one.error_code for one in done.results] == [0, 0]
    filters = [admin_pb2.AclFilter()] * 3
    unserved = await found.carry_out(DELETE_ACLS, admin_pb2.DeleteAclsRequest(filters=filters))
    assert [one.error_code for one in unserved.results] == [errors_pb2.UNSUPPORTED_VERSION] * 3
    assert "DeleteAcls" in unserved.results[0].error_message
