"""Three Kafka brokers, each also a controller (KRaft), as they come: what differs is named here."""

import os
import secrets
import shutil
import socket
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from bench.peers.contender import NODES, Unavailable
from bench.peers.processes import NodeProcesses
from tests.support.kafka_jars import NoKafka, kafka_home
from tests.support.quorum_cluster import free_ports

_JVM: Final = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
"""The options of the Java machine, as Kafka's own start script passes them."""

_LOGGING: Final = """
log4j.rootLogger=WARN, CONSOLE
log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender
log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout
log4j.appender.CONSOLE.layout.ConversionPattern=%d{ISO8601} %p %c: %m%n
"""
"""The logging settings of Kafka 3. Kafka 4 logs errors alone, without being told."""


class KafkaInstallation(NamedTuple):
    """The place of an installed Kafka server, and its version."""

    java: str
    class_path: str
    version: str


def find_kafka() -> KafkaInstallation:
    """``java`` on the PATH, and the jars of ``$KAFKA_HOME/libs``.

    Raises:
        Unavailable: one of them is missing.
    """
    home = os.environ.get("KAFKA_HOME")
    if home is None:
        raise Unavailable("KAFKA_HOME is not set")
    return _installation_at(Path(home))


def fetched_kafka() -> KafkaInstallation:
    """``find_kafka``, but where ``KAFKA_HOME`` is not set, Maven fetches the jars.

    Raises:
        Unavailable: there is no Java, no Maven or no jar to be had.
    """
    try:
        return _installation_at(kafka_home())
    except NoKafka as missing:
        raise Unavailable(str(missing)) from missing


def announced(find: Callable[[], KafkaInstallation], left_out: str) -> KafkaInstallation | None:
    """Return what ``find`` finds, or None; print its release, or what is left out and why."""
    try:
        installation = find()
    except Unavailable as missing:
        print(f"{left_out}: {missing}", flush=True)
        return None
    print(f"Kafka {installation.version}", flush=True)
    return installation


def _installation_at(home: Path) -> KafkaInstallation:
    java = shutil.which("java")
    if java is None:
        raise Unavailable("no java on the PATH (Debian: openjdk-17-jre-headless)")
    servers = sorted((home / "libs").glob("kafka_2.*-*.jar"))
    if not servers:
        raise Unavailable(f"no libs/kafka_2.*.jar in KAFKA_HOME={home}")
    return KafkaInstallation(java, f"{home}/libs/*", servers[-1].stem.rpartition("-")[2])


class KafkaBrokers:
    """Defaults of the distribution, but for addresses, deleted data, which goes at once, and
    ``settings``."""

    def __init__(
        self,
        folder: Path,
        installation: KafkaInstallation,
        settings: Mapping[str, str | int] = MappingProxyType({}),
    ) -> None:
        self._java, self._class_path, _ = installation
        self._settings = settings
        self._nodes = NodeProcesses(folder)
        ports = free_ports(2 * len(NODES))
        self._client_ports = dict(zip(NODES, ports, strict=False))
        self._controller_ports = dict(zip(NODES, ports[len(NODES) :], strict=True))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._client_ports.values())

    @property
    def pids(self) -> list[int]:
        return list(self._nodes.pids.values())

    def start(self) -> None:
        """Start the brokers, and wait until they take connections."""
        (self._nodes.folder / "log4j.properties").write_text(_LOGGING)
        cluster_id = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        for node in NODES:
            path = self._write_configuration(node)
            self._format(path, cluster_id)
            command = [self._java, *_JVM, "-cp", self._jars, "kafka.Kafka", str(path)]
            self._nodes.start(node, command)
        self._nodes.wait_until("Kafka serves", lambda: all(map(self._is_open, NODES)))

    def stop(self) -> None:
        self._nodes.stop()

    @property
    def _jars(self) -> str:
        return f"{self._nodes.folder}:{self._class_path}"

    def _format(self, configuration: Path, cluster_id: str) -> None:
        tool = [self._java, "-cp", self._jars, "kafka.tools.StorageTool"]
        done = subprocess.run(
            [*tool, "format", "-t", cluster_id, "-c", str(configuration)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"Kafka's storage tool failed: {done.stdout}{done.stderr}")

    def _write_configuration(self, node: int) -> Path:
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in self._controller_ports.items())
        settings = {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._client_ports[node]},"
            f"CONTROLLER://127.0.0.1:{self._controller_ports[node]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self._nodes.folder / f"data-{node}",
            "log.segment.delete.delay.ms": 100,
            **self._settings,
        }
        path = self._nodes.folder / f"node-{node}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _is_open(self, node: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._client_ports[node]), 2).close()
        except OSError:
            return False
        return True
