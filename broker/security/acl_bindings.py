"""Access control entries (ACLs) on the wire: their checks, their filters, and DescribeAcls.

Any broker can respond to DescribeAcls, from its metadata image.
"""

from enum import IntEnum
from typing import Final, TypeAlias

from quorate.broker.common.errors import KafkaError
from quorate.broker.common.steps import ITEMS_IN_A_STEP, Steps, sorted_in_steps
from quorate.broker.security.acl_rules import SUPPORTED_OPERATIONS
from quorate.broker.security.authorizer import AuthenticatedParty, Authorizer
from quorate.common.acl_types import (
    CLUSTER_NAME,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from quorate.metadata_log.acls import ANY_RESOURCE, AclEntry, AclPattern, Acls
from quorate_proto.v1 import admin_pb2, errors_pb2

TEXT_LENGTH_MAX: Final = 32_767
"""The most characters of a name, a principal or a host. Each must fit into a short string of the
Kafka protocol.
"""

_RECORDED_PATTERNS: Final = (PatternType.LITERAL, PatternType.PREFIXED)
_PERMISSIONS: Final = (AclPermission.DENY, AclPermission.ALLOW)


def to_proto(pattern: AclPattern, entry: AclEntry) -> admin_pb2.AclBinding:
    return admin_pb2.AclBinding(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def from_proto(binding: admin_pb2.AclBinding) -> tuple[AclPattern, AclEntry]:
    return (
        AclPattern(binding.resource_type, binding.pattern_type, binding.resource_name),
        AclEntry(binding.principal, binding.host, binding.operation, binding.permission_type),
    )


def check_binding(binding: admin_pb2.AclBinding) -> None:
    """Check that the entry can be stored.

    Raises:
        KafkaError: INVALID_REQUEST. A part of the entry is invalid, or does not fit the other
            parts.
    """
    kind = _checked_resource(binding)
    operation = binding.operation
    if operation != AclOperation.ALL and operation not in SUPPORTED_OPERATIONS[kind]:
        known = sorted(one.name for one in SUPPORTED_OPERATIONS[kind])
        raise _invalid(
            f"operation {_named(AclOperation, operation)} cannot be done with a resource of type "
            f"{kind.name}: choose ALL, {', '.join(known)}"
        )
    if binding.permission_type not in _PERMISSIONS:
        raise _invalid(f"permission type {binding.permission_type}: must be 2 (deny) or 3 (allow)")
    principal_type, colon, name = binding.principal.partition(":")
    if not (colon and principal_type and name):
        raise _invalid(
            f"principal {binding.principal!r}: must be TYPE:NAME, as User:alice; User:* is anyone"
        )
    if not binding.host:
        raise _invalid("the host is empty: name an address, or * for any")
    for text in (binding.resource_name, binding.principal, binding.host):
        if len(text) > TEXT_LENGTH_MAX:
            raise _invalid(f"{text[:50]!r}… has {len(text)} characters: at most {TEXT_LENGTH_MAX}")


def _checked_resource(binding: admin_pb2.AclBinding) -> ResourceType:
    if binding.resource_type not in SUPPORTED_OPERATIONS:
        raise _invalid(
            f"resource type {_named(ResourceType, binding.resource_type)}: must be one of "
            f"{', '.join(f'{one.value} ({one.name})' for one in SUPPORTED_OPERATIONS)}"
        )
    kind = ResourceType(binding.resource_type)
    if binding.pattern_type not in _RECORDED_PATTERNS:
        raise _invalid(
            f"pattern type {_named(PatternType, binding.pattern_type)}: an entry is for LITERAL or "
            "PREFIXED names; MATCH and ANY are for filters"
        )
    if not binding.resource_name:
        raise _invalid(f"the name of the {kind.name} is empty: * means any")
    if kind is ResourceType.CLUSTER and binding.resource_name not in (CLUSTER_NAME, ANY_RESOURCE):
        raise _invalid(
            f"cluster {binding.resource_name!r}: the only resource of type CLUSTER is "
            f"{CLUSTER_NAME!r}"
        )
    return kind


def check_filter(wanted: admin_pb2.AclFilter) -> None:
    """Check that the filter is valid.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    numbers = (
        ("resource type", ResourceType, wanted.resource_type),
        ("pattern type", PatternType, wanted.pattern_type),
        ("operation", AclOperation, wanted.operation),
        ("permission type", AclPermission, wanted.permission_type),
    )
    for what, kind, number in numbers:
        if number not in kind.__members__.values():
            known = ", ".join(f"{one.value} ({one.name})" for one in kind)
            raise _invalid(f"{what} {number} of the filter: must be one of {known}")


Binding: TypeAlias = tuple[AclPattern, AclEntry]


def matching(acls: Acls, wanted: admin_pb2.AclFilter) -> list[Binding]:
    """Return the entries that match a filter, sorted. The time grows with the number of all
    entries.
    """
    return sorted(
        (pattern, entry)
        for pattern, by_principal in acls.items()
        if _is_pattern_meant(wanted, pattern)
        for entries in by_principal.values()
        for entry in entries
        if _is_entry_meant(wanted, entry)
    )


def _is_pattern_meant(wanted: admin_pb2.AclFilter, pattern: AclPattern) -> bool:
    if wanted.resource_type not in (ResourceType.ANY, pattern.resource_type):
        return False
    any_pattern = wanted.pattern_type in (PatternType.ANY, PatternType.MATCH)
    if not any_pattern and wanted.pattern_type != pattern.pattern_type:
        return False
    if not wanted.HasField("resource_name") or wanted.resource_name == pattern.name:
        return True
    if wanted.pattern_type != PatternType.MATCH:
        return False
    if pattern.pattern_type == PatternType.LITERAL:
        return pattern.name == ANY_RESOURCE
    return wanted.resource_name.startswith(pattern.name)


def _is_entry_meant(wanted: admin_pb2.AclFilter, entry: AclEntry) -> bool:
    return (
        (not wanted.HasField("principal") or wanted.principal == entry.principal)
        and (not wanted.HasField("host") or wanted.host == entry.host)
        and wanted.operation in (AclOperation.ANY, entry.operation)
        and wanted.permission_type in (AclPermission.ANY, entry.permission)
    )


def _named(kind: type[IntEnum], number: int) -> str:
    return f"{number} ({kind(number).name})" if number in kind.__members__.values() else str(number)


def _invalid(message: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_REQUEST, message)


def described_bindings(
    authorizer: Authorizer, client: AuthenticatedParty, acls: Acls, wanted: admin_pb2.AclFilter
) -> Steps[list[Binding]]:
    """Return the entries that match ``wanted``, sorted by their resource, in steps.

    Raises:
        KafkaError: the client may not ask, or the filter is invalid.
    """
    authorizer.require_enabled()
    authorizer.rights_of(client).require_cluster(AclOperation.DESCRIBE)
    check_filter(wanted)
    every = (
        (pattern, entry)
        for pattern, by_principal in acls.items()
        for entries in by_principal.values()
        for entry in entries
    )
    found: list[Binding] = []
    for place, one in enumerate(every, start=1):
        if _is_pattern_meant(wanted, one[0]) and _is_entry_meant(wanted, one[1]):
            found.append(one)
        if not place % ITEMS_IN_A_STEP:
            yield
    return (yield from sorted_in_steps(found, key=lambda one: one))
