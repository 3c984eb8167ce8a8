"""Who may see whose delegation tokens (KIP-48, KIP-373)."""

import pytest

from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings
from quorate.broker.security.grpc_caller import Caller
from quorate.broker.security.principal import KafkaPrincipal
from quorate.broker.security.token_access import describing_with
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import MetadataOffset
from quorate.metadata_log.image import DelegationTokenState
from tests.support.acls import Binding, acl, log_with
from tests.support.followers import ShownImage

Op = AclOperation
TOKEN = ResourceType.DELEGATION_TOKEN
USER = ResourceType.USER


@pytest.mark.parametrize(
    ("binding", "seen"),
    [
        (acl("User:alice", Op.DESCRIBE, TOKEN, "t1"), True),
        (acl("User:alice", Op.DESCRIBE, TOKEN, "*"), True),
        (acl("User:alice", Op.DESCRIBE_TOKENS, USER, "User:bob"), True),
        (acl("User:alice", Op.DESCRIBE, TOKEN, "t2"), False),
        (acl("User:alice", Op.CREATE_TOKENS, USER, "User:bob"), False),
        (acl("User:alice", Op.DESCRIBE_TOKENS, USER, "User:carol"), False),
        (acl("User:carol", Op.DESCRIBE, TOKEN, "t1"), False),
    ],
)
def test_kip373_others_tokens_are_seen_by_right(binding: Binding, seen: bool) -> None:
    log = log_with(binding)
    authorizer = Authorizer(ShownImage(lambda: log.image), AuthorizerSettings(enabled=True))
    may = describing_with(authorizer.rights_of(Caller(KafkaPrincipal("alice"), "h")))
    token = DelegationTokenState("User:bob", "User:bob", (), 0, 1, 2, MetadataOffset(1))
    assert may("t1", token) is seen
