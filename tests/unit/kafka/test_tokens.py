"""Delegation tokens over the wire: the requests to the controller, and the responses."""

from typing import Any

import pytest

from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher, frame_response
from quorate.broker.kafka.connection.requests import ClientSession
from quorate.broker.security.principal import KafkaPrincipal
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import read_answer, request_frame
from tests.unit.kafka.conftest import Ask

CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
LARGEST = 2**63 - 1

TOKEN = admin_pb2.DelegationToken(
    token_id="t1",
    owner="User:al:ice",
    requester="User:gateway",
    renewers=["User:bob"],
    issue_ms=1_000,
    expiry_ms=2_000,
    max_ms=3_000,
    hmac=b"secret",
)
BOB = {"principal_type": "User", "principal_name": "bob"}


def creation(version: int, owner: str | None = None) -> dict[str, Any]:
    values = {"renewers": [BOB], "max_lifetime": 77}
    if version < 3:
        return values
    kind = None if owner is None else "User"
    return {**values, "owner_principal_type": kind, "owner_principal_name": owner}


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_f1_a_token_is_made_by_the_controller(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    async def made(_: object) -> admin_pb2.CreateDelegationTokenResponse:
        return admin_pb2.CreateDelegationTokenResponse(token=TOKEN, hmac=b"secret")

    inside.forwarder.answers["CreateDelegationToken"] = made
    response = await ask(CREATE, version, creation(version, "al:ice"))
    assert response.error_code == 0
    assert (response.principal_type, response.principal_name) == ("User", "al:ice")
    assert (response.token_id, response.hmac) == ("t1", b"secret")
    assert response.issue_timestamp.timestamp() == 1
    if version == 3:
        assert response.token_requester_principal_name == "gateway"
    (asked,) = inside.forwarder.asked["CreateDelegationToken"]
    assert asked.owner == ("User:al:ice" if version == 3 else "")
    assert list(asked.renewers) == ["User:bob"]
    assert asked.max_lifetime_ms == 77
    assert asked.context.api_name == "CreateDelegationToken"
    assert asked.context.principal_name == "User:ANONYMOUS"
    assert inside.forwarder.proxied == [True]


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_token_that_is_not_made_is_answered_as_kafka_does(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    async def refused(_: object) -> admin_pb2.CreateDelegationTokenResponse:
        code = errors_pb2.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return admin_pb2.CreateDelegationTokenResponse(error_code=code)

    inside.forwarder.answers["CreateDelegationToken"] = refused
    response = await ask(CREATE, version, creation(version))
    assert response.error_code == errors_pb2.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (response.principal_name, response.token_id, response.hmac) == ("ANONYMOUS", "", b"")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("period_ms", [-1, 5, LARGEST // 1_000_000])
async def test_f1_a_token_is_renewed_and_ended_by_the_controller(
    inside: FakeBrokerInside, ask: Ask, version: int, period_ms: int
) -> None:
    async def renewed(_: object) -> admin_pb2.RenewDelegationTokenResponse:
        return admin_pb2.RenewDelegationTokenResponse(expiry_ms=2_000)

    async def ended(_: object) -> admin_pb2.ExpireDelegationTokenResponse:
        return admin_pb2.ExpireDelegationTokenResponse(expiry_ms=3_000)

    inside.forwarder.answers["RenewDelegationToken"] = renewed
    inside.forwarder.answers["ExpireDelegationToken"] = ended
    first = await ask(RENEW, version, {"hmac": b"secret", "renew_period": period_ms})
    second = await ask(EXPIRE, version, {"hmac": b"secret", "expiry_time_period": period_ms})
    assert [one.error_code for one in (first, second)] == [0, 0]
    assert [one.expiry_timestamp.timestamp() for one in (first, second)] == [2, 3]
    (renewal,) = inside.forwarder.asked["RenewDelegationToken"]
    (ending,) = inside.forwarder.asked["ExpireDelegationToken"]
    assert (renewal.hmac, renewal.renew_period_ms) == (b"secret", period_ms)
    assert (ending.hmac, ending.expiry_time_period_ms) == (b"secret", period_ms)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    ("owners", "asked_for", "shown"),
    [
        (None, [], 1),
        ([BOB], ["User:bob"], 1),
        ([], [], 0),
    ],
)
async def test_any_broker_describes_tokens(
    inside: FakeBrokerInside,
    version: int,
    owners: list[dict[str, str]] | None,
    asked_for: list[str],
    shown: int,
) -> None:
    inside.tokens.tokens = [TOKEN]
    dispatcher = RequestDispatcher(inside.services, api_table())
    frame = memoryview(bytearray(request_frame(DESCRIBE, version, {"owners": owners})))
    session = ClientSession("10.0.0.9", certified=KafkaPrincipal("carol", token_authenticated=True))
    request = dispatcher.decode(frame, session)
    answer = b"".join(frame_response(request, await request.run()))
    _, response = read_answer(DESCRIBE, version, answer[4:])
    assert len(response.tokens) == shown
    for token in response.tokens:
        assert (token.principal_name, token.hmac) == ("al:ice", b"secret")
        assert [one.principal_name for one in token.renewers] == ["bob"]
        assert token.max_timestamp == TOKEN.max_ms
    (described,) = inside.tokens.asked
    assert list(described.owners) == asked_for
    assert described.context.principal_name == "User:carol"
    assert described.context.token_authenticated
