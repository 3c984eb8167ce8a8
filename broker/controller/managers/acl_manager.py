"""Decides which access control entries are added and removed (F3)."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from quorate.broker.common.errors import KafkaError
from quorate.broker.controller.managers.decisions import ControllerTenure, ItemDecision
from quorate.broker.security.acl_bindings import (
    check_binding,
    check_filter,
    from_proto,
    matching,
    to_proto,
)
from quorate.metadata_log.acls import NO_ENTRIES, AclEntry, AclPattern
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import AclAdded, AclRemoved
from quorate_proto.v1 import admin_pb2

REMOVALS_PER_OPERATION: Final = 500
"""The entries that one operation removes. One filter may match any number, which might not fit into
a transaction."""


AclCreation: TypeAlias = ItemDecision[admin_pb2.AclResult]


AclDeletion: TypeAlias = ItemDecision[admin_pb2.DeleteAclsResult]


def create(
    image: Image, bindings: Sequence[admin_pb2.AclBinding], *, tenure: ControllerTenure
) -> list[AclCreation]:
    """Decide for each entry, in order. A refused entry never stops the others."""
    return [_create(image, binding, tenure) for binding in bindings]


def _create(image: Image, binding: admin_pb2.AclBinding, tenure: ControllerTenure) -> AclCreation:
    try:
        check_binding(binding)
    except KafkaError as error:
        return ItemDecision(admin_pb2.AclResult(error_code=error.code, error_message=error.message))
    pattern, entry = from_proto(binding)
    there = image.acls.get(pattern, NO_ENTRIES).get(entry.principal, frozenset())
    if entry in there:
        return ItemDecision(admin_pb2.AclResult())
    record = AclAdded(
        resource_type=pattern.resource_type,
        pattern_type=pattern.pattern_type,
        resource_name=pattern.name,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission=entry.permission,
    )
    return ItemDecision(admin_pb2.AclResult(), tenure.operation(record))


def delete(
    image: Image, filters: Sequence[admin_pb2.AclFilter], *, tenure: ControllerTenure
) -> list[list[AclDeletion]]:
    """Return, for each filter in order, the parts of its outcome. The parts share one result."""
    return [list(_delete(image, wanted, tenure)) for wanted in filters]


def _delete(
    image: Image, wanted: admin_pb2.AclFilter, tenure: ControllerTenure
) -> Iterator[AclDeletion]:
    try:
        check_filter(wanted)
    except KafkaError as error:
        yield ItemDecision(
            admin_pb2.DeleteAclsResult(error_code=error.code, error_message=error.message)
        )
        return
    found = matching(image.acls, wanted)
    result = admin_pb2.DeleteAclsResult(deleted=[to_proto(*one) for one in found])
    if not found:
        yield ItemDecision(result)
    records = itertools.starmap(_removed, found)
    while part := tuple(itertools.islice(records, REMOVALS_PER_OPERATION)):
        yield ItemDecision(result, tenure.operation(*part))


def _removed(pattern: AclPattern, entry: AclEntry) -> AclRemoved:
    return AclRemoved(
        resource_type=pattern.resource_type,
        pattern_type=pattern.pattern_type,
        resource_name=pattern.name,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission=entry.permission,
    )
