"""Security options of clients, and logging in at real listeners with them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.rpc.grpc_listener import GrpcRefusals, client_listener, read_certificates
from quorate.broker.security.client_guard import VerifiedPasswords
from quorate.broker.security.listener_security import configured_listeners, listener_security_of
from quorate.broker.security.listener_tls import ListenerTls
from quorate.client.admin import AdminClient, AsyncAdminClient
from quorate.client.bootstrap import BootstrapError, discover
from quorate.client.errors import ClusterUnreachable
from quorate.client.lasting_channel import keep_a_channel
from quorate.client.librdkafka_options import as_librdkafka
from quorate.client.sasl_client import LoginFailed, login
from quorate.client.security import ClientSecurity, InvalidOption, Securities, read_options
from quorate.cluster.client_options import client_options_of
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.tls.identity import Role
from quorate.common.types import Endpoint
from quorate_proto.v1 import replication_pb2, replication_pb2_grpc
from tests.support.kafka_fakes import BROKER, FakeBrokerInside, fake_broker
from tests.support.sasl import credentials

HERE = Endpoint("127.0.0.1", 0)
ANN = {"sasl.username": "ann", "sasl.password": "secret"}


# --- options --------------------------------------------------------------------------------------


def test_without_options_all_is_plain_text() -> None:
    security = read_options({})
    assert security == Securities(ClientSecurity(), ClientSecurity())
    assert security.grpc.channel_credentials() is None


def test_options_are_for_both_unless_they_are_for_grpc() -> None:
    security = read_options(
        {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": "ca.pem",
            "sasl.mechanisms": "scram-sha-256",
            **ANN,
            "grpc.security.protocol": "SSL",
            "grpc.ssl.truststore.location": "other.pem",
        }
    )
    assert (security.kafka.protocol, security.kafka.ca) == ("SASL_SSL", "ca.pem")
    assert (security.kafka.mechanism, security.kafka.username) == ("SCRAM-SHA-256", "ann")
    assert (security.grpc.protocol, security.grpc.ca) == ("SSL", "other.pem")


def test_kafkas_keystore_is_certificate_and_key() -> None:
    security = read_options({"security.protocol": "SSL", "ssl.keystore.location": "me.pem"})
    assert (security.grpc.certificate, security.grpc.key) == ("me.pem", "me.pem")


def test_passwords_never_go_over_grpc_in_clear() -> None:
    security = read_options({"security.protocol": "SASL_PLAINTEXT", **ANN})
    assert security.kafka.has_user
    assert (security.grpc.protocol, security.grpc.has_user) == ("PLAINTEXT", False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS': it may be PLAINTEXT, SSL"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism is 'GSSAPI'"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.username and sasl.password"),
        ({"security.protocol": "SASL_SSL", "sasl.username": "a"}, "needs sasl.username and"),
        ({"ssl.key.location": "k"}, "needs ssl.certificate.location"),
        ({"ssl.ca.locatoin": "k"}, "unknown security option 'ssl.ca.locatoin': did you mean"),
        ({"foo": "k"}, "unknown security option 'foo': known are security.protocol, "),
        ({"ssl.endpoint.identification.algorithm": "some"}, "it may be https, none"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_by_name(
    options: Mapping[str, str], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        read_options(options)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    options = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "none.pem")}
    with pytest.raises(InvalidOption, match=r"ssl.ca.location=.*none.pem: No such file"):
        read_options(options).grpc.channel_credentials()


def test_passwords_are_in_no_repr() -> None:
    assert "secret" not in repr(read_options({"security.protocol": "SASL_SSL", **ANN}))


def test_librdkafka_is_told_the_same() -> None:
    given = {"security.protocol": "SASL_SSL", "ssl.keystore.location": "me.pem", **ANN}
    assert as_librdkafka(given) == {
        "security.protocol": "SASL_SSL",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.pem",
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanism": "SCRAM-SHA-512",
        **ANN,
    }
    assert as_librdkafka({"grpc.security.protocol": "SSL"})["security.protocol"] == "PLAINTEXT"


def test_a_local_clusters_folder_says_how_to_reach_it(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    config = tmp_path / "config" / "broker-1.toml"
    config.write_text('"broker.id" = 1\n')
    assert client_options_of(tmp_path) == {}
    config.write_text('"broker.id" = 1\n"grpc.security.protocol" = "SSL"\n')
    security = read_options(client_options_of(tmp_path))
    assert security.kafka == ClientSecurity()
    assert security.grpc.certificate == str(tmp_path / "certs" / "admin.pem")
    assert security.grpc.identification == "none"


# --- SCRAM, as RFC 7677 has it --------------------------------------------------------------------

CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)


def test_scram_says_what_the_standard_says() -> None:
    exchange = login("SCRAM-SHA-256", "user", "pencil", lambda: "rOprNGfwEbeRWgbNEkqO")
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(CHALLENGE) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("last", [b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", b"", b"e=no"])
def test_a_broker_that_does_not_know_the_password_is_not_believed(last: bytes) -> None:
    exchange = login("SCRAM-SHA-256", "user", "pencil", lambda: "rOprNGfwEbeRWgbNEkqO")
    next(exchange)
    exchange.send(CHALLENGE)
    with pytest.raises(LoginFailed, match="did not show that it knows"):
        exchange.send(last)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=mine,s=AAAA",
        b"r=mine,s=?,i=4096",
        b"r=mine,s=AAAA,i=many",
        b"r=mine,s=AAAA,i=0",
        b"r=mine,s=AAAA,i=99999999",
        b"r=another,s=AAAA,i=4096",
    ],
)
def test_a_malformed_challenge_ends_the_login(challenge: bytes) -> None:
    exchange = login("SCRAM-SHA-512", "user", "pencil", lambda: "mine")
    next(exchange)
    with pytest.raises(LoginFailed):
        exchange.send(challenge)


# --- a Kafka listener -----------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    found = CertificateAuthority.open(tmp_path / "certs")
    found.issue_node(Role.BROKER, 1, hosts=["127.0.0.1"])
    found.issue_admin("admin")
    return found


@pytest.fixture
async def guarded(
    tmp_path: Path, authority: CertificateAuthority
) -> AsyncIterator[tuple[FakeBrokerInside, str]]:
    inside = fake_broker(
        tmp_path / "broker",
        listeners="SASL_SSL://127.0.0.1:0",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        ssl_keystore_location=str(authority.folder / "broker-1.pem"),
        connection_failed_authentication_delay_ms=0,
    )
    (listener,) = configured_listeners(inside.services.config)
    door = listener_security_of(
        listener, inside.services.config, credentials(ann="secret"), lambda: "nonce"
    )
    at = await inside.server.start(HERE, door, ListenerTls(inside.services.config))
    await inside.start()
    inside.metadata.brokers[BROKER] = inside.metadata.brokers[BROKER].at("SASL_SSL", at)
    inside.metadata.changed()
    yield inside, str(at)
    await inside.server.stop(grace_ms=100)


def protected(authority: CertificateAuthority, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.truststore),
        **ANN,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_cluster_is_found_through_a_guarded_listener(
    guarded: tuple[FakeBrokerInside, str], authority: CertificateAuthority, mechanism: str
) -> None:
    security = read_options(protected(authority, sasl_mechanism=mechanism)).kafka
    found = await asyncio.to_thread(discover, guarded[1], security=security)
    assert [broker.kafka for broker in found.brokers] == [guarded[1]]


async def test_a_wrong_password_is_said_at_once(
    guarded: tuple[FakeBrokerInside, str], authority: CertificateAuthority
) -> None:
    security = read_options(protected(authority, sasl_password="wrong")).kafka
    with pytest.raises(LoginFailed, match="user 'ann' or the password is refused"):
        await asyncio.to_thread(discover, guarded[1], security=security)


async def test_a_server_of_another_authority_is_not_believed(
    guarded: tuple[FakeBrokerInside, str], authority: CertificateAuthority, tmp_path: Path
) -> None:
    other = CertificateAuthority.open(tmp_path / "other")
    security = read_options(protected(authority, ssl_ca_location=str(other.truststore))).kafka
    with pytest.raises(BootstrapError, match="CERTIFICATE_VERIFY_FAILED"):
        await asyncio.to_thread(discover, guarded[1], security=security, timeout_ms=2_000)


async def test_a_kafka_listener_at_another_name_must_be_allowed(
    guarded: tuple[FakeBrokerInside, str], authority: CertificateAuthority
) -> None:
    elsewhere = guarded[1].replace("127.0.0.1", "localhost")
    strict = read_options(protected(authority)).kafka
    with pytest.raises(BootstrapError, match="Hostname mismatch"):
        await asyncio.to_thread(discover, elsewhere, security=strict, timeout_ms=5_000)
    anywhere = {**protected(authority), "ssl.endpoint.identification.algorithm": "none"}
    lenient = read_options(anywhere).kafka
    found = await asyncio.to_thread(discover, elsewhere, security=lenient)
    assert found.brokers


# --- the gRPC listener ----------------------------------------------------------------------------


class Reads(replication_pb2_grpc.RangeReadServicer):
    async def DescribeTopics(
        self, request: replication_pb2.DescribeTopicsRequest, _context: object
    ) -> replication_pb2.DescribeTopicsResponse:
        return replication_pb2.DescribeTopicsResponse(
            topics=[replication_pb2.TopicDescription(topic="orders")]
        )


@pytest.fixture(params=["SSL", "SASL_SSL"])
async def at_grpc(
    authority: CertificateAuthority, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """A broker's address, and options that let a client in."""
    config = BROKER_SPEC.parse(
        {
            "broker.id": 1,
            "log.dir": "/nowhere",
            "quorum.bootstrap.servers": "127.0.0.1:1",
            "quorum.ssl.keystore.location": str(authority.folder / "broker-1.pem"),
            "quorum.ssl.truststore.location": str(authority.truststore),
            "grpc.security.protocol": request.param,
            "grpc.ssl.client.auth": "required" if request.param == "SSL" else "none",
        }
    )
    passwords = VerifiedPasswords(credentials(ann="secret").passwords)
    listener = client_listener(config, read_certificates(config).clients, passwords, GrpcRefusals())
    replication_pb2_grpc.add_RangeReadServicer_to_server(
        Reads(),  # type: ignore[abstract]  # gRPC refuses the rest
        listener.server,
    )
    address = str(listener.bind(HERE))
    await listener.server.start()
    options = protected(authority, security_protocol=request.param)
    if request.param == "SSL":
        options |= {"ssl.keystore.location": str(authority.folder / "admin.pem")}
    yield address, options
    await listener.server.stop(None)


