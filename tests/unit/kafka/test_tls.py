"""TLS listeners on real sockets: accepted clients, and certificates that change."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.rpc.listener_sockets import ListenerSockets
from quorate.broker.security.listener_security import configured_listeners, listener_security_of
from quorate.broker.security.listener_tls import ListenerTls
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.tls.identity import Role, SecurityError
from quorate.common.types import Endpoint
from tests.support.kafka_fakes import FakeBrokerInside, fake_broker
from tests.support.kafka_wire import WireClient
from tests.support.sasl import credentials

API_VERSIONS, CREATE_TOPICS, HANDSHAKE, AUTHENTICATE = 18, 19, 17, 36
ANY_PORT = Endpoint("127.0.0.1", 0)


class Bench:
    """An authority, a broker's inside, and listeners on it."""

    def __init__(self, folder: Path) -> None:
        self.authority = CertificateAuthority.open(folder / "certs")
        self.authority.issue_node(Role.BROKER, 1, hosts=["127.0.0.1"])
        self.keystore = self.authority.folder / "broker-1.pem"
        self.folder = folder
        self.inside: FakeBrokerInside

    def broker(self, **overrides: Any) -> FakeBrokerInside:  # noqa: ANN401 - configuration
        self.inside = fake_broker(
            self.folder,
            ssl_keystore_location=str(self.keystore),
            ssl_truststore_location=str(self.authority.truststore),
            **overrides,
        )
        return self.inside

    async def listen(self, protocol: str = "SSL", **overrides: Any) -> Endpoint:  # noqa: ANN401
        inside = self.broker(listeners=f"{protocol}://127.0.0.1:0", **overrides)
        (listener,) = configured_listeners(inside.services.config)
        door = listener_security_of(
            listener, inside.services.config, credentials(alice="secret"), lambda: "nonce"
        )
        return await inside.server.start(ANY_PORT, door, ListenerTls(inside.services.config))

    def trust(self, stem: str | None = None) -> ssl.SSLContext:
        """Return a client's TLS context, with the client certificate that ``stem`` names."""
        context = ssl.create_default_context(cafile=str(self.authority.truststore))
        if stem is not None:
            context.load_cert_chain(self.authority.folder / f"{stem}.pem")
        return context


async def connect(at: Endpoint, trust: ssl.SSLContext) -> WireClient:
    return WireClient(*await asyncio.open_connection(at.host, at.port, ssl=trust))


async def served(at: Endpoint, trust: ssl.SSLContext) -> bool:
    try:
        client = await connect(at, trust)
    except (ssl.SSLError, ConnectionError):
        return False
    try:
        return int((await client.ask(API_VERSIONS, 0, {})).error_code) == 0
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return False
    finally:
        client._writer.transport.abort()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    await made.inside.server.stop(grace_ms=100)


async def asked_by(bench: Bench, client: WireClient) -> str:
    await client.ask(CREATE_TOPICS, 4, {"topics": [], "timeout": 1_000, "validate_only": False})
    name: str = bench.inside.forwarder.asked["CreateTopics"][-1].context.principal_name
    return name


@pytest.mark.parametrize(
    ("auth", "stem", "who"),
    [
        ("none", None, "User:ANONYMOUS"),
        ("none", "alice", "User:ANONYMOUS"),
        ("requested", None, "User:ANONYMOUS"),
        ("requested", "alice", "User:CN=alice"),
        ("required", "alice", "User:CN=alice"),
    ],
)
async def test_who_a_client_is_by_its_certificate(
    bench: Bench, auth: str, stem: str | None, who: str
) -> None:
    bench.authority.issue_admin("alice")
    at = await bench.listen(ssl_client_auth=auth)
    client = await connect(at, bench.trust(stem))
    assert await asked_by(bench, client) == who
    await client.close()


