"""The items of each kind of request: one result per item, and the item's name in the audit log.

A request asks for changes of several topics, partitions, entities or users, and its answer has a
result for each. If the request fails as a whole, each item gets the code and the reason. The audit
log has a line for each item, with names and keys, never values (F5).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from quorate_proto.v1 import admin_pb2


class AuditedItem(NamedTuple):
    """One resource, and the outcome of its change."""

    resource: str
    error_code: int


class RequestItems(ABC):
    """The items of one kind of request."""

    results: ClassVar[str]
    """The field of the answer that has one result per item."""

    @abstractmethod
    def unanswered(self, request: Any) -> Sequence[Any]:  # noqa: ANN401 - the change's
        """Return one result per item of ``request``, which names the item and has no outcome
        yet."""

    @abstractmethod
    def resource(self, request: Any, result: Any) -> str:  # noqa: ANN401 - the change's
        """Return the name in the audit log for the item that ``result`` is about."""

    def fail(
        self,
        request: Any,  # noqa: ANN401 - the change's
        answer: Any,  # noqa: ANN401 - the change's
        code: int,
        message: str,
    ) -> None:
        """Put a result with this failure for every item of ``request`` into the empty
        ``answer``."""
        results = getattr(answer, self.results)
        for result in self.unanswered(request):
            result.error_code = code
            result.error_message = message
            results.append(result)

    def audited(self, request: Any, answer: Any) -> Iterator[AuditedItem]:  # noqa: ANN401 - the change's
        """Yield each item of the request with its outcome."""
        for result in getattr(answer, self.results):
            yield AuditedItem(self.resource(request, result), result.error_code)


class NoItems(RequestItems):
    """A request without items. It changes no shared state, or only records that belong to the
    requester."""

    def unanswered(self, _request: object) -> Sequence[Any]:
        return ()

    def resource(self, _request: object, _result: object) -> str:
        raise NotImplementedError

    def fail(self, _request: object, answer: Any, code: int, message: str) -> None:  # noqa: ANN401
        answer.error_code = code
        if "error_message" in answer.DESCRIPTOR.fields_by_name:
            answer.error_message = message

    def audited(self, request: Any, answer: Any) -> Iterator[AuditedItem]:  # noqa: ANN401
        return iter(())


# --- topics and partitions ----------------------------------------------------------------------


class _Topics(RequestItems):
    results = "topics"

    def resource(self, _request: object, result: admin_pb2.TopicResult) -> str:
        return f"topic {result.name or result.topic_id.hex()}"


class NamedTopics(_Topics):
    """Topics that are created, or get partitions."""

    def unanswered(
        self, request: admin_pb2.CreateTopicsRequest | admin_pb2.CreatePartitionsRequest
    ) -> Sequence[admin_pb2.TopicResult]:
        return [admin_pb2.TopicResult(name=topic.name) for topic in request.topics]


class DeletedTopics(_Topics):
    """Topics that are deleted, by name or by id."""

    def unanswered(self, request: admin_pb2.DeleteTopicsRequest) -> Sequence[admin_pb2.TopicResult]:
        by_name = [admin_pb2.TopicResult(name=name) for name in request.names]
        return by_name + [admin_pb2.TopicResult(topic_id=one) for one in request.topic_ids]


class ShrunkTopics(_Topics):
    """Topics that lose partitions."""

    def unanswered(
        self, request: admin_pb2.RemovePartitionsRequest
    ) -> Sequence[admin_pb2.TopicResult]:
        return [admin_pb2.TopicResult(name=topic.topic) for topic in request.topics]


class _Partitions(RequestItems):
    """Partitions. The request fails as a whole too, because it may be about all partitions and name
    none."""

    results = "partitions"

    def resource(self, _request: object, result: admin_pb2.PartitionResult) -> str:
        return f"partition {result.topic}-{result.partition}"

    def fail(self, request: Any, answer: Any, code: int, message: str) -> None:  # noqa: ANN401
        answer.error_code = code
        super().fail(request, answer, code, message)


class ElectedPartitions(_Partitions):
    """Partitions whose leader is elected."""

    def unanswered(
        self, request: admin_pb2.ElectLeadersRequest
    ) -> Sequence[admin_pb2.PartitionResult]:
        return [
            admin_pb2.PartitionResult(topic=topic.topic, partition=number)
            for topic in request.topics
            for number in topic.partitions
        ]


class ReassignedPartitions(_Partitions):
    """Partitions whose replicas are reassigned."""

    def unanswered(
        self, request: admin_pb2.AlterPartitionReassignmentsRequest
    ) -> Sequence[admin_pb2.PartitionResult]:
        return [
            admin_pb2.PartitionResult(topic=one.topic, partition=one.partition)
            for one in request.partitions
        ]


# --- administration -----------------------------------------------------------------------------


class Features(RequestItems):
    """Features whose level changes."""

    results = "results"

    def unanswered(
        self, request: admin_pb2.UpdateFeaturesRequest
    ) -> Sequence[admin_pb2.FeatureResult]:
        return [admin_pb2.FeatureResult(name=one.name) for one in request.updates]

    def resource(self, _request: object, result: admin_pb2.FeatureResult) -> str:
        return f"feature {result.name}"


class _Configurations(RequestItems):
    results = "results"

    @abstractmethod
    def keys(self, request: Any, entity: tuple[str, str]) -> Sequence[str]:  # noqa: ANN401
        """Return the keys of ``entity``, given by type and name, that the request is about."""

    def resource(self, request: object, result: admin_pb2.ConfigResult) -> str:
        keys = ", ".join(self.keys(request, (result.entity_type, result.entity_name)))
        return f"configuration of {result.entity_type} {result.entity_name or '<default>'}: {keys}"


class ChangedConfigurations(_Configurations):
    """Entities whose configuration changes in some keys."""

    def unanswered(
        self, request: admin_pb2.IncrementalAlterConfigsRequest
    ) -> Sequence[admin_pb2.ConfigResult]:
        return [_config_result(one) for one in request.changes]

    def keys(
        self, request: admin_pb2.IncrementalAlterConfigsRequest, entity: tuple[str, str]
    ) -> Sequence[str]:
        for one in reversed(request.changes):
            if (one.entity_type, one.entity_name) == entity:
                return sorted({*one.values, *one.removed, *one.appended, *one.subtracted})
        return ()


class ReplacedConfigurations(_Configurations):
    """Entities whose configuration is replaced."""

    def unanswered(
        self, request: admin_pb2.AlterConfigsRequest
    ) -> Sequence[admin_pb2.ConfigResult]:
        return [_config_result(one) for one in request.replacements]

    def keys(
        self, request: admin_pb2.AlterConfigsRequest, entity: tuple[str, str]
    ) -> Sequence[str]:
        for one in reversed(request.replacements):
            if (one.entity_type, one.entity_name) == entity:
                return sorted(one.values)
        return ()


def _config_result(
    entity: admin_pb2.ConfigChange | admin_pb2.ConfigReplacement,
) -> admin_pb2.ConfigResult:
    return admin_pb2.ConfigResult(entity_type=entity.entity_type, entity_name=entity.entity_name)


class AddedAcls(RequestItems):
    """Access control entries that are added."""

    results = "results"

    def unanswered(self, request: admin_pb2.CreateAclsRequest) -> Sequence[admin_pb2.AclResult]:
        return [admin_pb2.AclResult() for _ in request.bindings]

    def resource(self, _request: object, result: admin_pb2.AclBinding) -> str:
        return _acl(result)

    def audited(
        self, request: admin_pb2.CreateAclsRequest, answer: admin_pb2.CreateAclsResponse
    ) -> Iterator[AuditedItem]:
        for binding, one in zip(request.bindings, answer.results, strict=False):
            yield AuditedItem(_acl(binding), one.error_code)


class RemovedAcls(RequestItems):
    """Filters whose access control entries are removed."""

    results = "results"

    def unanswered(
        self, request: admin_pb2.DeleteAclsRequest
    ) -> Sequence[admin_pb2.DeleteAclsResult]:
        return [admin_pb2.DeleteAclsResult() for _ in request.filters]

    def resource(self, _request: object, result: admin_pb2.AclFilter) -> str:
        return f"whatever matches {_acl(result)}"

    def audited(
        self, request: admin_pb2.DeleteAclsRequest, answer: admin_pb2.DeleteAclsResponse
    ) -> Iterator[AuditedItem]:
        """Yield the removed entries, or the filter if it matched none."""
        for acl_filter, one in zip(request.filters, answer.results, strict=False):
            for binding in one.deleted:
                yield AuditedItem(_acl(binding), one.error_code)
            if not one.deleted:
                yield AuditedItem(self.resource(request, acl_filter), one.error_code)


def _acl(acl: admin_pb2.AclBinding | admin_pb2.AclFilter) -> str:
    """Return an entry with Kafka's numbers, as on the wire. Readers of the log look the names
    up."""
    return (
        f"ACL of {acl.principal or 'anyone'} from {acl.host or 'anywhere'}: "
        f"permission {acl.permission_type} of operation {acl.operation} on resource type "
        f"{acl.resource_type} {acl.resource_name or 'any'} (pattern {acl.pattern_type})"
    )


class ClientQuotaEntities(RequestItems):
    """Entities whose client quotas change."""

    results = "results"

    def unanswered(
        self, request: admin_pb2.AlterClientQuotasRequest
    ) -> Sequence[admin_pb2.QuotaResult]:
        return [admin_pb2.QuotaResult(entity=one.entity) for one in request.alterations]

    def resource(self, _request: object, alteration: admin_pb2.QuotaAlteration) -> str:
        entity = ", ".join(
            f"{part.entity_type} {part.name if part.HasField('name') else '<default>'}"
            for part in alteration.entity
        )
        keys = ", ".join(sorted(change.key for change in alteration.changes))
        return f"quotas of {entity}: {keys}"

    def audited(
        self,
        request: admin_pb2.AlterClientQuotasRequest,
        answer: admin_pb2.AlterClientQuotasResponse,
    ) -> Iterator[AuditedItem]:
        for alteration, one in zip(request.alterations, answer.results, strict=False):
            yield AuditedItem(self.resource(request, alteration), one.error_code)


class ScramUsers(RequestItems):
    """Users whose SCRAM credentials change."""

    results = "results"

    def unanswered(
        self, request: admin_pb2.AlterUserScramCredentialsRequest
    ) -> Sequence[admin_pb2.ScramResult]:
        users = [
            *(one.user for one in request.deletions),
            *(one.user for one in request.upsertions),
        ]
        return [admin_pb2.ScramResult(user=user) for user in dict.fromkeys(users)]

    def resource(self, _request: object, result: admin_pb2.ScramResult) -> str:
        return f"SCRAM credentials of user {result.user}"


# --- requests about one thing -------------------------------------------------------------------


class NewToken(NoItems):
    """The delegation token that is created."""

    def audited(
        self,
        request: admin_pb2.CreateDelegationTokenRequest,
        answer: admin_pb2.CreateDelegationTokenResponse,
    ) -> Iterator[AuditedItem]:
        owner = answer.token.owner or request.owner or request.context.principal_name
        name = f" {answer.token.token_id}" if answer.token.token_id else ""
        yield AuditedItem(f"delegation token{name} of {owner}", answer.error_code)


class KnownToken(NoItems):
    """The delegation token that is renewed or expired.

    The note in the metadata log has its id, because the request has only its secret.
    """

    def audited(
        self,
        request: object,
        answer: admin_pb2.RenewDelegationTokenResponse | admin_pb2.ExpireDelegationTokenResponse,
    ) -> Iterator[AuditedItem]:
        yield AuditedItem("delegation token", answer.error_code)


class OnePipeline(NoItems):
    """The pipeline that takes a step."""

    def audited(
        self, request: admin_pb2.AlterPipelineRequest, answer: admin_pb2.AlterPipelineResponse
    ) -> Iterator[AuditedItem]:
        """Yield the step. A successful renewal of the lease, every few seconds, is left out; a
        refused one is audited.

        A run that ends is audited, too.
        """
        action = request.WhichOneof("action") or "nothing"
        if action == "renew" and request.renew.lease_ms and not answer.error_code:
            return
        yield AuditedItem(f"pipeline {request.name}: {action}", answer.error_code)
