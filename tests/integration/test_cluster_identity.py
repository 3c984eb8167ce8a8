"""Brokers prove who they are, clients too: strangers at the ports of a real cluster."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from quorate.client.results import NewTopic
from quorate.common.configuration import read_toml
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.tls.identity import Role, Security
from quorate.common.tls.keystore import load_security
from quorate.common.tls.renewable import LOOK_INTERVAL_S
from quorate.testing.running import RunningCluster
from quorate_proto.v1 import admin_pb2, control_pb2, replication_pb2
from tests.support.cli import quorate, quorate_error
from tests.support.waiting import let_time_pass, wait_until

pytestmark = pytest.mark.integration

REFUSED = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAVAILABLE,  # TLS failed.
    grpc.StatusCode.UNIMPLEMENTED,
)
TOPIC = "orders"
LOOKS = "a process looks at its files at a handshake, and then not for a while"


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: Callable[..., RunningCluster]) -> RunningCluster:
    running = module_quorate_cluster(
        brokers=2,
        config={"grpc.security.protocol": "SSL", "grpc.ssl.client.auth": "required"},
    )
    with running.admin() as admin:
        (created,) = admin.create_topics([NewTopic(name=TOPIC, assignments=[(1, 2)])])
    assert created.ok
    return running


def configured(cluster: RunningCluster, broker_id: int) -> Mapping[str, object]:
    return read_toml(cluster.folder / "config" / f"broker-{broker_id}.toml")


def proof(cluster: RunningCluster, stem: str, role: Role) -> Security:
    certs = cluster.folder / "certs"
    return load_security("k", certs / f"{stem}.pem", "t", certs / "truststore.pem", role)


def channel(cluster: RunningCluster, key: str, security: Security | None) -> grpc.Channel:
    """To broker 1, believing whatever answers."""
    credentials = grpc.ssl_channel_credentials(
        root_certificates=(cluster.folder / "certs" / "truststore.pem").read_bytes(),
        private_key=None if security is None else security.private_key,
        certificate_chain=None if security is None else security.chain,
    )
    address = str(configured(cluster, 1)[key])
    options = [("grpc.ssl_target_name_override", "broker.quorate")]
    return grpc.secure_channel(address, credentials, options=options)


def requests(sender: int) -> Iterator[tuple[str, Message]]:
    """Every unary request there is at the listener of brokers, each in the name of ``sender``.

    Epochs are as high as can be: nothing but the guard stands between them and their effect.
    """
    admin = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
    control = control_pb2.DESCRIPTOR.services_by_name
    replication = replication_pb2.DESCRIPTOR.services_by_name["Replication"]
    for service in (admin, control["BrokerControl"], control["ControllerDuty"], replication):
        for method in service.methods:
            request = GetMessageClass(method.input_type)()
            _speak_for(sender, request)
            if method.name not in ("Fetch", "ClusterStatus"):
                yield f"/{service.full_name}/{method.name}", request


def _speak_for(sender: int, request: Any) -> None:  # noqa: ANN401 - any message
    names = request.DESCRIPTOR.fields_by_name
    if "header" in names:
        request.header.controller_id = sender
        request.header.controller_epoch = 1_000
        request.header.max_broker_epoch = 2**60
        request.header.metadata_offset = 2**60
    if "context" in names:
        request.context.forwarded_by = sender
        request.context.principal_name = "User:root"
    for name, value in (
        ("is_init", True),
        ("full", True),
        ("broker_id", sender),
        ("replica_id", sender),
    ):
        if name in names:
            setattr(request, name, value)
    if isinstance(request, admin_pb2.DeleteTopicsRequest):
        request.names.append(TOPIC)


def ended(at: grpc.Channel, method: str, request: Message) -> grpc.StatusCode:
    call: Callable[..., object] = at.unary_unary(method, type(request).SerializeToString)
    try:
        call(request, timeout=10)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


def state(cluster: RunningCluster) -> object:
    status = cluster.status()
    with cluster.admin() as admin:
        topics = admin.describe_topics()
    return status.controller_id, status.controller_epoch, status.brokers, topics


STRANGERS: dict[str, tuple[str, Role, int] | None] = {
    "no certificate": None,
    "a client's": ("admin", Role.ADMIN, 2),
    "a voter's": ("voter-1", Role.VOTER, 2),
    "broker 2's, as broker 3": ("broker-2", Role.BROKER, 3),
}


def test_f5_strangers_at_the_listener_of_brokers_change_nothing(cluster: RunningCluster) -> None:
    before = state(cluster)
    for kind, found in STRANGERS.items():
        security = None if found is None else proof(cluster, found[0], found[1])
        with channel(cluster, "inter.broker.listener", security) as at:
            for method, request in requests(2 if found is None else found[2]):
                assert ended(at, method, request) in REFUSED, (kind, method)
    assert state(cluster) == before
    log = (cluster.folder / "logs" / "broker-1.log").read_text()
    refused = [line for line in log.splitlines() if "inter-broker port: refused" in line]
    assert len(refused) == len(STRANGERS), refused
    for name in ("127.0.0.1: TLS failed", "admin.quorate", "voter-1.quorate", "broker-2.quorate"):
        assert sum(name in line.partition("refused ")[2] for line in refused) == 1, name


def test_e3_no_broker_is_the_controller_by_saying_so(cluster: RunningCluster) -> None:
    """Broker 2 has its own certificate, and names an epoch that nobody has been elected to."""
    before = state(cluster)
    with channel(cluster, "inter.broker.listener", proof(cluster, "broker-2", Role.BROKER)) as at:
        for method, request in requests(2):
            if "BrokerControl" in method:
                assert ended(at, method, request) is grpc.StatusCode.PERMISSION_DENIED, method
    assert state(cluster) == before


def test_what_brokers_ask_of_one_another_is_not_served_to_clients(
    cluster: RunningCluster,
) -> None:
    before = state(cluster)
    admin = proof(cluster, "admin", Role.ADMIN)
    with channel(cluster, "grpc.listener", admin) as at:
        for method, request in requests(2):
            if "/quorate.v1.Admin/" not in method:
                assert ended(at, method, request) is grpc.StatusCode.UNIMPLEMENTED, method
            if method.endswith("/AllocateProducerIds"):
                assert ended(at, method, request) is grpc.StatusCode.PERMISSION_DENIED
    with channel(cluster, "grpc.listener", None) as at:
        for method, request in requests(2):
            assert ended(at, method, request) is grpc.StatusCode.UNAVAILABLE, method
    assert state(cluster) == before


def test_commands_find_the_certificates_of_a_local_cluster(cluster: RunningCluster) -> None:
    assert quorate("topics", "list", "--data", str(cluster.folder)).split() == [TOPIC]


def test_commands_take_certificates_from_a_file(cluster: RunningCluster, tmp_path: Path) -> None:
    certs = cluster.folder / "certs"
    config = tmp_path / "client.properties"
    config.write_text(
        "# Kafka's listener is in plain text here\n"
        "grpc.security.protocol=SSL\n"
        f"ssl.truststore.location={certs}/truststore.pem\n"
        f"ssl.keystore.location={certs}/admin.pem\n"
        "ssl.endpoint.identification.algorithm=none\n"
    )
    at = ("--bootstrap-server", cluster.bootstrap, "--command-config", str(config))
    assert quorate("topics", "list", *at).split() == [TOPIC]
    assert TOPIC in quorate("metadata", "ls", "/brokers/topics", *at)
    said = quorate_error("topics", "list", *at[:2], "--timeout-ms", "1000")
    assert re.match(r"quorate: no broker of .* answers", said), said


@pytest.mark.slow
def test_the_authority_of_a_running_cluster_is_replaced_without_a_restart(
    quorate_cluster: Callable[..., RunningCluster], tmp_path: Path
) -> None:
    """Both are believed for a while, then everybody is of the new one, then the old one is gone.

    Who is started afterwards believes the new one alone: all others must have followed.
    """
    cluster = quorate_cluster(brokers=3, voters=3)
    certs = cluster.folder / "certs"
    new = CertificateAuthority.open(tmp_path / "new")
    old_truststore = (certs / "truststore.pem").read_bytes()
    _replace(certs / "truststore.pem", old_truststore + new.truststore.read_bytes())
    let_time_pass(2 * LOOK_INTERVAL_S, LOOKS)
    cluster.restart_broker(3)  # Makes everybody look: each handshake is made with what is there.
    for role, ids in ((Role.VOTER, cluster.voter_ids), (Role.BROKER, cluster.broker_ids)):
        for node_id in ids:
            new.issue_node(role, node_id)
            _replace(
                certs / f"{role}-{node_id}.pem",
                (new.folder / f"{role}-{node_id}.pem").read_bytes(),
            )
    let_time_pass(2 * LOOK_INTERVAL_S, LOOKS)
    cluster.restart_broker(3)
    _replace(certs / "truststore.pem", new.truststore.read_bytes())
    let_time_pass(2 * LOOK_INTERVAL_S, LOOKS)
    cluster.restart_broker(2)
    cluster.restart_voter(2)
    with cluster.admin() as admin:
        (created,) = admin.create_topics([NewTopic(name="new", assignments=[(2, 1, 3)])])
    assert created.ok, created.message
    wait_until(lambda: _in_sync(cluster, "new") == {1, 2, 3}, "replication at broker 2")


def _in_sync(cluster: RunningCluster, topic: str) -> set[int]:
    with cluster.admin() as admin:
        return set(admin.describe_topics([topic])[0].partitions[0].isr)


def _replace(path: Path, content: bytes) -> None:
    """As one step: nobody reads half of it."""
    aside = path.with_suffix(".new")
    aside.write_bytes(content)
    aside.chmod(0o600)
    aside.replace(path)
