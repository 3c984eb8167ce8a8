"""The one table of changes: what is asked of the controller, and how it gets there (F1, F2).

A change is asked for over gRPC, where the controller alone answers, and over the Kafka wire, where
a broker passes it on: but for the versions that the bridge release gave to the controller alone.
Upstream Kafka has since given most of those numbers to other changes (AlterConfigs 2, CreateAcls 3,
DeleteAcls 3, AlterClientQuotas 1, CreateDelegationToken 3): they are passed on, as its clients
expect. The numbers it has not taken are the controller's alone on the Kafka wire, too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from broker.control import audited_items as audited
from broker.control import failed_items as failed
from broker.control.audited_items import Item
from quorate_proto.v1 import admin_pb2


class ChangeRequest(Protocol):
    """A protobuf message that says on whose behalf it is sent."""

    @property
    def context(self) -> admin_pb2.RequestContext: ...

    def CopyFrom(self, other_msg: Self) -> None: ...

    def SerializeToString(self) -> bytes: ...

    @classmethod
    def FromString(cls, s: bytes) -> Self: ...


class ChangeAnswer(Protocol):
    """A protobuf message with the error code of the request as a whole, 0 where items have some."""

    error_code: int

    def SerializeToString(self) -> bytes: ...

    @classmethod
    def FromString(cls, s: bytes) -> Self: ...


Q = TypeVar("Q", bound=ChangeRequest)
A = TypeVar("A", bound=ChangeAnswer)


def _versions(first: int, last: int) -> range:
    return range(first, last + 1)


_NONE: Final = range(0)


@dataclass(frozen=True, slots=True)
class Change(Generic[Q, A]):
    """A kind of request that the controller carries out.

    ``failed(request, code, message)``: the answer in which every item failed alike.
    ``audited(request, answer)``: what it was about, item by item, and what became of each.
    ``key``: of the Kafka API, None where there is no such API. ``proxied``: its versions that any
    broker passes on; ``controller_only``: those that others than the controller decline.
    ``bridged``: at inter_broker_protocol 1 the broker that is asked carries it out itself (F6).
    """

    rpc: str
    request: type[Q]
    answer: type[A]
    failed: Callable[[Q, int, str], A]
    audited: Callable[[Q, A], Iterable[Item]]
    key: int | None = None
    proxied: range = field(default=_NONE)
    controller_only: range = field(default=_NONE)
    bridged: bool = False

    @property
    def method(self) -> str:
        """The gRPC method's full name."""
        return f"/{ADMIN_SERVICE}/{self.rpc}"


ADMIN_SERVICE: Final = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name

