"""Unmodified clients at listeners that ask who they are: SASL and TLS against a real broker."""

import tomllib
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka.admin import AdminClient

from quorate.cli.main import run
from quorate.client.bootstrap import discover
from quorate.cluster.cluster_ports import PortReservation
from quorate.cluster.layout import write_atomically
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.common.types import Endpoint
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from tests.support import kafka_clients
from tests.support.kafka_clients import PATIENCE_S
from tests.support.kafka_wire import WireClient
from tests.support.sasl import scram_client

kafka: Any = kafka_clients.kafka  # type: ignore[attr-defined]  # loaded there without its warnings

pytestmark = [
    pytest.mark.clients,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "correct, horse=battery"


class Secured:
    """A broker with a listener of each kind, and the user alice."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.cluster = cluster
        self.authority = CertificateAuthority.open(cluster.folder / "certs")
        self.authority.issue("kafka", ["localhost"], hosts=["127.0.0.1"])
        self.authority.issue_admin("alice")
        self.at = self._open_listeners()
        password = cluster.folder / "password"
        password.write_text(PASSWORD)
        words = ["users", "add", "alice", "--password-file", str(password)]
        assert run([*words, "--data", str(cluster.folder)]) == 0

    def _open_listeners(self) -> dict[str, str]:
        """Protocol → address."""
        with PortReservation() as ports:
            at = {
                protocol: f"127.0.0.1:{ports.claim_any()}"
                for protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
            }
        plain = self.cluster.broker_address(1)
        listeners = [f"{name}://{address}" for name, address in at.items()]
        path = self.cluster.folder / "config" / "broker-1.toml"
        values: dict[str, Any] = {
            **tomllib.loads(path.read_text()),
            "listeners": ",".join([f"PLAINTEXT://{plain}", *listeners]),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ssl.keystore.location": str(self.authority.folder / "kafka.pem"),
            "ssl.truststore.location": str(self.authority.truststore),
            "ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/U",
            "connection.failed.authentication.delay.ms": 10,
        }
        lines = [f"{_quoted(key)} = {_toml(value)}" for key, value in values.items()]
        write_atomically(path, "\n".join(lines) + "\n")
        self.cluster.restart_broker(1)
        return at

    def options(self, protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        """librdkafka's; a client certificate where there is no mechanism."""
        found: dict[str, Any] = {
            "bootstrap.servers": self.at[protocol],
            "security.protocol": protocol,
        }
        if "SSL" in protocol:
            found["ssl.ca.location"] = str(self.authority.truststore)
        if "SASL" in protocol:
            found |= {"sasl.mechanism": mechanism, "sasl.username": "alice"}
            found["sasl.password"] = password
        elif mechanism == "mTLS":
            keystore = str(self.authority.folder / "alice.pem")
            found |= {"ssl.certificate.location": keystore, "ssl.key.location": keystore}
        return found


def _quoted(key: str) -> str:
    return f'"{key}"'


def _toml(value: object) -> str:
    return str(value) if isinstance(value, int) else f'"{value}"'


@pytest.fixture(scope="module")
def secured(module_quorate_cluster: ClusterFactory) -> Secured:
    return Secured(module_quorate_cluster(brokers=1))


WAYS = [
    *(("SASL_PLAINTEXT", mechanism) for mechanism in MECHANISMS),
    *(("SASL_SSL", mechanism) for mechanism in MECHANISMS),
    ("SSL", ""),
    ("SSL", "mTLS"),
]


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_confluent_kafka_produces_and_consumes(
    secured: Secured, protocol: str, mechanism: str
) -> None:
    topic = f"confluent-{protocol}-{mechanism}"
    options = secured.options(protocol, mechanism)
    producer = confluent_kafka.Producer({**options, "acks": "all"})
    for number in range(3):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0
    found = producer.list_topics(timeout=PATIENCE_S)
    assert [f"{one.host}:{one.port}" for one in found.brokers.values()] == [secured.at[protocol]]
    consumer = confluent_kafka.Consumer({**options, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values = [message.value() for message in consumer.consume(3, PATIENCE_S)]
    assert values == [b"0", b"1", b"2"]
    consumer.close()


@pytest.mark.parametrize(("protocol", "mechanism"), [*WAYS[::2], WAYS[-1]])
def test_kafka_python_produces_and_consumes(
    secured: Secured, protocol: str, mechanism: str
) -> None:
    topic = f"python-{protocol}-{mechanism}"
    options: dict[str, Any] = {
        "bootstrap_servers": secured.at[protocol],
        "security_protocol": protocol,
        "ssl_cafile": str(secured.authority.truststore) if "SSL" in protocol else None,
    }
    if "SASL" in protocol:
        options |= {"sasl_mechanism": mechanism, "sasl_plain_username": "alice"}
        options["sasl_plain_password"] = PASSWORD
    elif mechanism == "mTLS":
        options["ssl_certfile"] = str(secured.authority.folder / "alice.pem")
    producer = kafka.KafkaProducer(**options, acks="all")
    assert producer.send(topic, b"x").get(PATIENCE_S).offset == 0
    producer.close()
    consumer = kafka.KafkaConsumer(**options, consumer_timeout_ms=10_000)
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    assert next(consumer).value == b"x"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(secured: Secured, mechanism: str) -> None:
    errors: list[str] = []
    options = secured.options("SASL_SSL", mechanism, "wrong")
    producer = confluent_kafka.Producer(
        {
            **options,
            "reconnect.backoff.ms": 500,
            "error_cb": lambda error: errors.append(error.name()),
        }
    )
    with pytest.raises(confluent_kafka.KafkaException):
        producer.list_topics(timeout=1)
    producer.poll(1)
    assert "_AUTHENTICATION" in errors


def test_kafkas_admin_client_changes_users(secured: Secured) -> None:
    """By AlterUserScramCredentials and DescribeUserScramCredentials (KIP-554)."""
    names: Any = confluent_kafka.admin
    admin = AdminClient(secured.options("SASL_SSL", "SCRAM-SHA-512"))
    info = names.ScramCredentialInfo(names.ScramMechanism.SCRAM_SHA_256, 4_096)
    upsertion = names.UserScramCredentialUpsertion("bob", info, b"bobs password")
    admin.alter_user_scram_credentials([upsertion])["bob"].result(PATIENCE_S)
    bob = {
        **secured.options("SASL_PLAINTEXT", "SCRAM-SHA-256", "bobs password"),
        "reconnect.backoff.ms": 500,
        "sasl.username": "bob",
    }
    assert confluent_kafka.Producer(bob).list_topics(timeout=PATIENCE_S).brokers
    asked: Any = admin.describe_user_scram_credentials(["bob"])
    described = asked["bob"].result(PATIENCE_S)
    (found,) = described.scram_credential_infos
    assert (found.mechanism, found.iterations) == (names.ScramMechanism.SCRAM_SHA_256, 4_096)
    deletion = names.UserScramCredentialDeletion("bob", names.ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["bob"].result(PATIENCE_S)
    with pytest.raises(confluent_kafka.KafkaException):
        confluent_kafka.Producer(bob).list_topics(timeout=1)


def test_no_password_and_no_secret_is_in_any_log_or_file_of_the_brokers(secured: Secured) -> None:
    """Nor is what a password is salted into; the metadata holds what proves it, and no more."""
    client = scram_client("alice", PASSWORD)
    for path in sorted(Path(secured.cluster.folder).rglob("*")):
        if path.is_file() and path.name != "password":
            assert PASSWORD.encode() not in path.read_bytes(), path
    assert client.user == b"alice"
    assert "alice" not in "".join(
        line for line in secured.cluster.broker_log(1, 500) if "key" in line.lower()
    )


def test_our_own_clients_find_the_cluster_by_its_plain_listener(secured: Secured) -> None:
    found = discover(secured.cluster.broker_address(1))
    assert [one.kafka for one in found.brokers] == [secured.cluster.broker_address(1)]


async def test_a_broken_client_harms_nobody(secured: Secured) -> None:
    host, _, port = secured.at["SASL_SSL"].rpartition(":")
    client = await WireClient.connect(Endpoint(host, int(port)))
    client.send_bytes(b"GET / HTTP/1.1\r\n\r\n" * 10)
    while not await client.is_closed():
        continue
    await client.close()
    options = secured.options("SASL_SSL", "SCRAM-SHA-256")
    assert confluent_kafka.Producer(options).list_topics(timeout=PATIENCE_S).brokers
