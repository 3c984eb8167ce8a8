"""A broker's gRPC ports over real sockets: who gets in, and as whom."""

import asyncio
import base64
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.rpc.grpc_listener import (
    GrpcListener,
    GrpcRefusals,
    client_listener,
    inter_broker_listener,
    read_certificates,
)
from quorate.broker.rpc.peer_channels import (
    GRPC_REQUEST_BYTES_MAX,
    Peer,
    PeerChannels,
    open_channel,
)
from quorate.broker.security.client_guard import VerifiedPasswords, stamp
from quorate.broker.security.config_file import load_config
from quorate.broker.security.grpc_caller import Caller, caller
from quorate.broker.security.password_cache import PasswordCache
from quorate.broker.security.peer_guard import KnownController
from quorate.broker.security.principal import ANONYMOUS, KafkaPrincipal
from quorate.common.configuration import ConfigError, Configuration
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.tls.identity import Role, Security
from quorate.common.tls.renewable import RenewableSecurity
from quorate.common.types import BrokerId, Endpoint
from quorate.metadata_log.image import Image
from quorate_proto.v1 import admin_pb2
from tests.support.followers import ShownImage
from tests.support.local_quorum import LocalQuorum, LocalQuorumClient
from tests.support.quorum_cluster import security_in

CREATE = "/quorate.v1.Admin/CreateTopics"
ALLOCATE = "/quorate.v1.Admin/AllocateProducerIds"
HERE = Endpoint("127.0.0.1", 0)
REFUSED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED)

Request = admin_pb2.CreateTopicsRequest | admin_pb2.AllocateProducerIdsRequest
Metadata = tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    found = CertificateAuthority.open(tmp_path_factory.mktemp("certs"))
    for broker_id in (1, 2, 3):
        found.issue_node(Role.BROKER, broker_id)
    found.issue_node(Role.VOTER, 2)
    found.issue_admin("alice")
    other = CertificateAuthority.open(found.folder / "other")
    other.issue_node(Role.BROKER, 2)
    return found


def renewable(authority: CertificateAuthority, broker_id: int) -> RenewableSecurity:
    def load() -> Security:
        return security_in(authority, f"broker-{broker_id}", Role.BROKER)

    return RenewableSecurity(load)


