"""Access control entries, and the results of changing them."""

from collections.abc import Sequence
from dataclasses import dataclass

from quorate.client.results.item_outcome import ItemOutcome, outcome_of
from quorate.common.acl_types import AclOperation, AclPermission, PatternType, ResourceType
from quorate_proto.v1 import admin_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBinding:
    """An entry that allows or denies a principal an operation on resources.

    ``resource_name`` and ``host`` may be "*" and ``principal`` may be "User:*", which stand for
    any.
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
    """Selects entries; None and ANY match everything."""

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
class AclResult(ItemOutcome):
    """The result for one entry."""

    binding: AclBinding

    @classmethod
    def from_proto(cls, binding: AclBinding, result: admin_pb2.AclResult) -> "AclResult":
        return cls(binding=binding, **outcome_of(result))


@dataclass(frozen=True, slots=True, kw_only=True)
class AclDeletion(ItemOutcome):
    """The result for one filter, with the entries that were removed."""

    deleted: Sequence[AclBinding]

    @classmethod
    def from_proto(cls, result: admin_pb2.DeleteAclsResult) -> "AclDeletion":
        return cls(deleted=tuple(map(AclBinding.from_proto, result.deleted)), **outcome_of(result))
