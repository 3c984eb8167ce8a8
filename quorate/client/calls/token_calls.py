"""Delegation tokens (KIP-48, KIP-373). Only authenticated clients may use these calls."""

from collections.abc import Sequence

from quorate.client.call_steps import Steps, ToAnyBroker, ToController
from quorate.client.errors import RequestFailed
from quorate.client.results import DelegationToken
from quorate_proto.v1 import admin_pb2, errors_pb2


def create_delegation_token(
    *, owner: str = "", renewers: Sequence[str] = (), max_lifetime_ms: int = -1
) -> Steps[DelegationToken]:
    """Create a token, and return it with its secret.

    Principals are written "User:alice"; without an ``owner``, the client owns the token. If
    ``max_lifetime_ms`` is not positive, the token lives as long as the cluster allows.

    Raises:
        RequestFailed: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            INVALID_PRINCIPAL_TYPE, DELEGATION_TOKEN_AUTHORIZATION_FAILED.
    """
    request = admin_pb2.CreateDelegationTokenRequest(
        owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms
    )
    answer: admin_pb2.CreateDelegationTokenResponse = yield ToController(
        "CreateDelegationToken", request, "making a delegation token"
    )
    return DelegationToken.from_proto(answer.token, answer.hmac)


def renew_delegation_token(hmac: bytes, *, renew_period_ms: int = -1) -> Steps[int]:
    """Extend the life of the token with that secret; return when it now expires, in ms since the
    epoch.

    Raises:
        RequestFailed: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED,
            DELEGATION_TOKEN_OWNER_MISMATCH, and as for ``create_delegation_token``.
    """
    request = admin_pb2.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms)
    answer: admin_pb2.RenewDelegationTokenResponse = yield ToController(
        "RenewDelegationToken", request, "renewing a delegation token"
    )
    return answer.expiry_ms


def expire_delegation_token(hmac: bytes, *, expiry_time_period_ms: int = -1) -> Steps[int]:
    """Expire the token with that secret after the period, at once if it is negative.

    Return when the token expires, in ms since the epoch.

    Raises:
        RequestFailed: as ``renew_delegation_token``.
    """
    request = admin_pb2.ExpireDelegationTokenRequest(
        hmac=hmac, expiry_time_period_ms=expiry_time_period_ms
    )
    answer: admin_pb2.ExpireDelegationTokenResponse = yield ToController(
        "ExpireDelegationToken", request, "ending a delegation token"
    )
    return answer.expiry_ms


def describe_delegation_tokens(owners: Sequence[str] = ()) -> Steps[list[DelegationToken]]:
    """Return the tokens that the client may see, sorted by id.

    With ``owners``, return only tokens that these principals own, requested or may renew.

    Raises:
        RequestFailed: as ``create_delegation_token``.
    """
    request = admin_pb2.DescribeDelegationTokensRequest(owners=owners)
    answer: admin_pb2.DescribeDelegationTokensResponse = yield ToAnyBroker(
        "DescribeDelegationTokens", request
    )
    if answer.error_code != errors_pb2.NONE:
        raise RequestFailed(answer.error_code, answer.error_message)
    return [DelegationToken.from_proto(token, token.hmac) for token in answer.tokens]
