"""Access control entries, and the outcomes of changing them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from quorate.client.results.outcome import Outcome, outcome_of
from quorate_proto.v1 import admin_pb2


class ResourceType(IntEnum):
    """Kafka's numbers, as of all these."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """ANY and MATCH are for filters: MATCH is whatever applies to the name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """ANY is for filters."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(IntEnum):
    """ANY is for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""The one resource of type CLUSTER."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBinding:
    """Who may, or may not, do what with which resources.

    ``resource_name`` and ``host`` may be "*", ``principal`` "User:*": any.
    """

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType = PatternType.LITERAL
    principal: str
    host: str = "*"
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW

    @classmethod
    def from_proto(cls, binding: admin_pb2.AclBinding) -> "AclBinding":
        return cls(
            resource_type=ResourceType(binding.resource_type),
            resource_name=binding.resource_name,
            pattern_type=PatternType(binding.pattern_type),
            principal=binding.principal,
            host=binding.host,
            operation=AclOperation(binding.operation),
            permission=AclPermission(binding.permission_type),
        )

    def to_proto(self) -> admin_pb2.AclBinding:
        return admin_pb2.AclBinding(
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Which entries are meant; None and ANY: whatever it is."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def to_proto(self) -> admin_pb2.AclFilter:
        return admin_pb2.AclFilter(
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclResult(Outcome):
    """Outcome for one entry."""

    binding: AclBinding

    @classmethod
    def from_proto(cls, binding: AclBinding, result: admin_pb2.AclResult) -> "AclResult":
        return cls(binding=binding, **outcome_of(result))


@dataclass(frozen=True, slots=True, kw_only=True)
class AclDeletion(Outcome):
    """Outcome for one filter: the entries that are gone."""

    deleted: Sequence[AclBinding]

    @classmethod
    def from_proto(cls, result: admin_pb2.DeleteAclsResult) -> "AclDeletion":
        return cls(deleted=tuple(map(AclBinding.from_proto, result.deleted)), **outcome_of(result))
