"""An HTTP listener on a loopback socket: routes, errors, limits and the audit log."""

import asyncio
import io
import logging
from collections.abc import AsyncIterator

import pytest

from quorate.broker.assembly.kafka_listeners import ListenError
from quorate.broker.http import http_connection, http_listener
from quorate.broker.kafka.connection.connection_limits import ConnectionCounts
from quorate.common.grpc_support.refusal_log import RefusalLog
from tests.support.http_listeners import TriedListener


async def test_a_route_gets_its_request_with_the_context_of_a_client() -> None:
    async with TriedListener() as listener:
        answer = await listener.ask("GET", "/seen/a%2Fb")
    assert (answer.status, answer.text) == (200, "a/b")
    (context,) = listener.contexts
    assert str(context.principal) == "User:ANONYMOUS"
    assert (context.client_host, context.listener) == ("127.0.0.1", "REGISTRY")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("DELETE", "/seen/x", 405)]
)
async def test_errors_of_routing_are_shown_like_others(method: str, path: str, status: int) -> None:
    async with TriedListener() as listener:
        answer = await listener.ask(method, path)
    assert (answer.status, answer.json()["error_code"]) == (status, status)
    assert ("Allow" in answer.headers) == (status == 405)


async def test_changes_and_denials_are_audited_and_reads_are_not() -> None:
    async with TriedListener() as listener:
        await listener.ask("GET", "/seen/x")
        await listener.ask("POST", "/made/one", data=b"good")
        await listener.ask("POST", "/made/two", data=b"bad")
        await listener.ask("GET", "/forbidden")
    lines = [(one["api"], one["resource"], one["result"]) for one in listener.audited]
    assert lines == [
        ("Make", "thing one", "NONE"),
        ("Make", "thing two", "42201"),
        ("Forbidden", "/forbidden", "40301"),
    ]
    assert listener.audited[0]["principal"] == "User:ANONYMOUS"
    assert listener.audited[0]["client_host"] == "127.0.0.1"


async def test_a_defect_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async with TriedListener() as listener:
        answer = await listener.ask("GET", "/broken")
    assert answer.status == 500
    assert "defect" not in answer.text
    assert "a defect" in caplog.text


async def test_a_body_that_is_too_large_or_too_slow_is_refused() -> None:
    async def never_ends() -> AsyncIterator[bytes]:
        yield b"begin"
        await asyncio.Event().wait()

    too_large = io.BytesIO(bytes((1 << 20) + 1))
    async with TriedListener() as listener:
        assert (await listener.ask("POST", "/made/x", data=too_large)).status == 413
        assert (await listener.ask("POST", "/made/x", data=never_ends())).status == 408


async def test_a_packed_body_counts_unpacked() -> None:
    zeros = io.BytesIO(bytes(8 << 20))
    async with TriedListener() as listener:
        answer = await listener.ask("POST", "/made/x", data=zeros, compress="deflate")
    assert answer.status == 413


async def all_of(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the connection is closed or reset."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_connections_beyond_the_limit_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with TriedListener(http_max_connections=1) as listener:
        host, _, port = listener.url.removeprefix("http://").partition(":")
        _reader, first = await asyncio.open_connection(host, int(port))
        first.write(b"GET /seen/x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in await _reader.readline()
        second, second_writer = await asyncio.open_connection(host, int(port))
        assert await all_of(second) == b""
        second_writer.close()
        first.close()
    assert "http.max.connections=1 connections are open already" in caplog.text


async def test_a_head_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "IDLE_TIMEOUT_S", 0.05)
    async with TriedListener() as listener:
        host, _, port = listener.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /seen/x HTTP/1.1\r\nHost: ")
        assert await reader.read() == b""
        writer.close()


class StalledTransport(asyncio.Transport):
    """A transport whose client reads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = asyncio.Event()

    def abort(self) -> None:
        self.aborted.set()


async def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TriedListener().config
    register = http_connection.ConnectionRegister(ConnectionCounts(config), RefusalLog("test"))
    connection = http_connection.HttpConnection(register, asyncio.Protocol())
    transport = StalledTransport()
    connection.connection_made(transport)
    monkeypatch.setattr(http_connection, "READ_NOTHING_S", 3_600.0)
    connection.pause_writing()
    connection.resume_writing()
    monkeypatch.setattr(http_connection, "READ_NOTHING_S", 0.0)
    connection.pause_writing()
    await transport.aborted.wait()
    assert len(register) == 1
    connection.connection_lost(None)
    assert len(register) == 0


async def test_a_taken_address_is_named() -> None:
    async with TriedListener() as listener:
        with pytest.raises(ListenError, match=r"registry\.listener"):
            await TriedListener(registry_listener=listener.url).__aenter__()
