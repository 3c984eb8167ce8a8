"""Access control entries: who may do what with which resources. The numbers are Kafka's.

Entries lie under the pattern of the resources they are about, and there under their principal: who
asks whether somebody may do something looks up the few patterns that apply to the resource and the
two principals that may be meant, however many entries there are.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import immutables

ANY_RESOURCE: Final = "*"
"""Name of the literal pattern that applies to every resource of its type."""

ANY_PRINCIPAL: Final = "User:*"
ANY_HOST: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of type cluster."""


class ResourceType(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
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
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclPattern(NamedTuple):
    """Which resources; what is recorded is literal or prefixed."""

    resource_type: int
    pattern_type: int
    name: str


class AclEntry(NamedTuple):
    """What somebody from somewhere may do, or may not."""

    principal: str
    host: str
    operation: int
    permission: int


EntriesByPrincipal: TypeAlias = "immutables.Map[str, frozenset[AclEntry]]"
"""Entries of one pattern; no principal without any is in it."""

Acls: TypeAlias = "immutables.Map[AclPattern, EntriesByPrincipal]"
"""Everything that is recorded; no pattern without entries is in it."""

NO_ENTRIES: Final[EntriesByPrincipal] = immutables.Map()


def with_entry(entries: EntriesByPrincipal, entry: AclEntry) -> EntriesByPrincipal:
    """``entries`` and this one."""
    return entries.set(entry.principal, entries.get(entry.principal, frozenset()) | {entry})


def without_entry(entries: EntriesByPrincipal, entry: AclEntry) -> EntriesByPrincipal:
    """``entries`` but this one, which is among them."""
    others = entries[entry.principal] - {entry}
    if others:
        return entries.set(entry.principal, others)
    return entries.delete(entry.principal)


def bindings(acls: Acls) -> Iterator[tuple[AclPattern, AclEntry]]:
    """Every entry with its pattern, in no order."""
    for pattern, by_principal in acls.items():
        for entries in by_principal.values():
            for entry in entries:
                yield pattern, entry
