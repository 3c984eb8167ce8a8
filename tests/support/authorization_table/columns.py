"""The columns of the table: clients that differ in the entries that are about them."""

from collections.abc import Mapping
from typing import Final

from quorate.common.acl_types import AclOperation, AclPermission, PatternType, ResourceType
from quorate.metadata_log.acls import AclPattern
from tests.support.acls import Binding
from tests.support.authorization_rows import Row

ANONYMOUS: Final = "anonymous"
NO_ACL: Final = "none"
UNRELATED, DENIED = "unrelated", "denied"
PREFIX, WILDCARD, LITERAL, IMPLIED = "prefix", "wildcard", "literal", "implied"
USERS: Final = (NO_ACL, UNRELATED, DENIED, PREFIX, WILDCARD, LITERAL, IMPLIED)
COLUMNS: Final = (ANONYMOUS, *USERS)
"""``anonymous`` did not log in and ``none`` did. There is no entry about either.

The others have all that the row asks for besides its right, and in this order: the right on
another resource; the right and a DENY of it; the right by a prefix; by ``*`` (on the cluster: ALL);
as it is; an operation that implies it.
"""

WITHOUT_THE_RIGHT: Final = (ANONYMOUS, NO_ACL, UNRELATED, DENIED)


def entries_of(row: Row) -> Mapping[str, tuple[Binding, ...]]:
    """Return the entries of each column that the row has."""
    if not row.needs:
        return {ANONYMOUS: (), NO_ACL: ()}
    right = row.needs[0]
    pattern, entry = right
    deny = (pattern, entry._replace(permission=AclPermission.DENY))
    columns: dict[str, tuple[Binding, ...]] = {
        ANONYMOUS: (),
        NO_ACL: (),
        UNRELATED: (*row.also, _elsewhere(right)),
        DENIED: (*row.also, right, deny),
        PREFIX: (*row.also, _by_prefix(right)),
        WILDCARD: (*row.also, _everywhere(right)),
        LITERAL: (*row.also, right),
    }
    if len(row.needs) > 1:
        columns[IMPLIED] = (*row.also, row.needs[1])
    return columns


def _elsewhere(right: Binding) -> Binding:
    pattern, entry = right
    if pattern.resource_type is ResourceType.CLUSTER:
        elsewhere = AclPattern(ResourceType.GROUP, PatternType.LITERAL, "g")
        return elsewhere, entry._replace(operation=AclOperation.ALL)
    return pattern._replace(name=f"{pattern.name}-other"), entry


def _by_prefix(right: Binding) -> Binding:
    pattern, entry = right
    name = pattern.name
    if pattern.resource_type is not ResourceType.CLUSTER and len(name) > 1:
        name = name[:-1]
    return pattern._replace(name=name, pattern_type=PatternType.PREFIXED), entry


def _everywhere(right: Binding) -> Binding:
    pattern, entry = right
    if pattern.resource_type is ResourceType.CLUSTER:
        return pattern, entry._replace(operation=AclOperation.ALL)
    return pattern._replace(name="*"), entry
