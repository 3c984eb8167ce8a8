"""Reading from brokers that ask who one is: certificates, users and rights, over both protocols.

Without Spark: reader and plan are what it would call, options and errors are what its users see.
"""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.cli.main import run
from quorate.client.errors import QuorateError
from quorate.client.results import NewTopic
from quorate.client.results.user_results import ScramUpsertion
from quorate.cluster.cluster_ports import PortReservation
from quorate.cluster.layout import write_atomically
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.spark.errors import CallRefused, ClusterUnavailable, UnknownTopic, WriteRefused
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.read_options import parse_read_options
from quorate.spark.reading.batch_reader import QuorateReader
from quorate.spark.schema import source_schema
from quorate.spark.writing.write_options import parse_write_options
from quorate.spark.writing.write_task import write_rows
from quorate.testing import RunningCluster, running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

USER, PASSWORD, MECHANISM = "reports", 'a "quoted" secret', "SCRAM-SHA-512"
VALUES = [b"%d" % n for n in range(10)]
JOURNAL = "journal"
"""A topic that may be written to, and not read."""


class Secured:
    """One broker: Kafka by SASL_SSL or by certificate, gRPC as the test says; two topics.

    ``orders`` may be read by the user and by the certificate, ``secrets`` by neither.
    """

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self._authority = CertificateAuthority.open(cluster.folder / "certs")
        self._authority.issue("server", ["localhost"], hosts=["127.0.0.1"])
        self._authority.issue_admin(USER)
        self._fill()
        with PortReservation() as ports:
            self.kafka = {name: f"127.0.0.1:{ports.claim_any()}" for name in ("SASL_SSL", "SSL")}

    def open(self, grpc_protocol: str) -> None:
        """Have the broker's gRPC listener ask for certificates (SSL) or users (SASL_SSL)."""
        server = str(self._authority.folder / "server.pem")
        path = self._cluster.folder / "config" / "broker-1.toml"
        plain = f"PLAINTEXT://{self._cluster.broker_address(1)}"
        values = {
            **tomllib.loads(path.read_text()),
            "listeners": ",".join([plain, *(f"{n}://{at}" for n, at in self.kafka.items())]),
            "ssl.keystore.location": server,
            "ssl.truststore.location": self.truststore,
            "ssl.client.auth": "requested",
            "grpc.ssl.keystore.location": server,
            "grpc.ssl.truststore.location": self.truststore,
            "grpc.security.protocol": grpc_protocol,
            "grpc.ssl.client.auth": "required" if grpc_protocol == "SSL" else "none",
        }
        lines = [f'"{key}" = {_toml(value)}' for key, value in values.items()]
        write_atomically(path, "\n".join(lines) + "\n")
        self._cluster.restart_broker(1, wait=False)

    @property
    def truststore(self) -> str:
        return str(self._authority.truststore)

    def options(self, protocol: str, topic: str = "orders", **more: str) -> dict[str, str]:
        """As a user of Spark writes them; a double underscore in a name stands for a dot."""
        given = {
            "kafka.bootstrap.servers": self.kafka[protocol],
            "subscribe": topic,
            "kafka.security.protocol": protocol,
            "kafka.ssl.ca.location": self.truststore,
        }
        if protocol == "SSL":
            given["kafka.ssl.keystore.location"] = str(self._authority.folder / f"{USER}.pem")
        return given | {name.replace("__", "."): value for name, value in more.items()}

    def _fill(self) -> None:
        with self._cluster.admin() as admin:
            topics = [
                NewTopic(name=name, num_partitions=2) for name in ("orders", "secrets", JOURNAL)
            ]
            user = ScramUpsertion.of_password(USER, MECHANISM, PASSWORD)
            for result in (
                *admin.create_topics(topics),
                *admin.alter_user_scram_credentials([user]),
            ):
                result.raise_for_error()
        principals = ["--allow-principal", f"User:{USER}", "--allow-principal", f"User:CN={USER}"]
        for operation, topic in (("Read", "orders"), ("Write", JOURNAL)):
            words = ["acls", "--add", *principals, "--operation", operation, "--topic", topic]
            assert run([*words, "--data", str(self._cluster.folder)]) == 0
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "acks": "all"})
        for topic in ("orders", "secrets"):
            for number, value in enumerate(VALUES):
                producer.produce(topic, value, partition=number % 2)
        assert producer.flush(30) == 0


