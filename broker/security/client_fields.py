"""Lists what a client may say over gRPC: the fields that are allowed, for each message of its port.

A field that is not listed is cleared before any service sees the request, and so is every field
that this version does not know: the request may be forwarded to a broker that does. So a field that
is added for brokers alone is not a client's to set, unless somebody lists it here. A test fails as
long as a field is neither listed nor named as one of brokers.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_PACKAGE: Final = "quorate.v1."

CLIENT_FIELDS: Final[Mapping[str, str]] = {
    "CreateTopicsRequest": "context topics validate_only",
    "RequestContext": "client_id timeout_ms",
    "NewTopic": "name num_partitions replication_factor assignments configs",
    "ReplicaAssignment": "partition broker_ids",
    "DeleteTopicsRequest": "context names topic_ids",
    "CreatePartitionsRequest": "context topics validate_only",
    "NewPartitions": "name count assignments",
    "Replicas": "broker_ids",
    "RemovePartitionsRequest": "context topics validate_only",
    "TopicPartitions": "topic partitions",
    "ElectLeadersRequest": "context election_type topics all_partitions",
    "AlterPartitionReassignmentsRequest": "context partitions allow_replication_factor_change",
    "WantedReassignment": "topic partition replicas cancel",
    "ListPartitionReassignmentsRequest": "context all partitions",
    "PartitionRef": "topic partition",
    "IncrementalAlterConfigsRequest": "context changes validate_only",
    "ConfigChange": "entity_type entity_name values removed appended subtracted",
    "ClusterStatusRequest": "with_metrics",
    "ResignControllerRequest": "context",
    "MoveControllerRequest": "context broker_id",
    "UpdateFeaturesRequest": "context updates validate_only",
    "FeatureUpdate": "name level allow_downgrade",
    "AlterConfigsRequest": "context replacements validate_only",
    "ConfigReplacement": "entity_type entity_name values",
    "CreateAclsRequest": "context bindings",
    "AclBinding": "resource_type resource_name pattern_type "
    "principal host operation permission_type",
    "DeleteAclsRequest": "context filters",
    "AclFilter": "resource_type resource_name pattern_type "
    "principal host operation permission_type",
    "AlterClientQuotasRequest": "context alterations validate_only",
    "QuotaAlteration": "entity changes",
    "QuotaEntityPart": "entity_type name",
    "QuotaChange": "key value",
    "CreateDelegationTokenRequest": "context owner renewers max_lifetime_ms",
    "RenewDelegationTokenRequest": "context hmac renew_period_ms",
    "ExpireDelegationTokenRequest": "context hmac expiry_time_period_ms",
    "AlterUserScramCredentialsRequest": "context deletions upsertions",
    "ScramDeletion": "user mechanism",
    "ScramUpsertion": "user mechanism iterations salt salted_password",
    "AlterPipelineRequest": "context name begin commit renew reset delete",
    "BeginPipelineRun": "owner lease_ms sink take_over",
    "CommitPipeline": "run_epoch commit lease_ms steps rows rewound",
    "PipelineStep": "topic topic_id partition from to",
    "RenewPipelineRun": "run_epoch lease_ms",
    "ResetPipeline": "topics expected_version",
    "PipelineTopic": "topic topic_id offsets",
    "DeletePipeline": "",
    "DescribePipelinesRequest": "context names",
    "DescribeConfigsRequest": "context entities include_synonyms include_documentation",
    "ConfigEntity": "entity_type entity_name keys",
    "ListConfigEntitiesRequest": "context entity_type",
    "DescribeAclsRequest": "context filter",
    "DescribeClientQuotasRequest": "context filters strict",
    "QuotaFilter": "entity_type match_type match",
    "DescribeDelegationTokensRequest": "context owners",
    "DescribeUserScramCredentialsRequest": "context users",
    "ListTransactionsRequest": "context transactional_ids producer_ids states open_for_ms",
    "DescribeProducersRequest": "context topic partitions with_open_transaction",
    "AbortTransactionRequest": "context transactional_id topic partition start_offset",
    "WatchRequest": (
        "from_offset record_kinds from_oldest linearizable metadata_version_max heartbeat_max_ms"
    ),
    "MetadataOffsetsRequest": "record_types latest_only",
    "MetadataChangesRequest": "start_offset end_offset record_types",
    "CommitOffsetsRequest": "group_id offsets may_go_back validate_only part",
    "GroupOffset": "topic topic_id partition offset",
    "PartOfRead": "read_id number count",
    "DescribeTopicsRequest": "topics all",
    "ListOffsetsRequest": "queries isolation_level",
    "OffsetQuery": "topic partition timestamp_ms",
    "RangeReadRequest": "topic topic_id partition "
    "start_offset end_offset max_frame_bytes isolation_level current_leader_epoch from_follower "
    "offsets_only",
    "InitProducerIdRequest": "",
    "RangeWriteRequest": "request_id timeout_ms partitions",
    "WrittenPartition": "topic topic_id partition records_size",
}
"""The fields of each message that a client may set."""

BROKER_FIELDS: Final[Mapping[str, str]] = {
    "RequestContext": "principal_name client_host forwarded_by api_name controller_epoch "
    "token_authenticated accept_over_quota",
}
"""The fields that only brokers may set. They are cleared because they are not listed above; they
are named so that none is forgotten.
"""


def clear_what_clients_may_not_say(request: Any) -> None:  # noqa: ANN401 - any message
    """Clear every field of the request, and of the messages in it, that is not a client's to set.

    A message whose fields are all allowed costs nothing but a look at its unknown fields.
    """
    request.DiscardUnknownFields()
    clear = _clearing(request.DESCRIPTOR)
    if clear is not None:
        clear(request)


_Clear = Callable[[Any], None]


@cache
def _clearing(kind: Descriptor) -> _Clear | None:
    """Return what clears the fields of such a message, or None if every field is allowed."""
    if not _has_others(kind, frozenset()):
        return None
    allowed = allowed_fields(kind)
    forbidden = [field.name for field in kind.fields if field.name not in allowed]
    nested = [
        field
        for field in kind.fields
        if field.name in allowed
        and _message_of(field) is not None
        and _has_others(_message_of(field), frozenset())
    ]

    def clear(message: Any) -> None:  # noqa: ANN401 - any message
        for name in forbidden:
            message.ClearField(name)
        for field in nested:
            if field.is_repeated:
                for one in getattr(message, field.name):
                    clear_what_clients_may_not_say(one)
            elif message.HasField(field.name):
                clear_what_clients_may_not_say(getattr(message, field.name))

    return clear


def allowed_fields(kind: Descriptor) -> frozenset[str]:
    """Return the fields of such a message that a client may set."""
    return frozenset(CLIENT_FIELDS.get(kind.full_name.removeprefix(_PACKAGE), "").split())


def _has_others(kind: Descriptor | None, above: frozenset[str]) -> bool:
    """Return whether a field of such a message, or below it, is not allowed."""
    if kind is None or kind.full_name in above:
        return False
    allowed = allowed_fields(kind)
    return any(
        field.name not in allowed or _has_others(_message_of(field), above | {kind.full_name})
        for field in kind.fields
    )


def _message_of(field: FieldDescriptor) -> Descriptor | None:
    """Return the message in a field. Entries of maps have no fields of ours."""
    kind = field.message_type
    return None if kind is None or kind.GetOptions().map_entry else kind
