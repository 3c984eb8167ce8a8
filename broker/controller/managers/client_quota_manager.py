"""Decides changes of client quotas: checks entities, keys and values, and makes one operation for
each entity (Q7).

Quotas are defined for users, client ids, and both together (KIP-546), and for addresses (KIP-612).
Keys are written under one name, however the request spells them.
"""

import difflib
import ipaddress
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from quorate.broker.common.errors import KafkaError
from quorate.broker.controller.managers.decisions import ControllerTenure, ItemDecision
from quorate.broker.quota.quota_entity_types import CLIENT_ID, IP, USER, check_entity_type
from quorate.metadata_log.client_quotas import (
    EVERYBODY,
    IP_QUOTA_KEYS,
    QUOTA_KEYS,
    ClientQuotaEntity,
    stored_name,
)
from quorate.metadata_log.features import LOGIN_PROTECTION, level_of
from quorate.metadata_log.image import INTER_BROKER_PROTOCOL, METADATA_VERSION, Image
from quorate.metadata_log.records import ClientQuotaSet, IpQuotaSet, Operation, Record
from quorate_proto.v1 import admin_pb2, errors_pb2

SINCE_METADATA_VERSION: Final = 3


QuotaDecision: TypeAlias = ItemDecision[admin_pb2.QuotaResult]


def alter(
    image: Image, alterations: Sequence[admin_pb2.QuotaAlteration], *, tenure: ControllerTenure
) -> list[QuotaDecision]:
    """Decide for each entity, in order. A refused entity never stops the others."""
    named = Counter(_identity(one.entity) for one in alterations)
    decisions = []
    for one in alterations:
        result = admin_pb2.QuotaResult(entity=one.entity)
        operation = None
        try:
            _check_in_force(image)
            entity = checked_entity(one.entity)
            if entity.ip is not None:
                _check_level(image, "quotas of addresses", LOGIN_PROTECTION)
            if named[_identity(one.entity)] > 1:
                raise _invalid(f"{entity} is named more than once in one request")
            operation = _operation(image, entity, one.changes, tenure)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        decisions.append(ItemDecision(result, operation))
    return decisions


def checked_entity(parts: Sequence[admin_pb2.QuotaEntityPart]) -> ClientQuotaEntity:
    """Return the entity that a quota is for.

    Raises:
        KafkaError: INVALID_REQUEST, naming what is wrong.
    """
    if not parts:
        raise _invalid(f"a quota is for a {USER}, a {CLIENT_ID}, both, or an {IP}: none is named")
    names: dict[str, str] = {}
    for part in parts:
        check_entity_type(part.entity_type)
        if part.entity_type in names:
            raise _invalid(f"entity type {part.entity_type!r} is named more than once")
        if part.HasField("name") and not part.name:
            raise _invalid(f"an empty {part.entity_type} has no quota of its own: name one")
        names[part.entity_type] = part.name if part.HasField("name") else EVERYBODY
    if IP in names:
        if len(names) > 1:
            raise _invalid(f"a quota of an {IP} is not for a {USER} or {CLIENT_ID} beside it")
        return ClientQuotaEntity(ip=_checked_address(names[IP]))
    return ClientQuotaEntity(names.get(USER), names.get(CLIENT_ID))


def _checked_address(address: str) -> str:
    """Return the address in the form that connections have. Kafka accepts names, too, and looks
    them up; here an address must be a number.
    """
    if address == EVERYBODY:
        return address
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise _invalid(f"{address!r} is no {IP}: give an IPv4 or IPv6 address") from None


def _identity(parts: Iterable[admin_pb2.QuotaEntityPart]) -> tuple[tuple[str, str | None], ...]:
    return tuple(
        sorted(
            (part.entity_type, part.name if part.HasField("name") else EVERYBODY) for part in parts
        )
    )


def _check_in_force(image: Image) -> None:
    _check_level(image, "client quotas", SINCE_METADATA_VERSION)


def _check_level(image: Image, what: str, level: int) -> None:
    now = image.metadata_version
    if now < level:
        raise KafkaError(
            errors_pb2.UNSUPPORTED_VERSION,
            f"{what} need {METADATA_VERSION} {level}, and {now} is in force: quorate features "
            f"upgrade --feature {METADATA_VERSION} --level {level}",
        )


def _operation(
    image: Image,
    entity: ClientQuotaEntity,
    changes: Sequence[admin_pb2.QuotaChange],
    tenure: ControllerTenure,
) -> Operation | None:
    values: dict[str, float | None] = {}
    for change in changes:
        key = _checked_key(image, entity, change.key)
        if key in values:
            raise _invalid(f"quota {key} of {entity} is named more than once")
        values[key] = _checked_value(key, change.value) if change.HasField("value") else None
    known: Mapping[str, float] = image.client_quotas.get(entity, {})
    records = [
        _record(entity, key, value) for key, value in values.items() if known.get(key) != value
    ]
    return tenure.operation(*records) if records else None


def _record(entity: ClientQuotaEntity, key: str, value: float | None) -> Record:
    if entity.ip is not None:
        return IpQuotaSet(ip=entity.ip, key=key, value=value)
    return ClientQuotaSet(user=entity.user, client_id=entity.client_id, key=key, value=value)


def _checked_key(image: Image, entity: ClientQuotaEntity, key: str) -> str:
    stored = stored_name(key)
    keys = QUOTA_KEYS if entity.ip is None else IP_QUOTA_KEYS
    if stored not in keys:
        near = difflib.get_close_matches(key, keys, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(keys))}"
        raise _invalid(f"unknown quota {key!r} of {entity}: {hint}")
    in_force, needed = image.inter_broker_protocol, level_of(stored)
    if needed > in_force:
        raise _invalid(
            f"quota {stored} needs {INTER_BROKER_PROTOCOL} {needed}, and {in_force} is in force: "
            f"quorate features upgrade --feature {INTER_BROKER_PROTOCOL} --level {needed}"
        )
    return stored


def _checked_value(key: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise _invalid(f"quota {key}={value:g}: must be a number above 0; remove it for no limit")
    return value


def _invalid(message: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_REQUEST, message)
