"""SCRAM users on the wire: the requests to the controller, and the descriptions (KIP-554)."""

import dataclasses

import pytest

from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher
from quorate.broker.kafka.connection.requests import ClientSession
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.followers import ShownImage
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import read_answer, request_frame
from tests.support.sasl import image_with_users
from tests.unit.kafka.conftest import Ask

DESCRIBE, ALTER = 50, 51


async def test_f1_a_change_is_the_controllers(inside: FakeBrokerInside, ask: Ask) -> None:
    refused = admin_pb2.ScramResult(
        user="bob", error_code=errors_pb2.RESOURCE_NOT_FOUND, error_message="no bob"
    )

    async def answer(
        _request: admin_pb2.AlterUserScramCredentialsRequest,
    ) -> admin_pb2.AlterUserScramCredentialsResponse:
        results = [admin_pb2.ScramResult(user="alice"), refused]
        return admin_pb2.AlterUserScramCredentialsResponse(results=results)

    inside.forwarder.answers["AlterUserScramCredentials"] = answer
    values = {
        "deletions": [{"name": "bob", "mechanism": 2}],
        "upsertions": [
            {
                "name": "alice",
                "mechanism": 1,
                "iterations": 4_096,
                "salt": b"salt",
                "salted_password": b"salted",
            }
        ],
    }
    response = await ask(ALTER, 0, values)
    assert [(one.user, one.error_code, one.error_message) for one in response.results] == [
        ("alice", 0, None),
        ("bob", errors_pb2.RESOURCE_NOT_FOUND, "no bob"),
    ]
    (request,) = inside.forwarder.asked["AlterUserScramCredentials"]
    assert request.context.principal_name == "User:ANONYMOUS"
    assert list(request.deletions) == [admin_pb2.ScramDeletion(user="bob", mechanism=2)]
    assert list(request.upsertions) == [
        admin_pb2.ScramUpsertion(
            user="alice", mechanism=1, iterations=4_096, salt=b"salt", salted_password=b"salted"
        )
    ]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (None, [("alice", 0, 2), ("bob", 0, 2)]),
        (["bob"], [("bob", 0, 2)]),
        (["ghost"], [("ghost", errors_pb2.RESOURCE_NOT_FOUND, 0)]),
    ],
)
async def test_users_are_described_by_any_broker(
    inside: FakeBrokerInside, asked: list[str] | None, told: list[tuple[str, int, int]]
) -> None:
    image = image_with_users(alice="secret", bob="other")
    services = dataclasses.replace(inside.services, images=ShownImage(lambda: image))
    users = None if asked is None else [{"name": name} for name in asked]
    frame = memoryview(bytearray(request_frame(DESCRIBE, 0, {"users": users})))
    request = RequestDispatcher(services, api_table()).decode(frame, ClientSession("h"))
    body = b"".join(await request.run())
    response = read_answer(DESCRIBE, 0, bytes(4) + b"\0" + body)[1]
    assert response.error_code == errors_pb2.NONE
    assert [
        (one.user, one.error_code, len(one.credential_infos)) for one in response.results
    ] == told
    assert b"salt of a test" not in body
