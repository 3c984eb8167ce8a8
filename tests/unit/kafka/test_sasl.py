"""Authentication on a real listener: accepted clients, refusals, and the delay of refusals."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.security.listener_security import (
    ListenerSecurity,
    configured_listeners,
    listener_security_of,
)
from quorate.broker.security.principal import ANONYMOUS, KafkaPrincipal
from quorate.common.types import Endpoint
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import BROKER, FakeBrokerInside, fake_broker
from tests.support.kafka_wire import WireClient, read_answer, request_frame, sized
from tests.support.sasl import credentials, scram_client

METADATA, HANDSHAKE, API_VERSIONS, AUTHENTICATE, CREATE_TOPICS = 3, 17, 18, 36, 19
ASKING: dict[str, Any] = {
    "topics": None,
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
LOGIN_BYTES = 2_048


def guarded_broker(tmp_path: Path, **overrides: Any) -> tuple[FakeBrokerInside, ListenerSecurity]:  # noqa: ANN401
    inside = fake_broker(
        tmp_path,
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        sasl_server_max_receive_size=LOGIN_BYTES,
        **{"connection_failed_authentication_delay_ms": 0, **overrides},
    )
    (listener,) = configured_listeners(inside.services.config)
    who = credentials(alice="secret", bob="other")
    return inside, listener_security_of(
        listener, inside.services.config, who, lambda: "nonce-of-the-broker"
    )


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[FakeBrokerInside, Endpoint]]:
    inside, security = guarded_broker(tmp_path)
    inside.metadata.add_topic("t")
    at = await inside.server.start(Endpoint("127.0.0.1", 0), security)
    plain = await inside.start()
    inside.metadata.brokers[BROKER] = inside.metadata.brokers[BROKER].at("SASL_PLAINTEXT", at)
    inside.metadata.changed()
    assert plain != at
    yield inside, at
    await inside.server.stop(grace_ms=100)


Guarded = tuple[FakeBrokerInside, Endpoint]


async def scram(client: WireClient, user: str, password: str, version: int = 2) -> Any:  # noqa: ANN401
    """The response to the last message."""
    assert (await client.ask(HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-512"})).error_code == 0
    who = scram_client(user, password, "SCRAM-SHA-512")
    first = await client.ask(AUTHENTICATE, version, {"auth_bytes": who.first_message()})
    assert first.error_code == 0
    who.process_server_first_message(first.auth_bytes)
    last = await client.ask(AUTHENTICATE, version, {"auth_bytes": who.final_message()})
    if last.error_code == 0:
        who.process_server_final_message(last.auth_bytes)
    return last


async def plain(client: WireClient, message: bytes) -> Any:  # noqa: ANN401
    await client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    return await client.ask(AUTHENTICATE, 2, {"auth_bytes": message})


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_user_logs_in_and_is_served_at_its_own_listener(
    guarded: Guarded, version: int
) -> None:
    _, at = guarded
    client = await WireClient.connect(at)
    assert (await client.ask(API_VERSIONS, 0, {})).error_code == 0
    assert (await scram(client, "alice", "secret", version)).error_code == 0
    (broker,) = (await client.ask(METADATA, 9, ASKING)).brokers
    assert (broker.host, broker.port) == at
    await client.close()


async def test_requests_name_whoever_logged_in(guarded: Guarded) -> None:
    inside, at = guarded
    creating = {"topics": [], "timeout": 1_000, "validate_only": False}
    names = []
    for message in (b"\0alice\0secret", b"\0bob\0other"):
        client = await WireClient.connect(at)
        assert (await plain(client, message)).error_code == 0
        await client.ask(CREATE_TOPICS, 4, creating)
        names.append(inside.forwarder.asked["CreateTopics"][-1].context.principal_name)
        await client.close()
    assert names == ["User:alice", "User:bob"]
    assert KafkaPrincipal("alice") != ANONYMOUS


@pytest.mark.parametrize(
    "message", [b"\0alice\0wrong", b"\0ghost\0secret", b"nonsense", b"", b"\0" * 100]
)
async def test_who_fails_is_told_the_same_whatever_was_wrong_and_closed(
    guarded: Guarded, message: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    _, at = guarded
    client = await WireClient.connect(at)
    with caplog.at_level(logging.DEBUG):
        answer = await plain(client, message)
        assert await client.is_closed()
    assert answer.error_code == errors_pb2.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "authentication failed: invalid credentials for PLAIN"
    assert answer.auth_bytes == b""
    assert "authentication by PLAIN" in caplog.text
    for secret in ("secret", "wrong"):
        assert secret not in caplog.text
    await client.close()


async def test_a_forged_proof_and_a_stranger_look_alike(guarded: Guarded) -> None:
    _, at = guarded
    told = []
    for user, password in (("alice", "wrong"), ("ghost", "secret")):
        client = await WireClient.connect(at)
        answer = await scram(client, user, password)
        told.append((answer.error_code, answer.error_message))
        assert await client.is_closed()
        await client.close()
    assert told[0] == told[1]
    assert told[0][0] == errors_pb2.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("key", [METADATA, CREATE_TOPICS, 0, 1, 60])
async def test_nothing_is_served_before_authentication(guarded: Guarded, key: int) -> None:
    inside, at = guarded
    client = await WireClient.connect(at)
    frame = request_frame(key, {METADATA: 9, 0: 9, 1: 12, 60: 0, CREATE_TOPICS: 5}[key], b"\0" * 64)
    client.send_bytes(sized(frame))
    if key in (1, 60):
        answer = await client.answer()
        (code,) = struct.unpack_from(">h", answer, 9)
        assert code == errors_pb2.ILLEGAL_SASL_STATE
    assert await client.is_closed()
    assert not inside.forwarder.asked
    assert not inside.replicas.logs
    await client.close()


async def test_what_is_sent_along_with_a_failed_login_is_not_done(guarded: Guarded) -> None:
    """Requests that follow a valid token at once run with the principal that it proves."""
    inside, at = guarded
    creating = {"topics": [], "timeout": 1_000, "validate_only": False}
    for password, expected in ((b"wrong", []), (b"secret", ["User:alice"])):
        client = await WireClient.connect(at)
        handshake = request_frame(HANDSHAKE, 1, {"mechanism": "PLAIN"})
        login = request_frame(AUTHENTICATE, 1, {"auth_bytes": b"\0alice\0" + password})
        change = request_frame(CREATE_TOPICS, 4, creating)
        client.send_bytes(b"".join(map(sized, (handshake, login, change))))
        await client.answer()
        code = read_answer(AUTHENTICATE, 1, await client.answer())[1].error_code
        if password == b"wrong":
            assert code == errors_pb2.SASL_AUTHENTICATION_FAILED
            assert await client.is_closed()
        else:
            await client.answer()
        asked = inside.forwarder.asked.get("CreateTopics", [])
        assert [one.context.principal_name for one in asked] == expected
        await client.close()


async def test_sasl_out_of_order_is_said_and_closed(guarded: Guarded) -> None:
    _, at = guarded
    client = await WireClient.connect(at)
    answer = await client.ask(AUTHENTICATE, 1, {"auth_bytes": b"\0alice\0secret"})
    assert answer.error_code == errors_pb2.ILLEGAL_SASL_STATE
    assert await client.is_closed()
    again = await WireClient.connect(at)
    await again.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    answer = await again.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    assert answer.error_code == errors_pb2.ILLEGAL_SASL_STATE
    assert await again.is_closed()
    for one in (client, again):
        await one.close()


async def test_an_unknown_mechanism_is_refused_with_those_there_are(guarded: Guarded) -> None:
    _, at = guarded
    client = await WireClient.connect(at)
    answer = await client.ask(HANDSHAKE, 1, {"mechanism": "GSSAPI"})
    assert answer.error_code == errors_pb2.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert (await scram(client, "alice", "secret")).error_code == 0
    await client.close()


async def test_an_oversized_frame_of_a_stranger_is_not_taken(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    _, at = guarded
    client = await WireClient.connect(at)
    client.send_bytes(struct.pack(">i", LOGIN_BYTES + 1))
    assert await client.is_closed()
    assert f"above sasl.server.max.receive.size={LOGIN_BYTES}" in caplog.text
    await client.close()


async def test_larger_frames_are_taken_once_the_client_is_in(guarded: Guarded) -> None:
    _, at = guarded
    client = await WireClient.connect(at)
    await plain(client, b"\0alice\0secret")
    names = [{"name": "x" * 200 + str(number)} for number in range(50)]
    answer = await client.ask(METADATA, 4, {**ASKING, "topics": names})
    assert len(answer.topics) == 50
    await client.close()


async def test_an_old_client_sends_bare_tokens(guarded: Guarded) -> None:
    _, at = guarded
    client = await WireClient.connect(at)
    assert (await client.ask(HANDSHAKE, 0, {"mechanism": "SCRAM-SHA-256"})).error_code == 0
    who = scram_client("alice", "secret")
    client.send_bytes(sized(who.first_message()))
    who.process_server_first_message(await client.answer())
    client.send_bytes(sized(who.final_message()))
    who.process_server_final_message(await client.answer())
    assert (await client.ask(METADATA, 9, ASKING)).topics[0].name == "t"
    plain_one = await WireClient.connect(at)
    await plain_one.ask(HANDSHAKE, 0, {"mechanism": "PLAIN"})
    plain_one.send_bytes(sized(b"\0bob\0other"))
    assert await plain_one.answer() == b""
    assert (await plain_one.ask(METADATA, 9, ASKING)).topics[0].name == "t"
    wrong = await WireClient.connect(at)
    await wrong.ask(HANDSHAKE, 0, {"mechanism": "PLAIN"})
    wrong.send_bytes(sized(b"\0bob\0"))
    assert await wrong.is_closed()
    for one in (client, plain_one, wrong):
        await one.close()


async def test_without_sasl_a_handshake_is_out_of_place(guarded: Guarded) -> None:
    inside, _ = guarded
    client = await WireClient.connect(inside.metadata.brokers[BROKER].kafka)
    answer = await client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    assert answer.error_code == errors_pb2.ILLEGAL_SASL_STATE
    answer = await client.ask(AUTHENTICATE, 1, {"auth_bytes": b"\0alice\0secret"})
    assert answer.error_code == errors_pb2.ILLEGAL_SASL_STATE
    assert (await client.ask(METADATA, 9, ASKING)).topics[0].name == "t"
    await client.close()


async def test_a_failed_client_waits_for_its_answer(tmp_path: Path) -> None:
    """Guessing costs time, and the time does not reveal what was wrong."""
    inside, security = guarded_broker(tmp_path, connection_failed_authentication_delay_ms=300)
    at = await inside.server.start(Endpoint("127.0.0.1", 0), security)
    client = await WireClient.connect(at)
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await plain(client, b"nonsense")
    assert answer.error_code == errors_pb2.SASL_AUTHENTICATION_FAILED
    assert loop.time() - began >= 0.29
    await client.close()
    await inside.server.stop(grace_ms=100)
