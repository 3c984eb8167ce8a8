"""Delegation tokens by the admin client: what is asked of whom, and what is made of the answer."""

from typing import Any, TypeVar

import pytest

from quorate.client.call_steps import Steps, ToAnyBroker, ToController
from quorate.client.calls import token_calls as tokens
from quorate.client.errors import RequestFailed
from quorate_proto.v1 import admin_pb2, errors_pb2

R = TypeVar("R")


def question(steps: Steps[R]) -> Any:  # noqa: ANN401 - one of three kinds
    return next(steps)


def outcome(steps: Steps[R], answer: object) -> R:
    with pytest.raises(StopIteration) as ended:
        steps.send(answer)
    result: R = ended.value.value
    return result


def test_changes_are_asked_of_the_controller() -> None:
    creating = tokens.create_delegation_token(
        owner="User:alice", renewers=["User:bob"], max_lifetime_ms=7
    )
    asked = question(creating)
    assert isinstance(asked, ToController)
    assert asked.rpc == "CreateDelegationToken"
    assert asked.request == admin_pb2.CreateDelegationTokenRequest(
        owner="User:alice", renewers=["User:bob"], max_lifetime_ms=7
    )
    made = admin_pb2.DelegationToken(token_id="t1", owner="User:alice", max_ms=9)
    answer = admin_pb2.CreateDelegationTokenResponse(token=made, hmac=b"secret")
    token = outcome(creating, answer)
    assert (token.token_id, token.hmac, token.password) == ("t1", b"secret", "c2VjcmV0")

    renewing = tokens.renew_delegation_token(b"secret", renew_period_ms=5)
    assert question(renewing).request.renew_period_ms == 5
    assert outcome(renewing, admin_pb2.RenewDelegationTokenResponse(expiry_ms=8)) == 8
    ending = tokens.expire_delegation_token(b"secret")
    assert question(ending).request.expiry_time_period_ms == -1
    assert outcome(ending, admin_pb2.ExpireDelegationTokenResponse(expiry_ms=3)) == 3


def test_any_broker_tells_of_tokens() -> None:
    describing = tokens.describe_delegation_tokens(["User:alice"])
    assert isinstance(question(describing), ToAnyBroker)
    found = admin_pb2.DelegationToken(token_id="t1", hmac=b"secret", renewers=["User:bob"])
    (token,) = outcome(describing, admin_pb2.DescribeDelegationTokensResponse(tokens=[found]))
    assert (token.token_id, token.hmac, token.renewers) == ("t1", b"secret", ("User:bob",))


def test_a_refusal_to_tell_is_raised() -> None:
    describing = tokens.describe_delegation_tokens()
    question(describing)
    code = errors_pb2.DELEGATION_TOKEN_AUTH_DISABLED
    answer = admin_pb2.DescribeDelegationTokensResponse(error_code=code, error_message="no key")
    with pytest.raises(RequestFailed, match="DELEGATION_TOKEN_AUTH_DISABLED: no key"):
        describing.send(answer)
