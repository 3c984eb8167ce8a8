"""Which function carries out a change."""

import pytest

from broker.control.changes import CREATE_ACLS, DELETE_ACLS
from broker.controller.event_queue import LeftOffice
from broker.controller.implementations import Implementations
from quorate_proto.v1 import admin_pb2, errors_pb2
from quorum.errors import SessionLost


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


@pytest.mark.parametrize("reason", [LeftOffice(), SessionLost("expired")])
async def test_e4_a_controller_whose_time_is_over_sends_the_request_elsewhere(
    reason: Exception,
) -> None:
    found = Implementations()

    async def create(_: admin_pb2.CreateAclsRequest) -> admin_pb2.CreateAclsResponse:
        raise reason

    found.add(CREATE_ACLS, create)
    answer = await found.carry_out(CREATE_ACLS, admin_pb2.CreateAclsRequest())
    assert answer.error_code == errors_pb2.NOT_CONTROLLER
