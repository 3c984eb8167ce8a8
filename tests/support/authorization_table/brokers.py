"""The two brokers that are asked: one of Quorate's, and one of Kafka's with StandardAuthorizer."""

import contextlib
import secrets
import socket
import subprocess
import tomllib
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.client.results import ScramUpsertion
from quorate.cluster.cluster_ports import PortReservation
from quorate.cluster.layout import write_atomically
from quorate.common.configuration import parse_endpoint
from quorate.common.types import Endpoint
from quorate.testing import running_cluster
from tests.support.authorization_table.asking import ADMIN, PASSWORDS, Addresses
from tests.support.kafka_jars import kafka_home
from tests.support.waiting import wait_until

_TOKEN_KEY: Final = "a key of the tests"
_SETTINGS: Final[Mapping[str, str | int]] = MappingProxyType(
    {
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "sasl.enabled.mechanisms": "PLAIN",
    }
)
"""The settings that both kinds of broker take under the same names."""

_FORMAT: Final = ("kafka.tools.StorageTool", "format")
_JVM: Final = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")


@contextlib.contextmanager
def quorate_broker(folder: Path) -> Iterator[Addresses]:
    """Run a broker of Quorate's, with its voter, that knows the users of the table."""
    keys = folder / "token-keys"
    keys.write_text(_TOKEN_KEY)
    settings: dict[str, object] = {
        **_SETTINGS,
        "delegation.token.secret.key.file": str(keys),
        "super.users": f"User:CN=admin;User:{ADMIN}",
        "grpc.security.protocol": "SSL",
        "grpc.ssl.client.auth": "required",
    }
    with running_cluster(config=settings) as cluster:
        plaintext = cluster.broker_address(1)
        with PortReservation() as ports:
            sasl = f"127.0.0.1:{ports.claim_any()}"
        path = cluster.folder / "config" / "broker-1.toml"
        listeners = f"PLAINTEXT://{plaintext},SASL_PLAINTEXT://{sasl}"
        values = {**tomllib.loads(path.read_text()), "listeners": listeners}
        lines = [
            f'"{key}" = {value if isinstance(value, int) else repr(value)}'
            for key, value in values.items()
        ]
        write_atomically(path, "\n".join(lines).replace("True", "true") + "\n")
        with cluster.admin() as admin:
            users = [
                ScramUpsertion.of_password(user, "SCRAM-SHA-256", password)
                for user, password in PASSWORDS.items()
            ]
            for result in admin.alter_user_scram_credentials(users):
                result.raise_for_error()
        cluster.restart_broker(1)
        yield Addresses(_endpoint(plaintext), _endpoint(sasl))


@contextlib.contextmanager
def kafka_broker(folder: Path) -> Iterator[Addresses]:
    """Run a broker of Kafka's that is its own controller.

    Raises:
        NoKafka: there is no Java, no Maven or no jar to be had.
    """
    class_path = f"{kafka_home()}/libs/*"
    with PortReservation() as ports:
        plaintext, sasl, controller = (Endpoint("127.0.0.1", ports.claim_any()) for _ in range(3))
    properties = folder / "server.properties"
    settings = _kafka_settings(folder, plaintext, sasl, controller)
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    cluster_id = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
    subprocess.run(
        [*_JVM, "-cp", class_path, *_FORMAT, "-t", cluster_id, "-c", str(properties)],
        check=True,
        capture_output=True,
        timeout=60,
    )
    log = folder / "kafka.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*_JVM, "-cp", class_path, "kafka.Kafka", str(properties)], stdout=out, stderr=out
        )
    try:
        wait_until(
            lambda: process.poll() is not None or _is_open(sasl),
            lambda: f"Kafka to serve\n{log.read_text()[-3_000:]}",
            timeout_s=60,
        )
        assert process.poll() is None, log.read_text()[-3_000:]
        yield Addresses(plaintext, sasl)
    finally:
        process.kill()
        process.wait()


def _kafka_settings(
    folder: Path, plaintext: Endpoint, sasl: Endpoint, controller: Endpoint
) -> Mapping[str, object]:
    """The controller's listener asks for users, too: ANONYMOUS is to have no right."""
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{ADMIN}" password="{PASSWORDS[ADMIN]}" {users};'
    )
    return {
        **_SETTINGS,
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{plaintext},SASL_PLAINTEXT://{sasl},CONTROLLER://{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "listener.name.controller.plain.sasl.jaas.config": jaas,
        "super.users": f"User:{ADMIN}",
        "delegation.token.secret.key": _TOKEN_KEY,
        "log.dirs": folder / "kafka-data",
    }


def _endpoint(address: str) -> Endpoint:
    return parse_endpoint("listeners", address)


def _is_open(at: Endpoint) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((at.host, at.port), 2):
        return True
    return False
