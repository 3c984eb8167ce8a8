"""What a change was about, item by item, for the audit trail: names and keys, never values.

Each function takes a request and its answer and gives (resource, error code) per item.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quorate_proto.v1 import admin_pb2


class Item(NamedTuple):
    """One resource, and what became of the change to it."""

    resource: str
    error_code: int


def _topics(results: Iterable[admin_pb2.TopicResult]) -> Iterator[Item]:
    return (Item(f"topic {one.name or one.topic_id.hex()}", one.error_code) for one in results)


def create_topics(
    _request: admin_pb2.CreateTopicsRequest, answer: admin_pb2.CreateTopicsResponse
) -> Iterator[Item]:
    return _topics(answer.topics)


def delete_topics(
    _request: admin_pb2.DeleteTopicsRequest, answer: admin_pb2.DeleteTopicsResponse
) -> Iterator[Item]:
    return _topics(answer.topics)


def create_partitions(
    _request: admin_pb2.CreatePartitionsRequest, answer: admin_pb2.CreatePartitionsResponse
) -> Iterator[Item]:
    return _topics(answer.topics)


def remove_partitions(
    _request: admin_pb2.RemovePartitionsRequest, answer: admin_pb2.RemovePartitionsResponse
) -> Iterator[Item]:
    return _topics(answer.topics)


def elect_leaders(
    _request: admin_pb2.ElectLeadersRequest, answer: admin_pb2.ElectLeadersResponse
) -> Iterator[Item]:
    return _partitions(answer.partitions)


def alter_partition_reassignments(
    _request: admin_pb2.AlterPartitionReassignmentsRequest,
    answer: admin_pb2.AlterPartitionReassignmentsResponse,
) -> Iterator[Item]:
    return _partitions(answer.partitions)


def _partitions(results: Iterable[admin_pb2.PartitionResult]) -> Iterator[Item]:
    return (Item(f"partition {one.topic}-{one.partition}", one.error_code) for one in results)


def nothing(_request: object, _answer: object) -> Iterator[Item]:
    """Nobody's state is changed by it, or only the asker's own bookkeeping."""
    return iter(())


def update_features(
    _request: admin_pb2.UpdateFeaturesRequest, answer: admin_pb2.UpdateFeaturesResponse
) -> Iterator[Item]:
    return (Item(f"feature {one.name}", one.error_code) for one in answer.results)


def alter_configs(
    request: admin_pb2.AlterConfigsRequest, answer: admin_pb2.AlterConfigsResponse
) -> Iterator[Item]:
    keys = {(one.entity_type, one.entity_name): sorted(one.values) for one in request.replacements}
    return _configs(keys, answer.results)


def incremental_alter_configs(
    request: admin_pb2.IncrementalAlterConfigsRequest,
    answer: admin_pb2.IncrementalAlterConfigsResponse,
) -> Iterator[Item]:
    keys = {
        (one.entity_type, one.entity_name): sorted(
            {*one.values, *one.removed, *one.appended, *one.subtracted}
        )
        for one in request.changes
    }
    return _configs(keys, answer.results)


def _configs(
    keys: dict[tuple[str, str], list[str]], results: Iterable[admin_pb2.ConfigResult]
) -> Iterator[Item]:
    for one in results:
        named = keys.get((one.entity_type, one.entity_name), [])
        entity = f"{one.entity_type} {one.entity_name or '<default>'}"
        yield Item(f"configuration of {entity}: {', '.join(named)}", one.error_code)


def create_acls(
    request: admin_pb2.CreateAclsRequest, answer: admin_pb2.CreateAclsResponse
) -> Iterator[Item]:
    for binding, one in zip(request.bindings, answer.results, strict=False):
        yield Item(_acl(binding), one.error_code)


def delete_acls(
    request: admin_pb2.DeleteAclsRequest, answer: admin_pb2.DeleteAclsResponse
) -> Iterator[Item]:
    """What is gone, or the filter that nothing matched."""
    for acl_filter, one in zip(request.filters, answer.results, strict=False):
        for binding in one.deleted:
            yield Item(_acl(binding), one.error_code)
        if not one.deleted:
            yield Item(f"whatever matches {_acl(acl_filter)}", one.error_code)


def _acl(acl: admin_pb2.AclBinding | admin_pb2.AclFilter) -> str:
    """Kafka's numbers, as on the wire: their names are for who reads, not for who keeps."""
    return (
        f"ACL of {acl.principal or 'anyone'} from {acl.host or 'anywhere'}: "
        f"permission {acl.permission_type} of operation {acl.operation} on resource type "
        f"{acl.resource_type} {acl.resource_name or 'any'} (pattern {acl.pattern_type})"
    )


def alter_client_quotas(
    request: admin_pb2.AlterClientQuotasRequest, answer: admin_pb2.AlterClientQuotasResponse
) -> Iterator[Item]:
    for alteration, one in zip(request.alterations, answer.results, strict=False):
        entity = ", ".join(
            f"{part.entity_type} {part.name if part.HasField('name') else '<default>'}"
            for part in alteration.entity
        )
        keys = ", ".join(sorted(change.key for change in alteration.changes))
        yield Item(f"quotas of {entity}: {keys}", one.error_code)


def create_delegation_token(
    request: admin_pb2.CreateDelegationTokenRequest, answer: admin_pb2.CreateDelegationTokenResponse
) -> Iterator[Item]:
    owner = answer.token.owner or request.owner or request.context.principal_name
    name = f" {answer.token.token_id}" if answer.token.token_id else ""
    yield Item(f"delegation token{name} of {owner}", answer.error_code)


def delegation_token(
    _request: object,
    answer: admin_pb2.RenewDelegationTokenResponse | admin_pb2.ExpireDelegationTokenResponse,
) -> Iterator[Item]:
    """Which one stands beside the note in the metadata log: the request has its secret only."""
    yield Item("delegation token", answer.error_code)


def alter_user_scram_credentials(
    _request: admin_pb2.AlterUserScramCredentialsRequest,
    answer: admin_pb2.AlterUserScramCredentialsResponse,
) -> Iterator[Item]:
    return (Item(f"SCRAM credentials of user {one.user}", one.error_code) for one in answer.results)


def alter_pipeline(
    request: admin_pb2.AlterPipelineRequest, answer: admin_pb2.AlterPipelineResponse
) -> Iterator[Item]:
    """A sign of life, every few seconds, is not worth a line; that a run was refused one is."""
    action = request.WhichOneof("action") or "nothing"
    if action == "renew" and request.renew.lease_ms and not answer.error_code:
        return
    yield Item(f"pipeline {request.name}: {action}", answer.error_code)
