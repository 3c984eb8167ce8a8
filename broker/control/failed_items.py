"""Answers to requests that failed as a whole: each item is named with the code and the reason."""

from quorate_proto.v1 import admin_pb2


def _topic(
    code: int, message: str, *, name: str = "", topic_id: bytes = b""
) -> admin_pb2.TopicResult:
    return admin_pb2.TopicResult(
        name=name, topic_id=topic_id, error_code=code, error_message=message
    )


def create_topics(
    request: admin_pb2.CreateTopicsRequest, code: int, message: str
) -> admin_pb2.CreateTopicsResponse:
    topics = [_topic(code, message, name=topic.name) for topic in request.topics]
    return admin_pb2.CreateTopicsResponse(topics=topics)


def delete_topics(
    request: admin_pb2.DeleteTopicsRequest, code: int, message: str
) -> admin_pb2.DeleteTopicsResponse:
    by_name = [_topic(code, message, name=name) for name in request.names]
    by_id = [_topic(code, message, topic_id=one) for one in request.topic_ids]
    return admin_pb2.DeleteTopicsResponse(topics=by_name + by_id)


def create_partitions(
    request: admin_pb2.CreatePartitionsRequest, code: int, message: str
) -> admin_pb2.CreatePartitionsResponse:
    topics = [_topic(code, message, name=topic.name) for topic in request.topics]
    return admin_pb2.CreatePartitionsResponse(topics=topics)


def remove_partitions(
    request: admin_pb2.RemovePartitionsRequest, code: int, message: str
) -> admin_pb2.RemovePartitionsResponse:
    topics = [_topic(code, message, name=topic.topic) for topic in request.topics]
    return admin_pb2.RemovePartitionsResponse(topics=topics)


def elect_leaders(
    request: admin_pb2.ElectLeadersRequest, code: int, message: str
) -> admin_pb2.ElectLeadersResponse:
    """The request as a whole fails too: it may have asked for all partitions, and named none."""
    return admin_pb2.ElectLeadersResponse(
        error_code=code,
        partitions=[
            _partition(code, message, topic.topic, number)
            for topic in request.topics
            for number in topic.partitions
        ],
    )


def alter_partition_reassignments(
    request: admin_pb2.AlterPartitionReassignmentsRequest, code: int, message: str
) -> admin_pb2.AlterPartitionReassignmentsResponse:
    return admin_pb2.AlterPartitionReassignmentsResponse(
        error_code=code,
        partitions=[
            _partition(code, message, one.topic, one.partition) for one in request.partitions
        ],
    )


def _partition(code: int, message: str, topic: str, number: int) -> admin_pb2.PartitionResult:
    return admin_pb2.PartitionResult(
        topic=topic, partition=number, error_code=code, error_message=message
    )


def list_partition_reassignments(
    _request: admin_pb2.ListPartitionReassignmentsRequest, code: int, _message: str
) -> admin_pb2.ListPartitionReassignmentsResponse:
    return admin_pb2.ListPartitionReassignmentsResponse(error_code=code)


def update_features(
    request: admin_pb2.UpdateFeaturesRequest, code: int, message: str
) -> admin_pb2.UpdateFeaturesResponse:
    results = [
        admin_pb2.FeatureResult(name=one.name, error_code=code, error_message=message)
        for one in request.updates
    ]
    return admin_pb2.UpdateFeaturesResponse(results=results)


def allocate_producer_ids(
    _request: admin_pb2.AllocateProducerIdsRequest, code: int, _message: str
) -> admin_pb2.AllocateProducerIdsResponse:
    return admin_pb2.AllocateProducerIdsResponse(error_code=code)


def alter_configs(
    request: admin_pb2.AlterConfigsRequest, code: int, message: str
) -> admin_pb2.AlterConfigsResponse:
    results = [
        _config(code, message, one.entity_type, one.entity_name) for one in request.replacements
    ]
    return admin_pb2.AlterConfigsResponse(results=results)


def incremental_alter_configs(
    request: admin_pb2.IncrementalAlterConfigsRequest, code: int, message: str
) -> admin_pb2.IncrementalAlterConfigsResponse:
    results = [_config(code, message, one.entity_type, one.entity_name) for one in request.changes]
    return admin_pb2.IncrementalAlterConfigsResponse(results=results)


def _config(code: int, message: str, entity_type: str, entity_name: str) -> admin_pb2.ConfigResult:
    return admin_pb2.ConfigResult(
        entity_type=entity_type, entity_name=entity_name, error_code=code, error_message=message
    )


def create_acls(
    request: admin_pb2.CreateAclsRequest, code: int, message: str
) -> admin_pb2.CreateAclsResponse:
    results = [
        admin_pb2.AclResult(error_code=code, error_message=message) for _ in request.bindings
    ]
    return admin_pb2.CreateAclsResponse(results=results)


def delete_acls(
    request: admin_pb2.DeleteAclsRequest, code: int, message: str
) -> admin_pb2.DeleteAclsResponse:
    results = [
        admin_pb2.DeleteAclsResult(error_code=code, error_message=message) for _ in request.filters
    ]
    return admin_pb2.DeleteAclsResponse(results=results)


def alter_client_quotas(
    request: admin_pb2.AlterClientQuotasRequest, code: int, message: str
) -> admin_pb2.AlterClientQuotasResponse:
    results = [
        admin_pb2.QuotaResult(entity=one.entity, error_code=code, error_message=message)
        for one in request.alterations
    ]
    return admin_pb2.AlterClientQuotasResponse(results=results)


def create_delegation_token(
    _request: admin_pb2.CreateDelegationTokenRequest, code: int, message: str
) -> admin_pb2.CreateDelegationTokenResponse:
    return admin_pb2.CreateDelegationTokenResponse(error_code=code, error_message=message)


def renew_delegation_token(
    _request: admin_pb2.RenewDelegationTokenRequest, code: int, message: str
) -> admin_pb2.RenewDelegationTokenResponse:
    return admin_pb2.RenewDelegationTokenResponse(error_code=code, error_message=message)


def expire_delegation_token(
    _request: admin_pb2.ExpireDelegationTokenRequest, code: int, message: str
) -> admin_pb2.ExpireDelegationTokenResponse:
    return admin_pb2.ExpireDelegationTokenResponse(error_code=code, error_message=message)


def alter_user_scram_credentials(
    request: admin_pb2.AlterUserScramCredentialsRequest, code: int, message: str
) -> admin_pb2.AlterUserScramCredentialsResponse:
    users = dict.fromkeys(
        [one.user for one in request.deletions] + [one.user for one in request.upsertions]
    )
    results = [
        admin_pb2.ScramResult(user=user, error_code=code, error_message=message) for user in users
    ]
    return admin_pb2.AlterUserScramCredentialsResponse(results=results)


def alter_pipeline(
    _request: admin_pb2.AlterPipelineRequest, code: int, message: str
) -> admin_pb2.AlterPipelineResponse:
    return admin_pb2.AlterPipelineResponse(error_code=code, error_message=message)