def _toml(value: object) -> str:
    return str(value) if isinstance(value, int) else f'"{value}"'


def read(options: Mapping[str, str]) -> list[bytes]:
    """All values, as driver and executors find them."""
    parsed = parse_read_options(options, Scope.BATCH)
    reader = QuorateReader(parsed, source_schema(include_headers=False))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(value for batch in batches for value in batch.column("value").to_pylist())


def write(options: Mapping[str, str], topic: str) -> int:
    """All values, as a task writes them."""
    given = {name: value for name, value in options.items() if name != "subscribe"}
    rows = pa.record_batch({"value": VALUES})
    return write_rows(parse_write_options(given | {"topic": topic}), iter([rows]), task=0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Secured]:
    config: dict[str, Any] = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:CN=admin",
    }
    with running_cluster(brokers=1, config=config) as running:
        yield Secured(running)


JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="reports" password="a \\"quoted\\" secret";'
)
USER_OPTIONS = {"kafka__sasl__username": USER, "kafka__sasl__password": PASSWORD}


def test_by_user_and_password(cluster: Secured) -> None:
    cluster.open("SASL_SSL")
    assert read(cluster.options("SASL_SSL", **USER_OPTIONS)) == VALUES
    assert read(cluster.options("SASL_SSL", kafka__sasl__jaas__config=JAAS)) == VALUES
    refuses(
        cluster.options("SASL_SSL", "secrets", **USER_OPTIONS), UnknownTopic, "no topic 'secrets'"
    )
    wrong = {**USER_OPTIONS, "kafka__sasl__password": "guessed"}
    refuses(cluster.options("SASL_SSL", **wrong), QuorateError, "user 'reports' or the password")
    assert write(cluster.options("SASL_SSL", **USER_OPTIONS), JOURNAL) == len(VALUES)
    with pytest.raises(
        WriteRefused, match=r"User:reports .*is not allowed to WRITE TOPIC 'orders'"
    ):
        write(cluster.options("SASL_SSL", **USER_OPTIONS), "orders")
    with pytest.raises(WriteRefused, match=r"'secrets'.*TOPIC_AUTHORIZATION_FAILED"):
        write(cluster.options("SASL_SSL", **USER_OPTIONS), "secrets")
    # The Kafka listener takes a certificate, but gRPC wants a user.
    refuses(cluster.options("SSL"), CallRefused, "UNAUTHENTICATED")


@pytest.mark.slow
def test_by_certificate(cluster: Secured) -> None:
    cluster.open("SSL")
    assert read(cluster.options("SSL")) == VALUES
    mixed = {
        **USER_OPTIONS,
        "kafka__grpc__security__protocol": "SSL",
        "kafka__grpc__ssl__keystore__location": cluster.options("SSL")[
            "kafka.ssl.keystore.location"
        ],
    }
    assert read(cluster.options("SASL_SSL", **mixed)) == VALUES
    refuses(cluster.options("SSL", "secrets"), UnknownTopic, "no topic 'secrets'")
    few = {"fetchOffset__numRetries": "1"}
    stranger = cluster.options("SSL", kafka__ssl__ca__location="", **few)
    refuses(stranger, ClusterUnavailable, "CERTIFICATE_VERIFY_FAILED")
    refuses(
        {**cluster.options("SSL", **few), "kafka.security.protocol": "PLAINTEXT"},
        ClusterUnavailable,
        "describing topics at 127.0.0.1",
    )


def refuses(options: Mapping[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as refusal:
        read(options)
    assert PASSWORD not in str(refusal.value)
