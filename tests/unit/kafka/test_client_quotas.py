"""DescribeClientQuotas and AlterClientQuotas on the wire."""

import dataclasses
from typing import Any

import pytest

from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher, frame_response
from quorate.broker.kafka.connection.requests import ClientSession
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import ClientQuotaSet
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.followers import ShownImage
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import Values, read_answer, request_frame
from tests.support.metadata import MetadataLogBuilder
from tests.unit.kafka.conftest import Ask

DESCRIBE, ALTER = 48, 49


def image_with_quotas() -> Image:
    log = MetadataLogBuilder()
    log.start_broker(1)
    log.elect_controller(1)
    for user, client_id in (("anna", None), ("anna", ""), (None, "app")):
        log.write_as_controller(
            ClientQuotaSet(user=user, client_id=client_id, key="producer_byte_rate", value=1.5)
        )
    return log.image


async def described(inside: FakeBrokerInside, version: int, values: Values) -> Any:  # noqa: ANN401
    services = dataclasses.replace(inside.services, images=ShownImage(image_with_quotas))
    dispatcher = RequestDispatcher(services, api_table())
    frame = memoryview(bytearray(request_frame(DESCRIBE, version, values)))
    request = dispatcher.decode(frame, ClientSession("10.0.0.9"))
    answer = b"".join(frame_response(request, await request.run()))
    return read_answer(DESCRIBE, version, answer[4:])[1]


@pytest.mark.parametrize("version", [0, 1])
async def test_q7_quotas_are_described_with_names_and_defaults(
    inside: FakeBrokerInside, version: int
) -> None:
    response = await described(inside, version, {"components": [], "strict": False})
    assert response.error_code == 0
    assert [
        (
            [(part.entity_type, part.entity_name) for part in entry.entity],
            [(value.key, value.value) for value in entry.values],
        )
        for entry in response.entries
    ] == [
        ([("client-id", "app")], [("producer_byte_rate", 1.5)]),
        ([("user", "anna")], [("producer_byte_rate", 1.5)]),
        ([("user", "anna"), ("client-id", None)], [("producer_byte_rate", 1.5)]),
    ]


async def test_q7_an_unknown_entity_type_is_refused_by_name(inside: FakeBrokerInside) -> None:
    component = {"entity_type": "group", "match_type": 2, "match": None}
    response = await described(inside, 1, {"components": [component], "strict": False})
    assert response.error_code == errors_pb2.INVALID_REQUEST
    assert "'group'" in response.error_message
    assert response.entries is None


@pytest.mark.parametrize("version", [0, 1])
async def test_q7_what_the_controller_is_asked_and_answers(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    async def answer(request: admin_pb2.AlterClientQuotasRequest) -> Any:  # noqa: ANN401
        return admin_pb2.AlterClientQuotasResponse(
            results=[
                admin_pb2.QuotaResult(
                    entity=one.entity, error_code=errors_pb2.INVALID_REQUEST, error_message="no"
                )
                for one in request.alterations
            ]
        )

    inside.forwarder.answers["AlterClientQuotas"] = answer
    response = await ask(
        ALTER,
        version,
        {
            "entries": [
                {
                    "entity": [
                        {"entity_type": "user", "entity_name": "anna"},
                        {"entity_type": "client-id", "entity_name": None},
                    ],
                    "ops": [
                        {"key": "a", "value": 1.5, "remove": False},
                        {"key": "b", "value": 0.0, "remove": True},
                    ],
                }
            ],
            "validate_only": True,
        },
    )
    (request,) = inside.forwarder.asked["AlterClientQuotas"]
    assert request.validate_only
    (alteration,) = request.alterations
    assert [(one.entity_type, one.HasField("name"), one.name) for one in alteration.entity] == [
        ("user", True, "anna"),
        ("client-id", False, ""),
    ]
    assert [(one.key, one.HasField("value"), one.value) for one in alteration.changes] == [
        ("a", True, 1.5),
        ("b", False, 0.0),
    ]
    (entry,) = response.entries
    assert (entry.error_code, entry.error_message) == (errors_pb2.INVALID_REQUEST, "no")
    assert [part.entity_name for part in entry.entity] == ["anna", None]


async def test_q7_a_request_that_fails_as_a_whole_fails_for_each_entity(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    async def answer(_request: object) -> admin_pb2.AlterClientQuotasResponse:
        return admin_pb2.AlterClientQuotasResponse(error_code=errors_pb2.REQUEST_TIMED_OUT)

    inside.forwarder.answers["AlterClientQuotas"] = answer
    entity = [{"entity_type": "user", "entity_name": "anna"}]
    values = {"entries": [{"entity": entity, "ops": []}], "validate_only": False}
    response = await ask(ALTER, 1, values)
    assert [entry.error_code for entry in response.entries] == [errors_pb2.REQUEST_TIMED_OUT]
