"""Decides who may create, renew and expire delegation tokens, and how long they live (KIP-48).

Times are the controller's wall clock. A period that is not positive means the cluster's default. A
period that is too long is cut to what the cluster allows and not refused, as in Kafka.
"""

from typing import NamedTuple

import msgspec

from quorate.broker.common.errors import KafkaError
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.security.principal import USER_TYPE, parse_principal
from quorate.broker.security.token_access import is_owner_or_renewer, requester_of
from quorate.metadata_log.image import DelegationTokenState, Image
from quorate.metadata_log.paths import token_path
from quorate.metadata_log.records import (
    Absent,
    AtVersion,
    Condition,
    DelegationTokenRemoved,
    DelegationTokenSet,
    Operation,
    Record,
)
from quorate_proto.v1 import admin_pb2, errors_pb2

FOREVER_MS = 2**63 - 1
"""The last time that the metadata log can represent."""


class Lifetimes(NamedTuple):
    """The token lifetimes in the cluster's configuration."""

    max_lifetime_ms: int
    expiry_time_ms: int


class TokenDecision(NamedTuple):
    """The decision about one token, which becomes true when ``operation`` is applied."""

    token_id: str
    token: DelegationTokenSet
    operation: Operation


def create(
    request: admin_pb2.CreateDelegationTokenRequest,
    *,
    tenure: ControllerTenure,
    now_ms: int,
    token_id: str,
    lifetimes: Lifetimes,
) -> TokenDecision:
    """Create a token of the requester, or of the owner that the request names.

    Raises:
        KafkaError: INVALID_PRINCIPAL_TYPE, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    requester = requester_of(request.context)
    owner = request.owner or requester
    for principal in (owner, *request.renewers):
        _check_principal(principal)
    max_lifetime_ms = _period(request.max_lifetime_ms, lifetimes.max_lifetime_ms)
    max_ms = min(now_ms + max_lifetime_ms, FOREVER_MS)
    token = DelegationTokenSet(
        token_id=token_id,
        owner=owner,
        requester=requester,
        renewers=tuple(dict.fromkeys(request.renewers)),
        issue_ms=now_ms,
        expiry_ms=min(now_ms + lifetimes.expiry_time_ms, max_ms),
        max_ms=max_ms,
    )
    absent = Absent(path=token_path(token_id))
    return TokenDecision(token_id, token, _under(tenure, absent, token))


def renew(
    image: Image,
    request: admin_pb2.RenewDelegationTokenRequest,
    *,
    tenure: ControllerTenure,
    now_ms: int,
    token_id: str | None,
    lifetimes: Lifetimes,
) -> TokenDecision:
    """Renew the token from now on. ``token_id`` is None if the secret belongs to no token.

    Raises:
        KafkaError: DELEGATION_TOKEN_NOT_FOUND, _OWNER_MISMATCH, _EXPIRED, _REQUEST_NOT_ALLOWED.
    """
    found_id, token = _theirs(image, requester_of(request.context), token_id)
    _check_alive(found_id, token, now_ms)
    period_ms = _period(request.renew_period_ms, lifetimes.expiry_time_ms)
    return _ending(tenure, found_id, token, now_ms + period_ms)


def expire(
    image: Image,
    request: admin_pb2.ExpireDelegationTokenRequest,
    *,
    tenure: ControllerTenure,
    now_ms: int,
    token_id: str | None,
) -> TokenDecision:
    """Expire the token after the period, or at once if the period is negative. It raises what
    ``renew`` raises."""
    found_id, token = _theirs(image, requester_of(request.context), token_id)
    if request.expiry_time_period_ms < 0:
        ended = _written(found_id, token, now_ms)
        removed = DelegationTokenRemoved(token_id=found_id)
        return TokenDecision(found_id, ended, _under(tenure, _seen(found_id, token), removed))
    _check_alive(found_id, token, now_ms)
    return _ending(tenure, found_id, token, now_ms + request.expiry_time_period_ms)


def removals(image: Image, *, tenure: ControllerTenure, now_ms: int) -> list[Operation]:
    """Return operations that remove the expired tokens. A token that was renewed meanwhile
    stays."""
    return [
        _under(tenure, _seen(token_id, token), DelegationTokenRemoved(token_id=token_id))
        for token_id, token in sorted(image.tokens.items())
        if token.expired(now_ms)
    ]


def _period(wanted_ms: int, longest_ms: int) -> int:
    return min(wanted_ms, longest_ms) if wanted_ms > 0 else longest_ms


def _check_principal(principal: str) -> None:
    """Refuse principals that are not users, because Kafka has tokens only for users."""
    if parse_principal(principal).type != USER_TYPE or not parse_principal(principal).name:
        raise KafkaError(
            errors_pb2.INVALID_PRINCIPAL_TYPE,
            f"{principal!r} can neither own nor renew a delegation token: it must be User:NAME",
        )


def _theirs(image: Image, principal: str, token_id: str | None) -> tuple[str, DelegationTokenState]:
    token = None if token_id is None else image.tokens.get(token_id)
    if token_id is None or token is None:
        raise KafkaError(
            errors_pb2.DELEGATION_TOKEN_NOT_FOUND,
            "there is no delegation token of that HMAC: it has ended, or never was",
        )
    if not is_owner_or_renewer(token, principal):
        raise KafkaError(
            errors_pb2.DELEGATION_TOKEN_OWNER_MISMATCH,
            f"delegation token {token_id} is not {principal}'s to renew or to end",
        )
    return token_id, token


def _check_alive(token_id: str, token: DelegationTokenState, now_ms: int) -> None:
    if token.expired(now_ms):
        raise KafkaError(
            errors_pb2.DELEGATION_TOKEN_EXPIRED,
            f"delegation token {token_id} has ended: make another one",
        )


def _ending(
    tenure: ControllerTenure, token_id: str, token: DelegationTokenState, at_ms: int
) -> TokenDecision:
    """Set the expiry of the token to ``at_ms``, or as near to that as allowed.

    Clocks of controllers differ, so this one may be before the time of issue.
    """
    written = _written(token_id, token, max(token.issue_ms, min(at_ms, token.max_ms)))
    return TokenDecision(token_id, written, _under(tenure, _seen(token_id, token), written))


def _written(token_id: str, token: DelegationTokenState, expiry_ms: int) -> DelegationTokenSet:
    fields = msgspec.structs.asdict(token)
    del fields["version"]
    return DelegationTokenSet(token_id=token_id, **{**fields, "expiry_ms": expiry_ms})


def _seen(token_id: str, token: DelegationTokenState) -> AtVersion:
    return AtVersion(path=token_path(token_id), version=token.version)


def _under(tenure: ControllerTenure, condition: Condition, record: Record) -> Operation:
    operation = tenure.operation(record)
    return msgspec.structs.replace(operation, conditions=(*operation.conditions, condition))
