"""The path of a command: which handler it comes to, and what it is told where there is none."""

import pytest

from quorate.broker.changes.audit_log import keep_no_entries
from quorate.broker.changes.table import CREATE_ACLS, DELETE_ACLS
from quorate.broker.controller.command_pipeline import CommandPipeline
from quorate.broker.controller.tenure import Requester, TenureEnded
from quorate.common.types import ControllerEpoch
from quorate.quorum.quorum_errors import QuorumUnavailable, SessionLost
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.acls import NO_AUTHORIZER
from tests.support.followers import ShownImage

ALICE = admin_pb2.RequestContext(principal_name="User:alice", client_id="a")


def pipeline() -> CommandPipeline:
    return CommandPipeline(
        controller_epoch=ControllerEpoch(1),
        images=ShownImage(),
        authorizer=NO_AUTHORIZER,
        audit_log=keep_no_entries,
    )


async def test_a_change_goes_to_its_handler_and_one_without_is_declined_item_by_item() -> None:
    commands = pipeline()
    requesters = []

    async def create(
        request: admin_pb2.CreateAclsRequest, requester: Requester
    ) -> admin_pb2.CreateAclsResponse:
        requesters.append(requester.note.principal)
        return admin_pb2.CreateAclsResponse(results=[admin_pb2.AclResult()] * len(request.bindings))

    commands.register(CREATE_ACLS, create)
    bindings = [admin_pb2.AclBinding(), admin_pb2.AclBinding()]
    done = await commands._handle(
        CREATE_ACLS,
        admin_pb2.CreateAclsRequest(bindings=bindings),
        Requester.of(ALICE, CREATE_ACLS.rpc),
    )
    assert [one.error_code for one in done.results] == [0, 0]
    assert requesters == ["User:alice"], "who asked is an argument"
    filters = [admin_pb2.AclFilter()] * 3
    unserved = await commands._handle(
        DELETE_ACLS,
        admin_pb2.DeleteAclsRequest(filters=filters),
        Requester.of(ALICE, DELETE_ACLS.rpc),
    )
    assert [one.error_code for one in unserved.results] == [errors_pb2.UNSUPPORTED_VERSION] * 3
    assert "DeleteAcls" in unserved.results[0].error_message


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (TenureEnded(), errors_pb2.NOT_CONTROLLER),
        (SessionLost("expired"), errors_pb2.NOT_CONTROLLER),
        (QuorumUnavailable("no leader"), errors_pb2.REQUEST_TIMED_OUT),
    ],
)
async def test_e4_what_ends_a_request_as_a_whole_is_an_answer(reason: Exception, code: int) -> None:
    """A controller whose time is over sends the request elsewhere."""
    commands = pipeline()

    async def create(
        _request: admin_pb2.CreateAclsRequest, _requester: Requester
    ) -> admin_pb2.CreateAclsResponse:
        raise reason

    commands.register(CREATE_ACLS, create)
    request = admin_pb2.CreateAclsRequest(bindings=[admin_pb2.AclBinding()])
    answer = await commands._handle(CREATE_ACLS, request, Requester.of(ALICE, CREATE_ACLS.rpc))
    told = [one.error_code for one in answer.results] or [answer.error_code]
    assert told == [code]
