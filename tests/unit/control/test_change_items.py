"""What the audit trail says each change was about: every item by name, no value of any (F5)."""

from typing import Any

import pytest

from quorate.broker.changes.table import CHANGES, Change
from quorate_proto.v1 import admin_pb2, errors_pb2

SECRET = "SECRET"
REFUSED = errors_pb2.POLICY_VIOLATION

REQUESTS: dict[str, tuple[Any, list[str]]] = {
    "CreateTopics": (
        admin_pb2.CreateTopicsRequest(
            topics=[
                admin_pb2.NewTopic(name="a", configs={"k": SECRET}),
                admin_pb2.NewTopic(name="b"),
            ]
        ),
        ["topic a", "topic b"],
    ),
    "DeleteTopics": (
        admin_pb2.DeleteTopicsRequest(names=["a"], topic_ids=[b"\1" * 16]),
        ["topic a", f"topic {'01' * 16}"],
    ),
    "CreatePartitions": (
        admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.NewPartitions(name="a")]),
        ["topic a"],
    ),
    "RemovePartitions": (
        admin_pb2.RemovePartitionsRequest(topics=[admin_pb2.TopicPartitions(topic="a")]),
        ["topic a"],
    ),
    "ElectLeaders": (
        admin_pb2.ElectLeadersRequest(
            topics=[admin_pb2.TopicPartitions(topic="a", partitions=[0, 7])]
        ),
        ["partition a-0", "partition a-7"],
    ),
    "AlterPartitionReassignments": (
        admin_pb2.AlterPartitionReassignmentsRequest(
            partitions=[admin_pb2.WantedReassignment(topic="a", partition=3)]
        ),
        ["partition a-3"],
    ),
    "UpdateFeatures": (
        admin_pb2.UpdateFeaturesRequest(updates=[admin_pb2.FeatureUpdate(name="f", level=2)]),
        ["feature f"],
    ),
    "AlterConfigs": (
        admin_pb2.AlterConfigsRequest(
            replacements=[
                admin_pb2.ConfigReplacement(
                    entity_type="topic", entity_name="a", values={"z": SECRET, "k": SECRET}
                )
            ]
        ),
        ["configuration of topic a: k, z"],
    ),
    "IncrementalAlterConfigs": (
        admin_pb2.IncrementalAlterConfigsRequest(
            changes=[
                admin_pb2.ConfigChange(
                    entity_type="broker",
                    values={"d": SECRET},
                    removed=["c"],
                    appended={"b": SECRET},
                    subtracted={"a": SECRET},
                )
            ]
        ),
        ["configuration of broker <default>: a, b, c, d"],
    ),
    "CreateAcls": (
        admin_pb2.CreateAclsRequest(
            bindings=[
                admin_pb2.AclBinding(
                    resource_type=2,
                    resource_name="a",
                    pattern_type=3,
                    principal="User:ann",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        [
            "ACL of User:ann from *: permission 3 of operation 3 on resource type 2 a (pattern 3)",
        ],
    ),
    "DeleteAcls": (
        admin_pb2.DeleteAclsRequest(filters=[admin_pb2.AclFilter(resource_type=1)]),
        [
            "whatever matches ACL of anyone from anywhere: permission 0 of operation 0 on resource "
            "type 1 any (pattern 0)"
        ],
    ),
    "AlterClientQuotas": (
        admin_pb2.AlterClientQuotasRequest(
            alterations=[
                admin_pb2.QuotaAlteration(
                    entity=[
                        admin_pb2.QuotaEntityPart(entity_type="user", name="ann"),
                        admin_pb2.QuotaEntityPart(entity_type="client-id"),
                    ],
                    changes=[admin_pb2.QuotaChange(key="producer_byte_rate", value=1)],
                )
            ]
        ),
        ["quotas of user ann, client-id <default>: producer_byte_rate"],
    ),
    "CreateDelegationToken": (
        admin_pb2.CreateDelegationTokenRequest(owner="User:ann"),
        ["delegation token of User:ann"],
    ),
    "RenewDelegationToken": (
        admin_pb2.RenewDelegationTokenRequest(hmac=SECRET.encode()),
        ["delegation token"],
    ),
    "ExpireDelegationToken": (
        admin_pb2.ExpireDelegationTokenRequest(hmac=SECRET.encode()),
        ["delegation token"],
    ),
    "AlterUserScramCredentials": (
        admin_pb2.AlterUserScramCredentialsRequest(
            deletions=[admin_pb2.ScramDeletion(user="bob")],
            upsertions=[
                admin_pb2.ScramUpsertion(
                    user="ann", salt=SECRET.encode(), salted_password=SECRET.encode()
                )
            ],
        ),
        ["SCRAM credentials of user bob", "SCRAM credentials of user ann"],
    ),
    "AlterPipeline": (
        admin_pb2.AlterPipelineRequest(
            name="lake", begin=admin_pb2.BeginPipelineRun(owner=SECRET, sink=SECRET)
        ),
        ["pipeline lake: begin"],
    ),
}

BY_NOBODY = {"ListPartitionReassignments", "AllocateProducerIds"}
"""They change nothing that anybody would ask after."""


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.rpc)
def test_f5_each_item_is_named_with_its_outcome_and_without_its_value(
    change: Change[Any, Any],
) -> None:
    if change.rpc in BY_NOBODY:
        assert not list(change.items.audited(change.request(), change.answer()))
        return
    request, named = REQUESTS[change.rpc]
    items = list(change.items.audited(request, change.failed(request, REFUSED, "")))
    assert [item.resource for item in items] == named
    assert {item.error_code for item in items} == {REFUSED}
    assert SECRET not in str(items)


def test_f5_what_a_filter_deleted_is_named_one_by_one() -> None:
    (change,) = (one for one in CHANGES if one.rpc == "DeleteAcls")
    gone = [admin_pb2.AclBinding(principal=f"User:{name}", host="*") for name in ("ann", "bob")]
    answer = admin_pb2.DeleteAclsResponse(results=[admin_pb2.DeleteAclsResult(deleted=gone)])
    request = admin_pb2.DeleteAclsRequest(filters=[admin_pb2.AclFilter()])
    assert [item.resource.split(" from ")[0] for item in change.items.audited(request, answer)] == [
        "ACL of User:ann",
        "ACL of User:bob",
    ]


def test_f5_a_token_is_named_by_its_id_and_never_by_its_secret() -> None:
    (change,) = (one for one in CHANGES if one.rpc == "CreateDelegationToken")
    token = admin_pb2.DelegationToken(token_id="t1", owner="User:ann")
    answer = admin_pb2.CreateDelegationTokenResponse(token=token, hmac=SECRET.encode())
    (item,) = change.items.audited(admin_pb2.CreateDelegationTokenRequest(), answer)
    assert item == ("delegation token t1 of User:ann", errors_pb2.NONE)


def test_signs_of_life_of_a_pipeline_are_not_told_one_by_one() -> None:
    (change,) = (one for one in CHANGES if one.rpc == "AlterPipeline")
    alive = admin_pb2.AlterPipelineRequest(
        name="lake", renew=admin_pb2.RenewPipelineRun(run_epoch=1, lease_ms=1)
    )
    over = admin_pb2.AlterPipelineRequest(
        name="lake", renew=admin_pb2.RenewPipelineRun(run_epoch=1)
    )
    assert not list(change.items.audited(alive, change.answer()))
    assert list(change.items.audited(over, change.answer())) == [("pipeline lake: renew", 0)]
    refused = change.failed(alive, REFUSED, "")
    assert list(change.items.audited(alive, refused)) == [("pipeline lake: renew", REFUSED)]