async def test_rules_map_names(bench: Bench) -> None:
    bench.authority.issue_admin("alice")
    rules = "RULE:^CN=(.*)$/$1/U"
    at = await bench.listen(ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    client = await connect(at, bench.trust("alice"))
    assert await asked_by(bench, client) == "User:ALICE"
    await client.close()


async def test_a_certificate_that_is_nobodys_is_closed_out(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.authority.issue_admin("mallory")
    rules = "RULE:^CN=alice$/alice/"
    at = await bench.listen(ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    client = await connect(at, bench.trust("mallory"))
    assert await client.is_closed()
    assert "fits no rule of ssl.principal.mapping.rules" in caplog.text
    await client.close()


async def test_a_stranger_and_plain_text_do_not_get_through_the_handshake(bench: Bench) -> None:
    at = await bench.listen(ssl_client_auth="required")
    other = CertificateAuthority.open(bench.folder / "other")
    other.issue_admin("mallory")
    mallory = bench.trust()
    mallory.load_cert_chain(other.folder / "mallory.pem")
    for trust in (mallory, bench.trust()):
        assert not await served(at, trust)
    plain = await WireClient.connect(at)
    plain.send(API_VERSIONS, 0, {})
    while not await plain.is_closed():  # a TLS alert may come before the end
        continue
    await plain.close()
    bench.authority.issue_admin("alice")
    assert await served(at, bench.trust("alice"))


async def test_sasl_over_tls(bench: Bench) -> None:
    at = await bench.listen("SASL_SSL", sasl_enabled_mechanisms="PLAIN")
    client = await connect(at, bench.trust())
    await client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
    login = await client.ask(AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0secret"})
    assert login.error_code == 0
    assert await asked_by(bench, client) == "User:alice"
    await client.close()


def serial(client: WireClient) -> int:
    tls = client._writer.get_extra_info("ssl_object")
    return int(tls.getpeercert()["serialNumber"], 16)


async def test_new_certificates_are_taken_up_and_open_connections_stay(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    inside = bench.broker()
    tls = ListenerTls(inside.services.config)
    listening = ListenerSockets(
        lambda: inside.server._connection(_open()), tls, check_interval_s=0.01
    )
    at = await listening.start(ANY_PORT)
    first = await connect(at, bench.trust())
    others: list[WireClient] = []
    with caplog.at_level(logging.INFO):
        bench.authority.issue_node(Role.BROKER, 1, hosts=["127.0.0.1"], replace=True)
        second = first
        while serial(second) == serial(first):
            with contextlib.suppress(ConnectionError):  # asyncio's loop may cut one in between
                second = await connect(at, bench.trust())
            others.append(second)
    assert caplog.text.count("new certificates of the listeners are in use") == 1
    for client in {id(one): one for one in (first, *others)}.values():
        assert (await client.ask(API_VERSIONS, 0, {})).error_code == 0
        await client.close()
    listening.close()
    await listening.wait_closed()
    assert not await served(at, bench.trust())


def _open() -> Any:  # noqa: ANN401
    from quorate.broker.security.listener_security import OPEN_LISTENER

    return OPEN_LISTENER


async def test_a_broken_new_file_keeps_the_old_and_says_so_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ListenerTls(bench.broker().services.config)
    kept, good = tls.context, bench.keystore.read_bytes()
    assert not tls.renewed()
    bench.keystore.write_text("nonsense")
    for _ in range(3):
        assert not tls.renewed()
    assert tls.context is kept
    assert caplog.text.count("the listeners keep their certificates") == 1
    assert "ssl.keystore.location" in caplog.text
    bench.keystore.unlink()
    assert not tls.renewed()
    assert tls.context is kept
    bench.keystore.write_bytes(good)
    bench.keystore.chmod(0o600)
    assert tls.renewed()
    assert tls.context is not kept


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"ssl_keystore_location": ""}, "ssl.keystore.location is missing"),
        ({"ssl_keystore_location": "/nowhere.pem"}, "ssl.keystore.location=/nowhere.pem"),
        (
            {"ssl_truststore_location": "", "ssl_client_auth": "required"},
            "ssl.truststore.location is missing",
        ),
        ({"ssl_truststore_location": "/nowhere.pem"}, "ssl.truststore.location=/nowhere.pem"),
    ],
)
async def test_files_that_cannot_be_used_are_named(
    bench: Bench, overrides: dict[str, str], said: str
) -> None:
    bench.broker()
    values: dict[str, Any] = {
        "ssl_keystore_location": str(bench.keystore),
        "ssl_truststore_location": str(bench.authority.truststore),
    }
    config = fake_broker(bench.folder, **{**values, **overrides}).services.config
    with pytest.raises(SecurityError, match=said):
        ListenerTls(config)


async def test_a_private_key_that_others_may_read_is_refused(bench: Bench) -> None:
    config = bench.broker().services.config
    bench.keystore.chmod(0o644)
    with pytest.raises(SecurityError, match="chmod 600"):
        ListenerTls(config)