CREATE_TOPICS: Final = Change(
    "CreateTopics",
    admin_pb2.CreateTopicsRequest,
    admin_pb2.CreateTopicsResponse,
    failed.create_topics,
    audited.create_topics,
    key=19,
    proxied=_versions(2, 7),
)
DELETE_TOPICS: Final = Change(
    "DeleteTopics",
    admin_pb2.DeleteTopicsRequest,
    admin_pb2.DeleteTopicsResponse,
    failed.delete_topics,
    audited.delete_topics,
    key=20,
    proxied=_versions(1, 6),
)
CREATE_PARTITIONS: Final = Change(
    "CreatePartitions",
    admin_pb2.CreatePartitionsRequest,
    admin_pb2.CreatePartitionsResponse,
    failed.create_partitions,
    audited.create_partitions,
    key=37,
    proxied=_versions(0, 3),
)
REMOVE_PARTITIONS: Final = Change(
    "RemovePartitions",
    admin_pb2.RemovePartitionsRequest,
    admin_pb2.RemovePartitionsResponse,
    failed.remove_partitions,
    audited.remove_partitions,
)
ELECT_LEADERS: Final = Change(
    "ElectLeaders",
    admin_pb2.ElectLeadersRequest,
    admin_pb2.ElectLeadersResponse,
    failed.elect_leaders,
    audited.elect_leaders,
    key=43,
    proxied=_versions(0, 2),
)
ALTER_PARTITION_REASSIGNMENTS: Final = Change(
    "AlterPartitionReassignments",
    admin_pb2.AlterPartitionReassignmentsRequest,
    admin_pb2.AlterPartitionReassignmentsResponse,
    failed.alter_partition_reassignments,
    audited.alter_partition_reassignments,
    key=45,
    proxied=_versions(0, 1),
)
LIST_PARTITION_REASSIGNMENTS: Final = Change(
    "ListPartitionReassignments",
    admin_pb2.ListPartitionReassignmentsRequest,
    admin_pb2.ListPartitionReassignmentsResponse,
    failed.list_partition_reassignments,
    audited.nothing,
    key=46,
    proxied=_versions(0, 0),
)
"""Changes nothing, but the controller alone knows."""
UPDATE_FEATURES: Final = Change(
    "UpdateFeatures",
    admin_pb2.UpdateFeaturesRequest,
    admin_pb2.UpdateFeaturesResponse,
    failed.update_features,
    audited.update_features,
    key=57,
    proxied=_versions(0, 1),
)
ALLOCATE_PRODUCER_IDS: Final = Change(
    "AllocateProducerIds",
    admin_pb2.AllocateProducerIdsRequest,
    admin_pb2.AllocateProducerIdsResponse,
    failed.allocate_producer_ids,
    audited.nothing,
)
ALTER_CONFIGS: Final = Change(
    "AlterConfigs",
    admin_pb2.AlterConfigsRequest,
    admin_pb2.AlterConfigsResponse,
    failed.alter_configs,
    audited.alter_configs,
    key=33,
    proxied=_versions(0, 2),
    bridged=True,
)
INCREMENTAL_ALTER_CONFIGS: Final = Change(
    "IncrementalAlterConfigs",
    admin_pb2.IncrementalAlterConfigsRequest,
    admin_pb2.IncrementalAlterConfigsResponse,
    failed.incremental_alter_configs,
    audited.incremental_alter_configs,
    key=44,
    proxied=_versions(0, 1),
    controller_only=_versions(2, 2),
    bridged=True,
)
CREATE_ACLS: Final = Change(
    "CreateAcls",
    admin_pb2.CreateAclsRequest,
    admin_pb2.CreateAclsResponse,
    failed.create_acls,
    audited.create_acls,
    key=30,
    proxied=_versions(1, 3),
    bridged=True,
)
DELETE_ACLS: Final = Change(
    "DeleteAcls",
    admin_pb2.DeleteAclsRequest,
    admin_pb2.DeleteAclsResponse,
    failed.delete_acls,
    audited.delete_acls,
    key=31,
    proxied=_versions(1, 3),
    bridged=True,
)
ALTER_CLIENT_QUOTAS: Final = Change(
    "AlterClientQuotas",
    admin_pb2.AlterClientQuotasRequest,
    admin_pb2.AlterClientQuotasResponse,
    failed.alter_client_quotas,
    audited.alter_client_quotas,
    key=49,
    proxied=_versions(0, 1),
    bridged=True,
)
CREATE_DELEGATION_TOKEN: Final = Change(
    "CreateDelegationToken",
    admin_pb2.CreateDelegationTokenRequest,
    admin_pb2.CreateDelegationTokenResponse,
    failed.create_delegation_token,
    audited.create_delegation_token,
    key=38,
    proxied=_versions(1, 3),
    bridged=True,
)
RENEW_DELEGATION_TOKEN: Final = Change(
    "RenewDelegationToken",
    admin_pb2.RenewDelegationTokenRequest,
    admin_pb2.RenewDelegationTokenResponse,
    failed.renew_delegation_token,
    audited.delegation_token,
    key=39,
    proxied=_versions(1, 2),
    controller_only=_versions(3, 3),
    bridged=True,
)
EXPIRE_DELEGATION_TOKEN: Final = Change(
    "ExpireDelegationToken",
    admin_pb2.ExpireDelegationTokenRequest,
    admin_pb2.ExpireDelegationTokenResponse,
    failed.expire_delegation_token,
    audited.delegation_token,
    key=40,
    proxied=_versions(1, 2),
    controller_only=_versions(3, 3),
    bridged=True,
)
ALTER_USER_SCRAM_CREDENTIALS: Final = Change(
    "AlterUserScramCredentials",
    admin_pb2.AlterUserScramCredentialsRequest,
    admin_pb2.AlterUserScramCredentialsResponse,
    failed.alter_user_scram_credentials,
    audited.alter_user_scram_credentials,
    key=51,
    proxied=_versions(0, 0),
    bridged=True,
)
ALTER_PIPELINE: Final = Change(
    "AlterPipeline",
    admin_pb2.AlterPipelineRequest,
    admin_pb2.AlterPipelineResponse,
    failed.alter_pipeline,
    audited.alter_pipeline,
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
"""All of them."""