class Served:
    """What reached the service behind a listener."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.callers: list[Caller] = []

    def add_to(self, server: grpc.aio.Server) -> None:
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                self._answer,
                request_deserializer=kind.FromString,
                response_serializer=admin_pb2.CreateTopicsResponse.SerializeToString,
            )
            for name, kind in (
                ("CreateTopics", admin_pb2.CreateTopicsRequest),
                ("AllocateProducerIds", admin_pb2.AllocateProducerIdsRequest),
            )
        }
        handler = grpc.method_handlers_generic_handler("quorate.v1.Admin", handlers)
        server.add_generic_rpc_handlers((handler,))

    async def _answer(self, request: Request, _context: object) -> admin_pb2.CreateTopicsResponse:
        self.requests.append(request)
        self.callers.append(caller())
        return admin_pb2.CreateTopicsResponse()


@asynccontextmanager
async def serving(listener: GrpcListener) -> AsyncIterator[tuple[Served, Endpoint]]:
    served = Served()
    served.add_to(listener.server)
    endpoint = listener.bind(HERE)
    await listener.server.start()
    try:
        yield served, endpoint
    finally:
        await listener.server.stop(None)


async def ask(
    channel: grpc.aio.Channel,
    request: Request,
    method: str = CREATE,
    metadata: Metadata = (),
) -> grpc.StatusCode:
    """How the call ended."""
    call = channel.unary_unary(
        method, type(request).SerializeToString, admin_pb2.CreateTopicsResponse.FromString
    )
    try:
        await call(request, timeout=5, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def no_controller() -> KnownController:
    """The log has no controller yet."""
    images = MetadataFollower(LocalQuorumClient(LocalQuorum(), description="a test"))
    return KnownController(images, lambda: False)


def forwarded(by: int, principal: str = "User:ann") -> admin_pb2.CreateTopicsRequest:
    return admin_pb2.CreateTopicsRequest(
        context=admin_pb2.RequestContext(forwarded_by=by, principal_name=principal)
    )


# --- brokers --------------------------------------------------------------------------------------


def strangers(authority: CertificateAuthority) -> Iterator[tuple[str, Security | None]]:
    yield "plain text", None
    yield "a client's certificate", security_in(authority, "alice", Role.ADMIN)
    yield "a voter's certificate", security_in(authority, "voter-2", Role.VOTER)
    other = CertificateAuthority.open(authority.folder / "other")
    yield "another authority's broker 2", security_in(other, "broker-2", Role.BROKER)


async def test_f5_strangers_at_the_port_of_brokers_get_nothing(
    authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    listener = inter_broker_listener(renewable(authority, 1), GrpcRefusals(), no_controller())
    async with serving(listener) as (served, endpoint):
        for kind, security in strangers(authority):
            channel = _trusting(endpoint, authority, security)
            for _ in range(3):
                assert await ask(channel, forwarded(2)) in REFUSED, kind
            await channel.close()
        without = _trusting(endpoint, authority, None, tls=True)
        assert await ask(without, forwarded(2)) is grpc.StatusCode.UNAVAILABLE
        await without.close()
        assert served.requests == []
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 2, "one line for each whom TLS let in; the rest is in grpc's own log"
    assert all("only brokers are served here" in line for line in said)


async def test_f5_a_broker_forwards_as_itself_and_is_believed_then(
    authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    listener = inter_broker_listener(renewable(authority, 1), GrpcRefusals(), no_controller())
    async with serving(listener) as (served, endpoint):
        second = security_in(authority, "broker-2", Role.BROKER)
        async with open_channel(Peer(BrokerId(1), endpoint), second) as channel:
            for _ in range(3):
                assert await ask(channel, forwarded(3)) is grpc.StatusCode.PERMISSION_DENIED
                assert await ask(channel, forwarded(-1)) is grpc.StatusCode.PERMISSION_DENIED
            assert served.requests == []
            assert await ask(channel, forwarded(2)) is grpc.StatusCode.OK
    assert [one.context.principal_name for one in served.requests] == ["User:ann"]
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1, "one line per peer"
    assert "CreateTopics of broker 3 is not broker 2's to send" in said[0]


async def test_who_answers_must_be_the_broker_that_was_meant(
    authority: CertificateAuthority,
) -> None:
    """Broker 3 where broker 1 was: a port that changed hands, or an attack."""
    listener = inter_broker_listener(renewable(authority, 3), GrpcRefusals(), no_controller())
    async with serving(listener) as (served, endpoint):
        second = security_in(authority, "broker-2", Role.BROKER)
        async with open_channel(Peer(BrokerId(1), endpoint), second) as channel:
            assert await ask(channel, forwarded(2)) is grpc.StatusCode.UNAVAILABLE
        async with open_channel(Peer(BrokerId(3), endpoint), second) as channel:
            assert await ask(channel, forwarded(2)) is grpc.StatusCode.OK
    assert len(served.requests) == 1


async def test_certificates_are_renewed_on_both_sides_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorate.common.tls.renewable.LOOK_INTERVAL_S", 0.0)
    authority = CertificateAuthority.open(tmp_path / "certs")
    for broker_id in (1, 2):
        authority.issue_node(Role.BROKER, broker_id)
    listener = inter_broker_listener(renewable(authority, 1), GrpcRefusals(), no_controller())
    channels = PeerChannels(security=renewable(authority, 2))
    async with serving(listener) as (_, endpoint):
        peer = Peer(BrokerId(1), endpoint)
        first = channels.get(peer)
        assert await ask(first, forwarded(2)) is grpc.StatusCode.OK
        assert channels.get(peer) is first, "one connection for all"
        authority.issue_node(Role.BROKER, 1, replace=True)
        second_broker = security_in(authority, "broker-2", Role.BROKER)
        renewed = _own_certificate(authority, "broker-1")
        assert await _served_certificate(endpoint, second_broker) == renewed
        authority.issue_node(Role.BROKER, 2, replace=True)
        second = channels.get(peer)
        assert second is not first
        assert await ask(second, forwarded(2)) is grpc.StatusCode.OK
        with pytest.raises(grpc.aio.UsageError, match="closed"):
            await ask(first, forwarded(2))
        await channels.close()


# --- clients --------------------------------------------------------------------------------------


def configured(authority: CertificateAuthority, **values: object) -> Configuration:
    return BROKER_SPEC.parse(
        {
            "broker.id": 1,
            "log.dir": "/nowhere",
            "quorum.bootstrap.servers": "127.0.0.1:1",
            "quorum.ssl.keystore.location": str(authority.folder / "broker-1.pem"),
            "quorum.ssl.truststore.location": str(authority.truststore),
            **{key.replace("_", "."): value for key, value in values.items()},
        }
    )


NO_USERS = Image()


def users(**passwords: str) -> VerifiedPasswords:
    def verify(user: str, password: str) -> KafkaPrincipal | None:
        return KafkaPrincipal(user) if passwords.get(user) == password else None

    return VerifiedPasswords(PasswordCache(ShownImage(lambda: NO_USERS), verify, b"key"))


def for_clients(config: Configuration, passwords: VerifiedPasswords | None = None) -> GrpcListener:
    return client_listener(
        config, read_certificates(config).clients, passwords or users(), GrpcRefusals()
    )


async def test_f5_q14_a_client_cannot_say_who_it_is_nor_that_it_is_old(
    authority: CertificateAuthority,
) -> None:
    async with (
        serving(for_clients(configured(authority))) as (served, endpoint),
        grpc.aio.insecure_channel(str(endpoint)) as channel,
    ):
        request = forwarded(2, "User:root")
        request.context.token_authenticated = True
        request.context.accept_over_quota = True
        request.context.client_host = "10.0.0.9"
        request.context.api_name = "DescribeCluster"
        assert await ask(channel, request) is grpc.StatusCode.OK
    context = served.requests[0].context
    assert not context.api_name, "the audit trail tells what was really asked"
    assert not context.accept_over_quota, "a quota is not walked around (Q14)"
    assert (context.principal_name, context.forwarded_by) == ("User:ANONYMOUS", -1)
    assert (context.client_host, context.token_authenticated) == ("127.0.0.1", False)
    assert served.callers == [Caller(ANONYMOUS, "127.0.0.1")]


def test_e3_f5_only_what_a_client_may_say_is_kept() -> None:
    """Fields that are added to the context later are covered too: the list is of what is kept."""
    request = admin_pb2.AlterConfigsRequest()
    for field in request.context.DESCRIPTOR.fields:
        said = {field.CPPTYPE_STRING: "said", field.CPPTYPE_BOOL: True}.get(
            field.cpp_type, 1_000_000
        )
        setattr(request.context, field.name, said)
    stamp(request, ANONYMOUS, "10.0.0.9")
    assert request.context == admin_pb2.RequestContext(
        principal_name="User:ANONYMOUS",
        client_host="10.0.0.9",
        client_id="said",
        timeout_ms=1_000_000,
        forwarded_by=-1,
    )


async def test_a_client_cannot_fill_the_memory_before_it_is_known(
    authority: CertificateAuthority,
) -> None:
    name = "x" * GRPC_REQUEST_BYTES_MAX
    huge = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name)])
    options = [("grpc.max_send_message_length", -1)]
    async with (
        serving(for_clients(configured(authority))) as (served, endpoint),
        grpc.aio.insecure_channel(str(endpoint), options=options) as channel,
    ):
        assert await ask(channel, huge) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert served.requests == []


async def test_what_is_for_brokers_is_not_served_to_clients(
    authority: CertificateAuthority,
) -> None:
    request = admin_pb2.AllocateProducerIdsRequest(
        broker_id=2, context=admin_pb2.RequestContext(forwarded_by=2)
    )
    async with (
        serving(for_clients(configured(authority))) as (served, endpoint),
        grpc.aio.insecure_channel(str(endpoint)) as channel,
    ):
        assert await ask(channel, request, ALLOCATE) is grpc.StatusCode.PERMISSION_DENIED
    assert served.requests == []


def basic(credentials: str) -> Metadata:
    return (("authorization", "Basic " + base64.b64encode(credentials.encode()).decode()),)


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        basic("ann"),
        basic("ann:wrong"),
        basic("bob:secret"),
        basic(":"),
        (("authorization", "Basic ===="),),
        (("authorization", "Basic /w=="),),
        (("authorization", "Bearer x"),),
    ],
)
async def test_without_the_right_password_nothing_is_served(
    authority: CertificateAuthority, metadata: Metadata
) -> None:
    config = configured(authority, grpc_security_protocol="SASL_SSL")
    async with serving(for_clients(config, users(ann="secret"))) as (served, endpoint):
        channel = _trusting(endpoint, authority, None, tls=True)
        code = await ask(channel, forwarded(-1), metadata=metadata)
        await channel.close()
    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert served.requests == []


async def test_user_and_password_make_a_principal(authority: CertificateAuthority) -> None:
    config = configured(authority, grpc_security_protocol="SASL_SSL")
    async with serving(for_clients(config, users(ann="se:cret"))) as (served, endpoint):
        channel = _trusting(endpoint, authority, None, tls=True)
        code = await ask(channel, forwarded(-1, "User:root"), metadata=basic("ann:se:cret"))
        await channel.close()
    assert code is grpc.StatusCode.OK
    assert served.requests[0].context.principal_name == "User:ann"


async def test_a_required_certificate_makes_a_principal(authority: CertificateAuthority) -> None:
    config = configured(authority, grpc_security_protocol="SSL", grpc_ssl_client_auth="required")
    async with serving(for_clients(config)) as (served, endpoint):
        without = _trusting(endpoint, authority, None, tls=True)
        assert await ask(without, forwarded(-1)) is grpc.StatusCode.UNAVAILABLE
        await without.close()
        alice = _trusting(endpoint, authority, security_in(authority, "alice", Role.ADMIN))
        assert await ask(alice, forwarded(-1, "User:root")) is grpc.StatusCode.OK
        await alice.close()
    assert [one.context.principal_name for one in served.requests] == ["User:CN=alice"]


async def test_passwords_are_hashed_on_threads_of_the_listener_and_once() -> None:
    asked: list[str] = []

    def verify(user: str, password: str) -> KafkaPrincipal | None:
        hashed_by = threading.current_thread().name
        assert hashed_by.startswith("password"), "others wait for the loop's own threads"
        asked.append(password)
        return KafkaPrincipal(user) if password == "right" else None

    passwords = VerifiedPasswords(PasswordCache(ShownImage(lambda: NO_USERS), verify, b"key"))
    for _ in range(3):
        assert await passwords.principal("ann", "right", "10.0.0.9") == KafkaPrincipal("ann")
    assert asked == ["right"]
    assert await passwords.principal("ann", "wrong", "10.0.0.9") is None
    assert await passwords.principal("ann", "wrong", "10.0.0.9") is None
    assert asked == ["right", "wrong", "wrong"]


# --- configuration --------------------------------------------------------------------------------


def written(tmp_path: Path, **values: str) -> Path:
    lines = {
        "log.dir": "/nowhere",
        "quorum.bootstrap.servers": "127.0.0.1:1",
        "quorum.security.protocol": "PLAINTEXT",
        **{key.replace("_", "."): value for key, value in values.items()},
    }
    path = tmp_path / "broker.toml"
    text = "\n".join(f'"{key}" = "{value}"' for key, value in lines.items())
    path.write_text(f'"broker.id" = 1\n{text}\n')
    return path


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"grpc_listener": "10.0.0.1:9192"}, "grpc.listener names 10.0.0.1"),
        ({"inter_broker_listener": "10.0.0.1:9193"}, "inter.broker.listener names 10.0.0.1"),
        ({"grpc_security_protocol": "SSL"}, "grpc.ssl.keystore.location is missing"),
        ({"grpc_security_protocol": "SASL"}, "grpc.security.protocol"),
    ],
)
def test_brokers_speak_plain_text_on_loopback_alone(
    tmp_path: Path, values: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(written(tmp_path, **values), {})


def test_plain_text_on_loopback_is_a_choice(tmp_path: Path) -> None:
    config = load_config(written(tmp_path), {})
    assert read_certificates(config) == (None, None)


# --- helpers --------------------------------------------------------------------------------------


def _trusting(
    endpoint: Endpoint,
    authority: CertificateAuthority,
    security: Security | None,
    *,
    tls: bool = False,
) -> grpc.aio.Channel:
    """A channel of somebody who believes the server, so that it is the server who refuses."""
    if security is None and not tls:
        return grpc.aio.insecure_channel(str(endpoint))
    credentials = grpc.ssl_channel_credentials(
        root_certificates=authority.truststore.read_bytes(),
        private_key=None if security is None else security.private_key,
        certificate_chain=None if security is None else security.chain,
    )
    options = [("grpc.ssl_target_name_override", "broker.quorate")]
    return grpc.aio.secure_channel(str(endpoint), credentials, options=options)


def _own_certificate(authority: CertificateAuthority, stem: str) -> bytes:
    pem = (authority.folder / f"{stem}.pem").read_text()
    return ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERTIFICATE") :])


async def _served_certificate(endpoint: Endpoint, security: Security) -> bytes:
    """The certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=str(security.truststore))
    context.check_hostname = False
    context.load_cert_chain(str(security.keystore))
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    shown: Callable[..., Any] = writer.get_extra_info("ssl_object").getpeercert
    writer.close()
    return bytes(shown(binary_form=True))
