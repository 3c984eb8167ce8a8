"""Access control entries as paths: ``/acls/topic/prefixed/orders-``."""

from collections.abc import Callable
from enum import IntEnum
from typing import TypedDict

from quorate.common.acl_types import AclOperation, AclPermission, PatternType, ResourceType
from quorate.metadata_log.acls import AclPattern
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.image import Image


class AclNode(TypedDict):
    """The node that ZooKeeper held for a resource with entries."""

    version: int
    acls: list[dict[str, str]]


def names_below(
    image: Image, below: tuple[str, ...], quoted: Callable[[str], str]
) -> list[str] | None:
    """Return the names below ``/acls`` and ``below``: resource types, then pattern types, then
    resources.
    """
    if len(below) > 2:
        return None
    paths = {parts_of(pattern, quoted) for pattern in image.acls}
    found = {path[len(below)] for path in paths if path[: len(below)] == below}
    return sorted(found) or (None if below else [])


def value_below(
    image: Image | Draft, below: tuple[str, ...], unquoted: Callable[[str], str]
) -> AclNode | None:
    """Return the content that Kafka writes to the node."""
    if len(below) != 3:
        return None
    resource_type, pattern_type = _number(ResourceType, below[0]), _number(PatternType, below[1])
    found = image.acls.get(AclPattern(resource_type, pattern_type, unquoted(below[2])))
    if found is None:
        return None
    entries = sorted(entry for of_one in found.values() for entry in of_one)
    return {
        "version": 1,
        "acls": [
            {
                "principal": entry.principal,
                "permissionType": _name(AclPermission, entry.permission),
                "operation": _name(AclOperation, entry.operation),
                "host": entry.host,
            }
            for entry in entries
        ],
    }


def parts_of(pattern: AclPattern, quoted: Callable[[str], str]) -> tuple[str, str, str]:
    """Return the path of a pattern's entries, below ``/acls``."""
    return (
        _name(ResourceType, pattern.resource_type),
        _name(PatternType, pattern.pattern_type),
        quoted(pattern.name),
    )


def _name(kind: type[IntEnum], number: int) -> str:
    """Return the name in lower case, or the number if only a newer version knows it."""
    return kind(number).name.lower() if number in kind.__members__.values() else str(number)


def _number(kind: type[IntEnum], name: str) -> int:
    if name.isdecimal():
        return int(name)
    member = kind.__members__.get(name.upper())
    return 0 if member is None else member.value
