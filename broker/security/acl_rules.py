"""Decisions by access control entries (ACLs), by Kafka's rules: a denial has precedence over a
permission. The functions here have no side effects.

An entry applies to a resource if its pattern is the literal name, the literal ``*``, or a prefix of
the name. It applies to a principal if it names the principal or ``User:*``, and the principal's
host or ``*``. An operation is allowed by an entry for any operation that implies it. It is denied
only by an entry for the operation itself, or for ALL.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from quorate.common.acl_types import AclOperation, AclPermission, PatternType, ResourceType
from quorate.metadata_log.acls import (
    ANY_HOST,
    ANY_PRINCIPAL,
    ANY_RESOURCE,
    AclEntry,
    AclPattern,
    Acls,
    EntriesByPrincipal,
)

_DENIED_BY: Final[Mapping[AclOperation, frozenset[int]]] = MappingProxyType(
    {operation: frozenset({operation, AclOperation.ALL}) for operation in AclOperation}
)
_IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    },
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}
_ALLOWED_BY: Final[Mapping[AclOperation, frozenset[int]]] = MappingProxyType(
    {one: _DENIED_BY[one] | _IMPLIED_BY.get(one, set()) for one in AclOperation}
)

PrefixLengths: TypeAlias = frozenset[int]

SUPPORTED_OPERATIONS: Final[Mapping[ResourceType, frozenset[AclOperation]]] = MappingProxyType(
    {
        ResourceType.TOPIC: frozenset(
            {
                AclOperation.READ,
                AclOperation.WRITE,
                AclOperation.CREATE,
                AclOperation.DELETE,
                AclOperation.ALTER,
                AclOperation.DESCRIBE,
                AclOperation.DESCRIBE_CONFIGS,
                AclOperation.ALTER_CONFIGS,
            }
        ),
        ResourceType.GROUP: frozenset(
            {
                AclOperation.READ,
                AclOperation.DELETE,
                AclOperation.DESCRIBE,
                AclOperation.DESCRIBE_CONFIGS,
                AclOperation.ALTER_CONFIGS,
            }
        ),
        ResourceType.CLUSTER: frozenset(
            {
                AclOperation.CREATE,
                AclOperation.ALTER,
                AclOperation.DESCRIBE,
                AclOperation.CLUSTER_ACTION,
                AclOperation.DESCRIBE_CONFIGS,
                AclOperation.ALTER_CONFIGS,
                AclOperation.IDEMPOTENT_WRITE,
            }
        ),
        ResourceType.TRANSACTIONAL_ID: frozenset({AclOperation.WRITE, AclOperation.DESCRIBE}),
        ResourceType.DELEGATION_TOKEN: frozenset({AclOperation.DESCRIBE}),
        ResourceType.USER: frozenset({AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS}),
    }
)
"""The operations of each type of resource, as in Kafka. ALL stands for all of them."""


def decide(
    acls: Acls,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    lengths: PrefixLengths,
) -> bool | None:
    """Return whether the entries allow the operation, or None if no entry applies to the resource.

    ``lengths`` is the result of ``prefix_lengths(acls)``.
    """
    denied_by, allowed_by = _DENIED_BY[operation], _ALLOWED_BY[operation]
    found = allowed = False
    for pattern in patterns_over(resource_type, name, lengths):
        by_principal = acls.get(pattern)
        if by_principal is None:
            continue
        found = True
        for entry in _entries_about(by_principal, principal, host):
            if entry.permission == AclPermission.DENY and entry.operation in denied_by:
                return False
            if entry.permission == AclPermission.ALLOW and entry.operation in allowed_by:
                allowed = True
    return allowed if found else None


def prefix_lengths(acls: Acls) -> PrefixLengths:
    """Return the lengths of the prefixes in the patterns of all entries."""
    return frozenset(
        len(pattern.name) for pattern in acls if pattern.pattern_type == PatternType.PREFIXED
    )


def patterns_over(resource_type: int, name: str, lengths: PrefixLengths) -> Iterator[AclPattern]:
    """Yield every pattern that may apply to the resource.

    A client can invent a long name, which has as many prefixes as characters. So a prefix is looked
    up only if some entry has a prefix of its length.
    """
    yield AclPattern(resource_type, PatternType.LITERAL, name)
    yield AclPattern(resource_type, PatternType.LITERAL, ANY_RESOURCE)
    for length in lengths:
        if length <= len(name):
            yield AclPattern(resource_type, PatternType.PREFIXED, name[:length])


def decide_on_any(
    acls: Acls,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    *,
    lengths: PrefixLengths,
    allowed_without: bool,
) -> bool:
    """Return whether there may be a resource of the type on which the operation is allowed
    (KIP-679).

    ``allowed_without`` is True if everybody may use a resource that has no entries.
    """
    denied: set[AclPattern] = set()
    allowed: set[AclPattern] = set()
    for pattern, by_principal in acls.items():
        if pattern.resource_type != resource_type:
            continue
        for entry in _entries_about(by_principal, principal, host):
            if entry.permission == AclPermission.DENY:
                if entry.operation in _DENIED_BY[operation]:
                    denied.add(pattern)
            elif entry.operation in _ALLOWED_BY[operation]:
                allowed.add(pattern)
    if AclPattern(resource_type, PatternType.LITERAL, ANY_RESOURCE) in denied:
        return False
    return allowed_without or any(
        not _is_dominated(pattern, denied, lengths) for pattern in allowed
    )


def _is_dominated(allowed: AclPattern, denied: set[AclPattern], lengths: PrefixLengths) -> bool:
    """Return whether the denials cover everything that the pattern allows."""
    if allowed.pattern_type == PatternType.LITERAL and allowed.name == ANY_RESOURCE:
        return False
    over = patterns_over(allowed.resource_type, allowed.name, lengths)
    return any(
        pattern in denied
        for pattern in over
        if pattern.pattern_type == PatternType.PREFIXED or pattern == allowed
    )


def _entries_about(
    by_principal: EntriesByPrincipal, principal: str, host: str
) -> Iterator[AclEntry]:
    for who in (principal, ANY_PRINCIPAL):
        for entry in by_principal.get(who, ()):
            if entry.host in (ANY_HOST, host):
                yield entry