async def test_both_clients_get_in_with_what_is_asked_for(
    at_grpc: tuple[str, dict[str, str]],
) -> None:
    address, options = at_grpc
    async with AsyncAdminClient(grpc_addresses=[address], options=options) as admin:
        assert await admin.list_topics() == ["orders"]

    def blocking() -> list[str]:
        with AdminClient(grpc_addresses=[address], options=options) as admin:
            return admin.list_topics()

    assert await asyncio.to_thread(blocking) == ["orders"]


async def test_a_host_that_the_certificate_does_not_name_must_be_allowed(
    at_grpc: tuple[str, dict[str, str]],
) -> None:
    address, options = at_grpc
    elsewhere = address.replace("127.0.0.1", "localhost")
    async with AsyncAdminClient(
        grpc_addresses=[elsewhere], options=options, timeout_ms=500
    ) as strict:
        with pytest.raises(ClusterUnreachable):
            await strict.list_topics()
    lenient = {**options, "ssl.endpoint.identification.algorithm": "none"}
    async with AsyncAdminClient(grpc_addresses=[elsewhere], options=lenient) as admin:
        assert await admin.list_topics() == ["orders"]


@pytest.mark.parametrize("missing", ["everything", "what proves it"])
async def test_others_stay_outside(at_grpc: tuple[str, dict[str, str]], missing: str) -> None:
    address, options = at_grpc
    wrong = {} if missing == "everything" else {**options, "sasl.password": "wrong"}
    wrong.pop("ssl.keystore.location", None)
    async with AsyncAdminClient(grpc_addresses=[address], options=wrong, timeout_ms=300) as admin:
        with pytest.raises(ClusterUnreachable):
            await admin.list_topics()


def test_a_channel_lasts_while_users_have_credentials() -> None:
    """Closing the last channel of a user could block (tests/integration/test_closing_channels)."""
    keep_a_channel.cache_clear()

    ClientSecurity(protocol="SSL").channel_credentials()
    assert not keep_a_channel.cache_info().currsize

    ClientSecurity(protocol="SASL_SSL", username="u", password="p").channel_credentials()
    assert keep_a_channel.cache_info().currsize
