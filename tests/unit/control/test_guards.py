"""What is refused costs no more than it takes to say so."""

import time

import pytest

from quorate.broker.changes.authorization import GUARDS
from quorate.broker.changes.table import ALTER_PIPELINE, DELETE_TOPICS
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings, Rights
from quorate.broker.security.principal import KafkaPrincipal
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.metadata_log.image import Image
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.acls import acl, log_with
from tests.support.followers import ShownImage

TOPICS = 10_000


def test_f5_who_may_do_nothing_cannot_keep_the_controller_busy() -> None:
    authorizer = Authorizer(ShownImage(), AuthorizerSettings(enabled=True))
    mallory = Rights(authorizer, KafkaPrincipal("mallory"), "10.0.0.9")
    request = admin_pb2.DeleteTopicsRequest(names=[f"{n:0200}" for n in range(TOPICS)])
    began = time.process_time()
    permission = GUARDS[DELETE_TOPICS.rpc](DELETE_TOPICS, request, mallory, Image())
    answer = permission.complete(DELETE_TOPICS.answer())
    took_s = time.process_time() - began
    assert permission.request is None
    assert {one.error_code for one in answer.topics} == {errors_pb2.TOPIC_AUTHORIZATION_FAILED}
    assert len(answer.topics) == TOPICS
    assert took_s < 3, "not the square of their number"


PIPELINE_ACTIONS = {
    "begin": AclOperation.READ,
    "commit": AclOperation.READ,
    "renew": AclOperation.READ,
    "reset": AclOperation.READ,
    "delete": AclOperation.DELETE,
}


@pytest.mark.parametrize("action", PIPELINE_ACTIONS)
def test_f5_a_pipeline_takes_the_rights_of_a_group_of_its_name(action: str) -> None:
    """Every action has a row; one that is new, and has none, fails here."""
    known = admin_pb2.AlterPipelineRequest.DESCRIPTOR.oneofs_by_name["action"].fields
    assert {field.name for field in known} == set(PIPELINE_ACTIONS)
    request = admin_pb2.AlterPipelineRequest(name="p")
    getattr(request, action).SetInParent()

    def is_allowed(operation: AclOperation, group: str) -> bool:
        log = log_with(acl("User:alice", operation, ResourceType.GROUP, group))
        authorizer = Authorizer(ShownImage(lambda: log.image), AuthorizerSettings(enabled=True))
        alice = Rights(authorizer, KafkaPrincipal("alice"), "10.0.0.9")
        permission = GUARDS[ALTER_PIPELINE.rpc](ALTER_PIPELINE, request, alice, log.image)
        if permission.request is None:
            answer = permission.complete(ALTER_PIPELINE.answer())
            assert answer.error_code == errors_pb2.GROUP_AUTHORIZATION_FAILED
        return permission.request is not None

    needed = PIPELINE_ACTIONS[action]
    other = {AclOperation.READ: AclOperation.DELETE, AclOperation.DELETE: AclOperation.READ}[needed]
    assert is_allowed(needed, "p")
    assert not is_allowed(needed, "q")
    assert not is_allowed(other, "p")
