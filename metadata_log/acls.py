"""Access control entries: which principal may do what with which resources. The numbers are
Kafka's.

Entries are stored under the pattern of their resources, and there under their principal. So a check
looks up only the few patterns that apply to the resource, and the two principals that may be meant,
however many entries there are.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import immutables

ANY_RESOURCE: Final = "*"
"""Name of the literal pattern that applies to every resource of its type."""

ANY_PRINCIPAL: Final = "User:*"
ANY_HOST: Final = "*"


class AclPattern(NamedTuple):
    """The resources that an entry is about. Recorded patterns are literal or prefixed."""

    resource_type: int
    pattern_type: int
    name: str


class AclEntry(NamedTuple):
    """An operation that a principal is allowed or denied from a host."""

    principal: str
    host: str
    operation: int
    permission: int


EntriesByPrincipal: TypeAlias = "immutables.Map[str, frozenset[AclEntry]]"
"""The entries of one pattern by principal. A principal without entries is not in it."""

Acls: TypeAlias = "immutables.Map[AclPattern, EntriesByPrincipal]"
"""Every recorded entry, by pattern. A pattern without entries is not in it."""

NO_ENTRIES: Final[EntriesByPrincipal] = immutables.Map()


def with_entry(entries: EntriesByPrincipal, entry: AclEntry) -> EntriesByPrincipal:
    """Return ``entries`` with this entry added."""
    return entries.set(entry.principal, entries.get(entry.principal, frozenset()) | {entry})


def without_entry(entries: EntriesByPrincipal, entry: AclEntry) -> EntriesByPrincipal:
    """Return ``entries`` without this entry, which is among them."""
    others = entries[entry.principal] - {entry}
    if others:
        return entries.set(entry.principal, others)
    return entries.delete(entry.principal)


def bindings(acls: Acls) -> Iterator[tuple[AclPattern, AclEntry]]:
    """Yield every entry with its pattern, in no particular order."""
    for pattern, by_principal in acls.items():
        for entries in by_principal.values():
            for entry in entries:
                yield pattern, entry
