"""Access control entries at a controller: written, and obeyed for the original principal."""

from collections.abc import AsyncIterator

import pytest

from quorate.broker.changes.table import CREATE_ACLS, CREATE_TOPICS, DELETE_ACLS, DELETE_TOPICS
from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.metadata_log.acls import bindings
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.acls import acl
from tests.unit.controller.cluster import Cluster
from tests.unit.controller.test_acls import binding, wanted


def asked_by(principal: str) -> admin_pb2.RequestContext:
    return admin_pb2.RequestContext(
        principal_name=principal, client_host="10.0.0.1", timeout_ms=5_000, forwarded_by=2
    )


ROOT = asked_by("User:root")
ALICE = asked_by("User:alice")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """With an authorizer, and one super user; broker 1 is the controller."""
    cluster = Cluster(**{"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root"})
    await cluster.start_brokers(1, 2)
    yield cluster
    await cluster.stop()


def creation(*names: str, context: admin_pb2.RequestContext) -> admin_pb2.CreateTopicsRequest:
    return admin_pb2.CreateTopicsRequest(
        context=context,
        topics=[
            admin_pb2.NewTopic(name=name, num_partitions=1, replication_factor=1) for name in names
        ],
    )


async def add(cluster: Cluster, *new: admin_pb2.AclBinding) -> None:
    request = admin_pb2.CreateAclsRequest(context=ROOT, bindings=new)
    answer = await cluster.active.perform(CREATE_ACLS, request)
    assert [one.error_code for one in answer.results] == [0] * len(new)


async def test_f3_entries_are_written_and_removed_item_by_item(cluster: Cluster) -> None:
    request = admin_pb2.CreateAclsRequest(
        context=ROOT, bindings=[binding(), binding(resource_type=99), binding(host="1.1.1.1")]
    )
    answer = await cluster.active.perform(CREATE_ACLS, request)
    assert [one.error_code for one in answer.results] == [0, errors_pb2.INVALID_REQUEST, 0]
    assert len(list(bindings(cluster.image.acls))) == 2
    removal = admin_pb2.DeleteAclsRequest(
        context=ROOT, filters=[wanted(host="1.1.1.1"), wanted(operation=0), wanted()]
    )
    gone = await cluster.active.perform(DELETE_ACLS, removal)
    assert [len(one.deleted) for one in gone.results] == [1, 0, 2]
    assert gone.results[1].error_code == errors_pb2.INVALID_REQUEST
    assert not cluster.image.acls


async def test_f5_the_original_principals_rights_count_not_the_forwarders(
    cluster: Cluster,
) -> None:
    refused = await cluster.active.perform(CREATE_TOPICS, creation("a", context=ALICE))
    (result,) = refused.topics
    assert result.error_code == errors_pb2.TOPIC_AUTHORIZATION_FAILED
    assert "User:alice from 10.0.0.1 is not allowed to CREATE TOPIC 'a'" in result.error_message
    assert not cluster.image.topics
    await add(cluster, binding(resource_name="a", operation=5))
    made = await cluster.active.perform(CREATE_TOPICS, creation("a", context=ALICE))
    assert made.topics[0].error_code == 0
    assert set(cluster.image.topics) == {"a"}


async def test_f5_what_is_refused_never_stops_its_siblings_and_order_is_kept(
    cluster: Cluster,
) -> None:
    await add(
        cluster,
        binding(resource_name="mine", pattern_type=4, operation=5),
        binding(resource_name="mine", pattern_type=4, operation=10),
    )
    request = creation("other1", "mine1", "other2", "mine2", context=ALICE)
    answer = await cluster.active.perform(CREATE_TOPICS, request)
    denied = errors_pb2.TOPIC_AUTHORIZATION_FAILED
    assert [(one.name, one.error_code) for one in answer.topics] == [
        ("other1", denied),
        ("mine1", 0),
        ("other2", denied),
        ("mine2", 0),
    ]
    assert answer.topics[1].num_partitions == 1
    assert set(cluster.image.topics) == {"mine1", "mine2"}


async def test_kip525_what_a_topic_became_is_shown_to_who_may_see_configurations(
    cluster: Cluster,
) -> None:
    await add(cluster, binding(resource_name="a", operation=5))
    made = await cluster.active.perform(CREATE_TOPICS, creation("a", context=ALICE))
    (topic,) = made.topics
    assert (topic.error_code, topic.num_partitions, topic.replication_factor) == (0, -1, -1)
    assert not topic.configs


async def test_f5_deletion_by_id_hides_the_name_of_what_may_not_be_seen(cluster: Cluster) -> None:
    made = await cluster.active.perform(CREATE_TOPICS, creation("a", "b", context=ROOT))
    ids = [one.topic_id for one in made.topics]
    await add(cluster, binding(resource_name="b", operation=6))
    request = admin_pb2.DeleteTopicsRequest(
        context=ALICE, names=["a"], topic_ids=[*ids, b"unknown id 00000"]
    )
    answer = await cluster.active.perform(DELETE_TOPICS, request)
    denied = errors_pb2.TOPIC_AUTHORIZATION_FAILED
    assert [(one.name, one.topic_id, one.error_code) for one in answer.topics] == [
        ("a", b"", denied),
        ("", ids[0], denied),
        ("b", ids[1], 0),
        ("", b"unknown id 00000", errors_pb2.UNKNOWN_TOPIC_ID),
    ]
    assert "a" not in answer.topics[1].error_message.split()
    assert set(cluster.image.topics) == {"a"}


async def test_entries_mean_nothing_without_an_authorizer() -> None:
    cluster = Cluster()
    await cluster.start_brokers(1)
    try:
        creating = admin_pb2.CreateAclsRequest(context=ROOT, bindings=[binding()])
        created = await cluster.active.perform(CREATE_ACLS, creating)
        deleting = admin_pb2.DeleteAclsRequest(context=ROOT, filters=[wanted()])
        deleted = await cluster.active.perform(DELETE_ACLS, deleting)
        assert created.results[0].error_code == errors_pb2.SECURITY_DISABLED
        assert deleted.results[0].error_code == errors_pb2.SECURITY_DISABLED
        assert "authorizer.class.name" in created.results[0].error_message
        assert not cluster.image.acls
        made = await cluster.active.perform(CREATE_TOPICS, creation("a", context=ALICE))
        assert made.topics[0].error_code == 0
    finally:
        await cluster.stop()


async def test_a_direct_request_without_a_principal_is_anonymous(cluster: Cluster) -> None:
    nobody = admin_pb2.RequestContext(timeout_ms=5_000, forwarded_by=-1)
    refused = await cluster.active.perform(CREATE_TOPICS, creation("a", context=nobody))
    assert "User:ANONYMOUS" in refused.topics[0].error_message
    await add(cluster, binding(principal="User:ANONYMOUS", operation=5, resource_name="a"))
    made = await cluster.active.perform(CREATE_TOPICS, creation("a", context=nobody))
    assert made.topics[0].error_code == 0


def test_helpers_agree() -> None:
    pattern, entry = acl("User:alice", AclOperation.READ, ResourceType.TOPIC, "orders")
    one = binding()
    assert (one.resource_type, one.operation) == (pattern.resource_type, entry.operation)
