"""The admin benchmark's own requests and answers, as brokers read and write them."""

import asyncio
from typing import Any

import pytest

from bench._admin_wire import (
    ALTER_VERSION,
    CREATE_ACLS,
    DESCRIBE_CONFIGS,
    DESCRIBE_VERSION,
    INCREMENTAL_ALTER_CONFIGS,
    AdminWire,
    Refused,
    parse_value,
)
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.wire import codec
from quorate.broker.kafka.wire.primitives import Cursor

APIS = api_table()


def answer(key: int, version: int, values: dict[str, Any]) -> bytes:
    return codec.encode_response(APIS[key].name, version, {"throttle_time": 0, **values})


def described(code: int, *values: str) -> bytes:
    configs = [
        {
            "name": "k",
            "value": value,
            "read_only": False,
            "config_source": 1,
            "is_sensitive": False,
            "synonyms": [],
        }
        for value in values
    ]
    result = {
        "error_code": code,
        "error_message": "why" if code else None,
        "resource_type": 2,
        "resource_name": "topic",
        "configs": configs,
    }
    return answer(DESCRIBE_CONFIGS, DESCRIBE_VERSION, {"results": [result]})


def test_the_one_value_is_read() -> None:
    assert parse_value(described(0, "v")) == "v"


@pytest.mark.parametrize("wrong", [described(3), described(0), described(0, "v", "w")])
def test_a_refusal_is_no_value(wrong: bytes) -> None:
    with pytest.raises(Refused):
        parse_value(wrong)


async def test_what_is_asked_is_what_brokers_read() -> None:
    """Requests reach a listener that decodes them as a broker does, and refuses the last."""
    seen: list[tuple[str, Any]] = []
    codes = iter((0, 0, 41))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for code in codes:
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size)
            key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
            body = Cursor(memoryview(frame[10 + int.from_bytes(frame[8:10], "big") :]))
            seen.append((APIS[key].name, APIS[key].decode_body(version, body)))
            outcome = {"error_code": code, "error_message": None}
            if key == INCREMENTAL_ALTER_CONFIGS:
                named = {**outcome, "resource_type": 2, "resource_name": "topic"}
                told = answer(key, ALTER_VERSION, {"responses": [named]})
            else:
                told = answer(CREATE_ACLS, version, {"results": [outcome]})
            writer.write((len(told) + 4).to_bytes(4, "big") + frame[4:8] + told)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    wire = await AdminWire.connect(f"{host}:{port}")
    await wire.set_topic_config("topic", "k", "v")
    await wire.allow_read("topic", "alice")
    with pytest.raises(Refused, match="41"):
        await wire.set_topic_config("topic", "k", "w")
    wire.close()
    server.close()
    (_, first), (_, second), _ = seen
    (resource,) = first["resources"]
    assert (resource["resource_name"], resource["configs"][0]["value"]) == ("topic", "v")
    (entry,) = second["creations"]
    assert (entry["principal"], entry["operation"], entry["permission_type"]) == (
        "User:alice",
        3,
        3,
    )
