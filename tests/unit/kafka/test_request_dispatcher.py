"""Served APIs are advertised; others get a refusal that the client can read, or are closed."""

import struct

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.common.steps import Steps
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.api_versions import API_VERSIONS_KEY
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher, frame_response
from quorate.broker.kafka.connection.request_work import RequestWork
from quorate.broker.kafka.connection.requests import Api, ClientSession, CloseConnection
from quorate.broker.kafka.wire.primitives import Buffers, Cursor, MalformedRequest
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import read_answer, request_frame
from tests.unit.kafka.conftest import Ask


def decoder(inside: FakeBrokerInside) -> RequestDispatcher:
    return RequestDispatcher(inside.services, api_table())


def view(frame: bytes) -> memoryview:
    return memoryview(bytearray(frame))


@pytest.mark.parametrize("version", range(5))
async def test_advertised_is_exactly_what_is_served(ask: Ask, version: int) -> None:
    response = await ask(
        API_VERSIONS_KEY, version, {"client_software_name": "x", "client_software_version": "1"}
    )
    advertised = {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}
    assert advertised == {
        key: (api.min_version, api.max_version) for key, api in api_table().items()
    }
    assert response.error_code == 0


async def test_api_versions_of_the_future_is_answered_as_version_0(
    inside: FakeBrokerInside,
) -> None:
    frame = struct.pack(">hhih", API_VERSIONS_KEY, 99, 5, -1) + b"\x07whatever"
    request = decoder(inside).decode(view(frame), ClientSession("h"))
    answer = b"".join(frame_response(request, await request.run()))
    correlation_id, response = read_answer(API_VERSIONS_KEY, 0, answer[4:])
    assert correlation_id == 5
    assert response.error_code == errors_pb2.UNSUPPORTED_VERSION
    assert [(k.api_key, k.min_version, k.max_version) for k in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize(("key", "version"), [(22, 6), (88, 0)])
async def test_an_unserved_version_is_refused_where_the_response_can_say_so(
    inside: FakeBrokerInside, key: int, version: int
) -> None:
    frame = request_frame(key, version, b"", correlation_id=3)
    request = decoder(inside).decode(view(frame), ClientSession("h"))
    answer = b"".join(frame_response(request, await request.run()))
    correlation_id, response = read_answer(key, version, answer[4:])
    assert correlation_id == 3
    assert response.error_code == errors_pb2.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("key", "version", "told"),
    [
        (0, 14, "API key 0 .produce. version 14 is not served"),
        (2, 12, "API key 2 .list_offsets. version 12"),
        (3, 900, "API key 3 .metadata. version 900"),
        (3, -1, "version -1"),
        (4242, 0, "API key 4242"),
        (-1, 0, "API key -1"),
    ],
)
def test_what_cannot_even_be_refused_is_malformed(
    inside: FakeBrokerInside, key: int, version: int, told: str
) -> None:
    with pytest.raises(MalformedRequest, match=told):
        decoder(inside).decode(view(struct.pack(">hhih", key, version, 1, -1)), ClientSession("h"))


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (struct.pack(">hhih", 3, 1, 1, 30_000), "metadata version 1: 30000 bytes wanted"),
        (struct.pack(">hhih", 3, 1, 1, -7), "negative length -7"),
        (struct.pack(">hhih", 3, 12, 1, -1) + b"\xff" * 9, "varint"),
        (struct.pack(">hhih2s", 3, 1, 1, 2, b"\xff\xfe"), "UTF-8"),
    ],
)
def test_a_bad_header_is_malformed(inside: FakeBrokerInside, frame: bytes, told: str) -> None:
    with pytest.raises(MalformedRequest, match=told):
        decoder(inside).decode(view(frame), ClientSession("h"))


def nothing(version: int, cursor: Cursor) -> Steps[None]:
    """Decode a request without a body."""
    yield from ()


def failing(key: int, version: int) -> Api:
    async def handle(*_: object) -> Buffers:
        raise KafkaError(errors_pb2.NOT_CONTROLLER, "ask broker 2")

    return Api(
        key=key,
        min_version=version,
        max_version=version,
        first_flexible_version=0,
        handle=handle,
        work=RequestWork(elements_max=0),
        decode=nothing,
    )


async def test_a_failure_is_told_in_the_response_where_it_has_a_place(
    inside: FakeBrokerInside,
) -> None:
    request = RequestDispatcher(inside.services, {60: failing(60, 0)}).decode(
        view(request_frame(60, 0, b"")), ClientSession("h")
    )
    answer = b"".join(frame_response(request, await request.run()))
    _, response = read_answer(60, 0, answer[4:])
    assert (response.error_code, response.error_message) == (41, "ask broker 2")


async def test_f5_a_client_cannot_name_a_principal_in_the_header(
    inside: FakeBrokerInside,
) -> None:
    """Tag 0, in which the draft of KIP-590 has a redirecting broker name the original principal."""
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    values = {"topics": [{**topic, "assignments": [], "configs": []}], "timeout": 1_000}
    frame = request_frame(19, 7, {**values, "validate_only": False}, client_id="c")
    no_tags = struct.calcsize(">hhihc")
    assert frame[no_tags] == 0
    principal = b"User:admin"
    tag = bytes([1, 0, len(principal) + 1, len(principal) + 1]) + principal
    named = frame[:no_tags] + tag + frame[no_tags + 1 :]
    request = decoder(inside).decode(view(named), ClientSession("h"))
    await request.run()
    (asked,) = inside.forwarder.asked["CreateTopics"]
    assert asked.context.principal_name == "User:ANONYMOUS"


async def test_a_failure_without_a_place_in_the_response_closes(inside: FakeBrokerInside) -> None:
    request = RequestDispatcher(inside.services, {3: failing(3, 9)}).decode(
        view(request_frame(3, 9, b"")), ClientSession("h")
    )
    with pytest.raises(CloseConnection, match="NOT_CONTROLLER: ask broker 2"):
        await request.run()
