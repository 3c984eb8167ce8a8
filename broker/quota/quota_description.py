"""The response to DescribeClientQuotas: the quotas that are set, filtered by entity (KIP-546)."""

from collections.abc import Sequence
from enum import IntEnum

from quorate.broker.common.errors import KafkaError
from quorate.broker.common.steps import ITEMS_IN_A_STEP, Steps, sorted_in_steps
from quorate.broker.quota.quota_entity_types import CLIENT_ID, IP, USER, check_entity_type
from quorate.metadata_log.client_quotas import EVERYBODY, ClientQuotaEntity, ClientQuotas
from quorate_proto.v1 import admin_pb2, errors_pb2


class QuotaMatchType(IntEnum):
    """Kafka's ways to select the entities of one type."""

    NAME = 0
    DEFAULT = 1
    ANY = 2


def describe(
    quotas: ClientQuotas, request: admin_pb2.DescribeClientQuotasRequest
) -> Steps[admin_pb2.DescribeClientQuotasResponse]:
    """Return the entities that match all filters, sorted, in steps.

    A strict request leaves out entities that have a part of a type without a filter. So a request
    without filters selects all entities, or none if it is strict.
    """
    try:
        _check(request.filters)
    except KafkaError as error:
        return admin_pb2.DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message
        )
    found = admin_pb2.DescribeClientQuotasResponse()
    ordered = yield from sorted_in_steps(quotas.items(), key=lambda item: _order(item[0]))
    for place, (entity, values) in enumerate(ordered, start=1):
        if _matches_all(entity, request.filters, request.strict):
            found.entries.add(entity=entity_parts(entity), values=values)
        if not place % ITEMS_IN_A_STEP:
            yield
    return found


def entity_parts(entity: ClientQuotaEntity) -> list[admin_pb2.QuotaEntityPart]:
    """Return the parts of an entity in the form that requests have."""
    return [
        admin_pb2.QuotaEntityPart(entity_type=kind, name=None if name == EVERYBODY else name)
        for kind, name in ((USER, entity.user), (CLIENT_ID, entity.client_id), (IP, entity.ip))
        if name is not None
    ]


def _order(entity: ClientQuotaEntity) -> list[tuple[bool, str]]:
    return [(name is not None, name or "") for name in entity]


def _check(filters: Sequence[admin_pb2.QuotaFilter]) -> None:
    kinds: set[str] = set()
    for one in filters:
        check_entity_type(one.entity_type)
        if one.entity_type in kinds:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST,
                f"entity type {one.entity_type!r} is named more than once",
            )
        if one.match_type not in list(QuotaMatchType):
            raise KafkaError(
                errors_pb2.INVALID_REQUEST,
                f"match type {one.match_type} of {one.entity_type} is none: "
                "0 is by name, 1 the default, 2 any",
            )
        kinds.add(one.entity_type)


def _matches_all(
    entity: ClientQuotaEntity, filters: Sequence[admin_pb2.QuotaFilter], strict: bool
) -> bool:
    names = {USER: entity.user, CLIENT_ID: entity.client_id, IP: entity.ip}
    if strict and {kind for kind, name in names.items() if name is not None} != {
        one.entity_type for one in filters
    }:
        return False
    return all(_matches(names[one.entity_type], one) for one in filters)


def _matches(name: str | None, one: admin_pb2.QuotaFilter) -> bool:
    match one.match_type:
        case QuotaMatchType.NAME:
            return name == one.match and name != EVERYBODY
        case QuotaMatchType.DEFAULT:
            return name == EVERYBODY
    return name is not None
