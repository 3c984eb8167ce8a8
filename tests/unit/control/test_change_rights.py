"""What right each change asks for, whoever carries it here: the Kafka wire or gRPC (F5).

A change without a row fails.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pytest
from google.protobuf.message import Message

from quorate.broker.changes.authorization import authorize
from quorate.broker.changes.table import CHANGES
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings, Rights
from quorate.broker.security.principal import ANONYMOUS, KafkaPrincipal
from quorate.common.acl_types import AclOperation, ResourceType
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.acls import Binding, acl, log_with
from tests.support.authorization_rows import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    WHO,
    Row,
    cluster,
    group,
    topic,
)
from tests.support.authorization_table import columns
from tests.support.followers import ShownImage

Op = AclOperation


class Asked(NamedTuple):
    """A change of one thing, the rights any one of which is enough, and the code without."""

    request: Message
    needs: tuple[Binding, ...]
    denied: int
    also: tuple[Binding, ...] = ()


def _one(request: Message) -> Message:
    """Return the request with one thing, whatever it is."""
    for field in request.DESCRIPTOR.fields:
        if field.is_repeated and field.message_type is not None:
            getattr(request, field.name).add()
    return request


_ALTER_CLUSTER: Final = (cluster(Op.ALTER),)
_CONFIGURE_CLUSTER: Final = (cluster(Op.ALTER_CONFIGS),)
_TOKENS_DENIED: Final = errors_pb2.DELEGATION_TOKEN_AUTHORIZATION_FAILED

ROWS: Final[Mapping[str, tuple[Asked, ...]]] = MappingProxyType(
    {
        "CreateTopics": (
            Asked(
                admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="t")]),
                (topic(Op.CREATE), cluster(Op.CREATE)),
                TOPIC_DENIED,
            ),
        ),
        "DeleteTopics": (
            Asked(admin_pb2.DeleteTopicsRequest(names=["t"]), (topic(Op.DELETE),), TOPIC_DENIED),
        ),
        "CreatePartitions": (
            Asked(
                admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.NewPartitions(name="t")]),
                (topic(Op.ALTER),),
                TOPIC_DENIED,
            ),
        ),
        "RemovePartitions": (
            Asked(
                admin_pb2.RemovePartitionsRequest(topics=[admin_pb2.TopicPartitions(topic="t")]),
                (topic(Op.ALTER),),
                TOPIC_DENIED,
                also=(topic(Op.DELETE),),
            ),
            Asked(
                admin_pb2.RemovePartitionsRequest(topics=[admin_pb2.TopicPartitions(topic="t")]),
                (topic(Op.DELETE),),
                TOPIC_DENIED,
                also=(topic(Op.ALTER),),
            ),
        ),
        "ElectLeaders": (Asked(admin_pb2.ElectLeadersRequest(), _ALTER_CLUSTER, CLUSTER_DENIED),),
        "AlterPartitionReassignments": (
            Asked(admin_pb2.AlterPartitionReassignmentsRequest(), _ALTER_CLUSTER, CLUSTER_DENIED),
        ),
        "ListPartitionReassignments": (
            Asked(
                admin_pb2.ListPartitionReassignmentsRequest(),
                (cluster(Op.DESCRIBE), cluster(Op.ALTER)),
                CLUSTER_DENIED,
            ),
        ),
        "UpdateFeatures": (
            Asked(_one(admin_pb2.UpdateFeaturesRequest()), _ALTER_CLUSTER, CLUSTER_DENIED),
        ),
        "AlterConfigs": (
            Asked(
                admin_pb2.AlterConfigsRequest(
                    replacements=[admin_pb2.ConfigReplacement(entity_type="topic", entity_name="t")]
                ),
                (topic(Op.ALTER_CONFIGS),),
                TOPIC_DENIED,
            ),
            Asked(
                admin_pb2.AlterConfigsRequest(
                    replacements=[
                        admin_pb2.ConfigReplacement(entity_type="broker", entity_name="1")
                    ]
                ),
                _CONFIGURE_CLUSTER,
                CLUSTER_DENIED,
            ),
        ),
        "IncrementalAlterConfigs": (
            Asked(
                admin_pb2.IncrementalAlterConfigsRequest(
                    changes=[admin_pb2.ConfigChange(entity_type="topic", entity_name="t")]
                ),
                (topic(Op.ALTER_CONFIGS),),
                TOPIC_DENIED,
            ),
            Asked(
                admin_pb2.IncrementalAlterConfigsRequest(
                    changes=[admin_pb2.ConfigChange(entity_type="broker", entity_name="1")]
                ),
                _CONFIGURE_CLUSTER,
                CLUSTER_DENIED,
            ),
        ),
        "CreateAcls": (Asked(_one(admin_pb2.CreateAclsRequest()), _ALTER_CLUSTER, CLUSTER_DENIED),),
        "DeleteAcls": (Asked(_one(admin_pb2.DeleteAclsRequest()), _ALTER_CLUSTER, CLUSTER_DENIED),),
        "AlterClientQuotas": (
            Asked(_one(admin_pb2.AlterClientQuotasRequest()), _CONFIGURE_CLUSTER, CLUSTER_DENIED),
        ),
        "CreateDelegationToken": (
            Asked(
                admin_pb2.CreateDelegationTokenRequest(owner="User:bob"),
                (acl(WHO, Op.CREATE_TOKENS, ResourceType.USER, "User:bob"),),
                _TOKENS_DENIED,
            ),
        ),
        "AlterUserScramCredentials": (
            Asked(
                _one(admin_pb2.AlterUserScramCredentialsRequest()), _ALTER_CLUSTER, CLUSTER_DENIED
            ),
        ),
        "AlterPipeline": (
            Asked(admin_pb2.AlterPipelineRequest(name="g"), (group(Op.READ),), GROUP_DENIED),
        ),
    }
)

OPEN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "AllocateProducerIds": "peers alone may call it: test_peer_guard.py",
        "RenewDelegationToken": "whoever shows the token's secret: the token says whose it is",
        "ExpireDelegationToken": "as RenewDelegationToken",
    }
)
"""Changes that ask for no right, and why."""

CHANGE_OF: Final = {change.rpc: change for change in CHANGES}
CELLS: Final = [
    pytest.param(rpc, asked, column, id=f"{rpc}-{number}-{column}")
    for rpc, rows in ROWS.items()
    for number, asked in enumerate(rows)
    for column in columns.entries_of(Row(0, {}, asked.needs, asked.denied, asked.also))
]


def error_codes(message: Message) -> Iterator[int]:
    """Return all error codes of an answer and of what is in it."""
    for field, value in message.ListFields():
        if field.name == "error_code":
            yield value
        elif field.message_type is not None:
            for item in value if field.is_repeated else [value]:
                yield from error_codes(item)


def test_every_change_has_a_row() -> None:
    assert set(ROWS) | set(OPEN) == set(CHANGE_OF)
    assert not set(ROWS) & set(OPEN)


@pytest.mark.parametrize(("rpc", "asked", "column"), CELLS)
def test_f5_a_change_is_allowed_by_its_right_alone(rpc: str, asked: Asked, column: str) -> None:
    row = Row(0, {}, asked.needs, asked.denied, asked.also)
    log = log_with(
        acl("User:bob", Op.ALL, ResourceType.TOPIC, "*"), *columns.entries_of(row)[column]
    )
    authorizer = Authorizer(ShownImage(lambda: log.image), AuthorizerSettings(enabled=True))
    who = ANONYMOUS if column == columns.ANONYMOUS else KafkaPrincipal("alice")
    change: Any = CHANGE_OF[rpc]
    request: Any = asked.request
    permission = authorize(change, request, Rights(authorizer, who, "h"), log.image)
    if column in columns.WITHOUT_THE_RIGHT:
        assert permission.request is None
        assert set(error_codes(permission.complete(change.answer()))) == {asked.denied}
    else:
        assert permission.request == request
