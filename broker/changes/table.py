"""The one table of changes: the requests to the controller, and how each reaches it (F1, F2).

A change is requested over gRPC, where only the controller answers, or over the Kafka protocol,
where a broker forwards it, except for the API versions that the bridge release reserved for the
controller. Upstream Kafka has since given most of those version numbers to other changes
(AlterConfigs 2, CreateAcls 3, DeleteAcls 3, AlterClientQuotas 1, CreateDelegationToken 3). These
are forwarded, as its clients expect. The numbers that it has not taken are reserved for the
controller over the Kafka protocol, too.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from quorate.broker.changes import items
from quorate.broker.changes.items import RequestItems
from quorate_proto.v1 import admin_pb2


class ChangeRequest(Protocol):
    """A protobuf message with the context of the requester."""

    @property
    def context(self) -> admin_pb2.RequestContext: ...

    def CopyFrom(self, other_msg: Self) -> None: ...

    def SerializeToString(self) -> bytes: ...

    @classmethod
    def FromString(cls, s: bytes) -> Self: ...


class ChangeAnswer(Protocol):
    """A protobuf message with the error code of the whole request, which is 0 where only items have
    one."""

    error_code: int

    def SerializeToString(self) -> bytes: ...

    @classmethod
    def FromString(cls, s: bytes) -> Self: ...


Q = TypeVar("Q", bound=ChangeRequest)
A = TypeVar("A", bound=ChangeAnswer)

ADMIN_SERVICE: Final = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name


def _versions(first: int, last: int) -> range:
    return range(first, last + 1)


_NONE: Final = range(0)


@dataclass(frozen=True, slots=True)
class Change(Generic[Q, A]):
    """A kind of request that the controller carries out.

    ``items`` describes the items of such a request. ``key`` is that of the Kafka API, or None if
    there is no such API. ``proxied`` are its versions that any broker forwards. ``controller_only``
    are the versions that only the controller accepts. A ``bridged`` change is carried out, at
    inter_broker_protocol 1, by the broker that receives it (F6).
    """

    rpc: str
    request: type[Q]
    answer: type[A]
    items: RequestItems
    key: int | None = None
    proxied: range = field(default=_NONE)
    controller_only: range = field(default=_NONE)
    bridged: bool = False

    @property
    def method(self) -> str:
        """The full name of the gRPC method."""
        return f"/{ADMIN_SERVICE}/{self.rpc}"

    def failed(self, request: Q, code: int, message: str) -> A:
        """Return the answer in which every item of ``request`` failed alike."""
        answer = self.answer()
        self.items.fail(request, answer, code, message)
        return answer


CREATE_TOPICS: Final = Change(
    "CreateTopics",
    admin_pb2.CreateTopicsRequest,
    admin_pb2.CreateTopicsResponse,
    items.NamedTopics(),
    key=19,
    proxied=_versions(2, 7),
)
DELETE_TOPICS: Final = Change(
    "DeleteTopics",
    admin_pb2.DeleteTopicsRequest,
    admin_pb2.DeleteTopicsResponse,
    items.DeletedTopics(),
    key=20,
    proxied=_versions(1, 6),
)
CREATE_PARTITIONS: Final = Change(
    "CreatePartitions",
    admin_pb2.CreatePartitionsRequest,
    admin_pb2.CreatePartitionsResponse,
    items.NamedTopics(),
    key=37,
    proxied=_versions(0, 3),
)
REMOVE_PARTITIONS: Final = Change(
    "RemovePartitions",
    admin_pb2.RemovePartitionsRequest,
    admin_pb2.RemovePartitionsResponse,
    items.ShrunkTopics(),
)
ELECT_LEADERS: Final = Change(
    "ElectLeaders",
    admin_pb2.ElectLeadersRequest,
    admin_pb2.ElectLeadersResponse,
    items.ElectedPartitions(),
    key=43,
    proxied=_versions(0, 2),
)
ALTER_PARTITION_REASSIGNMENTS: Final = Change(
    "AlterPartitionReassignments",
    admin_pb2.AlterPartitionReassignmentsRequest,
    admin_pb2.AlterPartitionReassignmentsResponse,
    items.ReassignedPartitions(),
    key=45,
    proxied=_versions(0, 1),
)
LIST_PARTITION_REASSIGNMENTS: Final = Change(
    "ListPartitionReassignments",
    admin_pb2.ListPartitionReassignmentsRequest,
    admin_pb2.ListPartitionReassignmentsResponse,
    items.NoItems(),
    key=46,
    proxied=_versions(0, 0),
)
"""This changes nothing, but only the controller can answer it."""
UPDATE_FEATURES: Final = Change(
    "UpdateFeatures",
    admin_pb2.UpdateFeaturesRequest,
    admin_pb2.UpdateFeaturesResponse,
    items.Features(),
    key=57,
    proxied=_versions(0, 2),
)
ALLOCATE_PRODUCER_IDS: Final = Change(
    "AllocateProducerIds",
    admin_pb2.AllocateProducerIdsRequest,
    admin_pb2.AllocateProducerIdsResponse,
    items.NoItems(),
)
ALTER_CONFIGS: Final = Change(
    "AlterConfigs",
    admin_pb2.AlterConfigsRequest,
    admin_pb2.AlterConfigsResponse,
    items.ReplacedConfigurations(),
    key=33,
    proxied=_versions(0, 2),
    bridged=True,
)
INCREMENTAL_ALTER_CONFIGS: Final = Change(
    "IncrementalAlterConfigs",
    admin_pb2.IncrementalAlterConfigsRequest,
    admin_pb2.IncrementalAlterConfigsResponse,
    items.ChangedConfigurations(),
    key=44,
    proxied=_versions(0, 1),
    controller_only=_versions(2, 2),
    bridged=True,
)
CREATE_ACLS: Final = Change(
    "CreateAcls",
    admin_pb2.CreateAclsRequest,
    admin_pb2.CreateAclsResponse,
    items.AddedAcls(),
    key=30,
    proxied=_versions(1, 3),
    bridged=True,
)
DELETE_ACLS: Final = Change(
    "DeleteAcls",
    admin_pb2.DeleteAclsRequest,
    admin_pb2.DeleteAclsResponse,
    items.RemovedAcls(),
    key=31,
    proxied=_versions(1, 3),
    bridged=True,
)
ALTER_CLIENT_QUOTAS: Final = Change(
    "AlterClientQuotas",
    admin_pb2.AlterClientQuotasRequest,
    admin_pb2.AlterClientQuotasResponse,
    items.ClientQuotaEntities(),
    key=49,
    proxied=_versions(0, 1),
    bridged=True,
)
CREATE_DELEGATION_TOKEN: Final = Change(
    "CreateDelegationToken",
    admin_pb2.CreateDelegationTokenRequest,
    admin_pb2.CreateDelegationTokenResponse,
    items.NewToken(),
    key=38,
    proxied=_versions(1, 3),
    bridged=True,
)
RENEW_DELEGATION_TOKEN: Final = Change(
    "RenewDelegationToken",
    admin_pb2.RenewDelegationTokenRequest,
    admin_pb2.RenewDelegationTokenResponse,
    items.KnownToken(),
    key=39,
    proxied=_versions(1, 2),
    controller_only=_versions(3, 3),
    bridged=True,
)
EXPIRE_DELEGATION_TOKEN: Final = Change(
    "ExpireDelegationToken",
    admin_pb2.ExpireDelegationTokenRequest,
    admin_pb2.ExpireDelegationTokenResponse,
    items.KnownToken(),
    key=40,
    proxied=_versions(1, 2),
    controller_only=_versions(3, 3),
    bridged=True,
)
ALTER_USER_SCRAM_CREDENTIALS: Final = Change(
    "AlterUserScramCredentials",
    admin_pb2.AlterUserScramCredentialsRequest,
    admin_pb2.AlterUserScramCredentialsResponse,
    items.ScramUsers(),
    key=51,
    proxied=_versions(0, 0),
    bridged=True,
)
ALTER_PIPELINE: Final = Change(
    "AlterPipeline",
    admin_pb2.AlterPipelineRequest,
    admin_pb2.AlterPipelineResponse,
    items.OnePipeline(),
)

CHANGES: Final[tuple[Change[Any, Any], ...]] = (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CREATE_PARTITIONS,
    REMOVE_PARTITIONS,
    ELECT_LEADERS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    UPDATE_FEATURES,
    ALLOCATE_PRODUCER_IDS,
    ALTER_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    CREATE_ACLS,
    DELETE_ACLS,
    ALTER_CLIENT_QUOTAS,
    CREATE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    ALTER_USER_SCRAM_CREDENTIALS,
    ALTER_PIPELINE,
)
"""All changes."""
