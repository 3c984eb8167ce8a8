"""Access control entries to add and to remove: checked, and made into records (F3)."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from broker.controller.managers.office import Office
from broker.errors import KafkaError
from broker.security.acl_bindings import check_binding, check_filter, from_proto, matching, to_proto
from metadata_log.acls import NO_ENTRIES, AclEntry, AclPattern
from metadata_log.image import Image
from metadata_log.records import AclAdded, AclRemoved, Operation
from quorate_proto.v1 import admin_pb2

REMOVALS_PER_OPERATION: Final = 500
"""One filter may mean any number of entries: no transaction holds that many."""


class AclCreation(NamedTuple):
    """Outcome for one entry; ``operation`` None: refused, or it is there already."""

    result: admin_pb2.AclResult
    operation: Operation | None = None


class AclDeletion(NamedTuple):
    """A part of the outcome for one filter; what is refused, or means nothing, has no operation."""

    result: admin_pb2.DeleteAclsResult
    operation: Operation | None = None


def create(
    image: Image, bindings: Sequence[admin_pb2.AclBinding], *, office: Office
) -> list[AclCreation]:
    """One decision per entry, in order. One that is refused never stops its siblings."""
    return [_create(image, binding, office) for binding in bindings]


def _create(image: Image, binding: admin_pb2.AclBinding, office: Office) -> AclCreation:
    try:
        check_binding(binding)
    except KafkaError as error:
        return AclCreation(admin_pb2.AclResult(error_code=error.code, error_message=error.message))
    pattern, entry = from_proto(binding)
    there = image.acls.get(pattern, NO_ENTRIES).get(entry.principal, frozenset())
    if entry in there:
        return AclCreation(admin_pb2.AclResult())
    record = AclAdded(
        resource_type=pattern.resource_type,
        pattern_type=pattern.pattern_type,
        resource_name=pattern.name,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission=entry.permission,
    )
    return AclCreation(admin_pb2.AclResult(), office.operation(record))


def delete(
    image: Image, filters: Sequence[admin_pb2.AclFilter], *, office: Office
) -> list[list[AclDeletion]]:
    """For each filter, in order, the parts of its outcome: they share one result."""
    return [list(_delete(image, wanted, office)) for wanted in filters]


def _delete(image: Image, wanted: admin_pb2.AclFilter, office: Office) -> Iterator[AclDeletion]:
    try:
        check_filter(wanted)
    except KafkaError as error:
        yield AclDeletion(
            admin_pb2.DeleteAclsResult(error_code=error.code, error_message=error.message)
        )
        return
    found = matching(image.acls, wanted)
    result = admin_pb2.DeleteAclsResult(deleted=[to_proto(*one) for one in found])
    if not found:
        yield AclDeletion(result)
    records = itertools.starmap(_removed, found)
    while part := tuple(itertools.islice(records, REMOVALS_PER_OPERATION)):
        yield AclDeletion(result, office.operation(*part))


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
