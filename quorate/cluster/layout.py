"""The folder of a local cluster: its nodes, their addresses and their files.

DIR/config/quorum-1.toml …   one configuration file per process: the truth about the cluster
DIR/certs/                   certificates of the nodes and of the commands
DIR/quorum-1/ DIR/broker-1/  data
DIR/logs/broker-1.log …      logs of the processes
DIR/cluster.json             the processes of the running cluster; absent when it is down
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from quorate.broker.config.grpc_listeners import GRPC_LISTENER, INTER_BROKER_LISTENER
from quorate.broker.config.http_listeners import (
    BASIC,
    CONSOLE_LISTENER,
    HTTP_AUTHENTICATION,
    REGISTRY_LISTENER,
)
from quorate.broker.config.listeners import LISTENERS
from quorate.broker.config.log import LOG_DIR
from quorate.broker.config.node import BROKER_ID, BROKER_RACK, QUORUM_BOOTSTRAP_SERVERS
from quorate.broker.config.security import LISTENER_SECURITY_PROTOCOL_MAP
from quorate.cluster.cluster_ports import HOST, PortReservation
from quorate.cluster.hosts import rack_of, refuse_uneven_hosts
from quorate.cluster.http_ports import FIRST_PORT, with_own_ports
from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.cluster.log_folders import with_own_folders
from quorate.cluster.settings import Settings
from quorate.common.configuration import ConfigError, read_toml
from quorate.common.files.private_files import make_private_folder
from quorate.common.metrics.metrics_endpoint import METRICS_LISTENER
from quorate.common.tls.certificate_authority import TRUSTSTORE_FILE
from quorate.common.tls.identity import Role
from quorate.common.tls.tls_config import BROKER_SECURITY, SSL, VOTER_SECURITY, SecurityKeys
from quorate.common.types import DEFAULT_LISTENER
from quorate.quorum.quorum_config import (
    CLUSTER_ID,
    DATA_DIR,
    NODE_ID,
    QUORUM_VOTERS,
    ConfiguredVoter,
    parse_voters,
)

NodeKind = Literal["quorum", "broker"]
CONFIG_FOLDER: Final = "config"
CERTS_FOLDER: Final = "certs"
FIRST_BROKER_ID: Final = 1
"""The id of a cluster's first broker, where no other was asked for."""


@dataclass(frozen=True, slots=True)
class Node:
    """One process of the cluster: a voter or a broker."""

    kind: NodeKind
    id: int
    config: Mapping[str, object]
    folder: Path

    def __str__(self) -> str:
        return f"voter {self.id}" if self.kind == "quorum" else f"broker {self.id}"

    @property
    def stem(self) -> str:
        return f"{self.kind}-{self.id}"

    @property
    def config_path(self) -> Path:
        return self.folder / CONFIG_FOLDER / f"{self.stem}.toml"

    @property
    def log_path(self) -> Path:
        return self.folder / "logs" / f"{self.stem}.log"

    @property
    def grpc_address(self) -> str:
        """Return the address of the node's gRPC server, as host:port."""
        if self.kind == "broker":
            return str(self.config[GRPC_LISTENER.name])
        return str(self._voter().grpc)

    @property
    def kafka_address(self) -> str:
        """Return the address of a broker's Kafka listener, as host:port; plain text, if it has such
        a listener."""
        listeners = str(self.config[LISTENERS.name]).split(",")
        plain = [one for one in listeners if one.startswith(f"{DEFAULT_LISTENER}://")]
        return (plain or listeners)[0].strip().rpartition("://")[2]

    @property
    def ports(self) -> dict[str, int]:
        """Return the ports that the node listens on, by their use."""
        if self.kind == "broker":
            ports = {"Kafka": _port(self.kafka_address), "gRPC": _port(self.grpc_address)}
            if INTER_BROKER_LISTENER.name in self.config:
                ports["inter-broker"] = _port(str(self.config[INTER_BROKER_LISTENER.name]))
        else:
            voter = self._voter()
            ports = {"Raft": voter.raft.port, "gRPC": voter.grpc.port}
        if self.console_url:
            ports["console"] = _port(self.console_url)
        if self.metrics_address:
            ports["metrics"] = _port(self.metrics_address)
        if self.registry_url:
            ports["schema registry"] = _port(self.registry_url)
        return ports

    @property
    def registry_url(self) -> str:
        """Return the URL at which a broker serves the schema registry; empty if it does not."""
        return str(self.config.get(REGISTRY_LISTENER.name, "")).rstrip("/")

    @property
    def rack(self) -> str:
        """Return the rack of a broker; empty if it has none."""
        return str(self.config.get(BROKER_RACK.name, ""))

    @property
    def console_url(self) -> str:
        """Return the URL of a broker's console; empty if it serves none."""
        return str(self.config.get(CONSOLE_LISTENER.name, ""))

    @property
    def metrics_address(self) -> str:
        """Return the address of the node's metrics, as host:port; empty if it serves none."""
        return str(self.config.get(METRICS_LISTENER.name, ""))

    def _voter(self) -> ConfiguredVoter:
        for voter in parse_voters(str(self.config[QUORUM_VOTERS.name])):
            if voter.voter_id == self.id:
                return voter
        raise ConfigError(f"{self.config_path}: quorum.voters does not name voter {self.id}")


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def plan_cluster(
    folder: Path,
    *,
    voters: int,
    brokers: int,
    port: int,
    settings: Settings,
    cluster_id: str,
    brokers_per_host: int | None = None,
    first_broker_id: int = FIRST_BROKER_ID,
    has_console: bool = False,
) -> list[Node]:
    """Return the nodes of a new cluster in ``folder``, voters first. Nothing is written.

    ``port`` is the Kafka port of the first broker, whose id is ``first_broker_id``; the others use
    the next ports and ids. Port 0 means any free ports. With ``brokers_per_host``, so many brokers
    after each other are in one rack, which stands for a host; without it no broker has a rack. With
    ``has_console``, each broker serves the console.

    Raises:
        LocalClusterError: a port is taken, or the brokers do not make whole hosts.
    """
    if brokers_per_host is not None:
        refuse_uneven_hosts(brokers, brokers_per_host, settings.broker)
    with PortReservation() as ports:
        kafka_ports = [
            ports.claim(
                port + index,
                f"Kafka, broker {first_broker_id + index}",
                "choose another with --port",
            )
            if port
            else ports.claim_any()
            for index in range(brokers)
        ]

        def internal() -> int:
            return ports.claim_from(port + 10_000) if port else ports.claim_any()

        grpc_ports = [internal() for _ in range(brokers)]
        voter_ports = [(internal(), internal()) for _ in range(voters)]
        broker_ports = [internal() for _ in range(brokers)]
        voter_metrics = [internal() for _ in range(voters)]
        broker_metrics = [internal() for _ in range(brokers)]
        own_settings = [
            with_own_ports(
                settings.broker,
                lambda: ports.claim_from(FIRST_PORT) if port else ports.claim_any(),
            )
            for _ in range(brokers)
        ]
        console_ports = [internal() if has_console else 0 for _ in range(brokers)]
    voter_list = ",".join(
        f"{voter}@{HOST}:{raft}/{grpc}" for voter, (raft, grpc) in enumerate(voter_ports, 1)
    )
    bootstrap = ",".join(f"{HOST}:{grpc}" for _, grpc in voter_ports)
    return [
        *(
            _voter_node(folder, voter, voter_list, cluster_id, metrics, settings)
            for voter, metrics in enumerate(voter_metrics, 1)
        ),
        *(
            _broker_node(
                folder,
                first_broker_id + index,
                ports,
                bootstrap,
                own_settings[index],
                None if brokers_per_host is None else rack_of(index, brokers_per_host),
            )
            for index, ports in enumerate(
                zip(
                    kafka_ports,
                    grpc_ports,
                    broker_ports,
                    broker_metrics,
                    console_ports,
                    strict=True,
                )
            )
        ),
    ]


def _voter_node(
    folder: Path, voter: int, voters: str, cluster_id: str, metrics_port: int, settings: Settings
) -> Node:
    config = {
        NODE_ID.name: voter,
        CLUSTER_ID.name: cluster_id,
        DATA_DIR.name: str(folder / f"quorum-{voter}"),
        QUORUM_VOTERS.name: voters,
        METRICS_LISTENER.name: f"{HOST}:{metrics_port}",
        **_security(VOTER_SECURITY, folder, Role.VOTER, voter),
        **settings.quorum,
    }
    return Node("quorum", voter, config, folder)


def _broker_node(
    folder: Path,
    broker: int,
    ports: tuple[int, int, int, int, int],
    bootstrap: str,
    settings: Mapping[str, object],
    rack: str | None,
) -> Node:
    """Return the node of a broker.

    ``ports`` are for Kafka clients, for clients over gRPC, for brokers, for metrics, and for the
    console, or 0.
    """
    kafka_port, grpc_port, broker_port, metrics_port, console_port = ports
    config = {
        BROKER_ID.name: broker,
        LOG_DIR.name: str(folder / f"broker-{broker}"),
        QUORUM_BOOTSTRAP_SERVERS.name: bootstrap,
        LISTENERS.name: f"PLAINTEXT://{HOST}:{kafka_port}",
        GRPC_LISTENER.name: f"{HOST}:{grpc_port}",
        INTER_BROKER_LISTENER.name: f"{HOST}:{broker_port}",
        METRICS_LISTENER.name: f"{HOST}:{metrics_port}",
        **_console(console_port, settings),
        **({} if rack is None else {BROKER_RACK.name: rack}),
        **_security(BROKER_SECURITY, folder, Role.BROKER, broker),
        **with_own_folders(settings, folder / f"broker-{broker}"),
    }
    return Node("broker", broker, config, folder)


def _console(port: int, settings: Mapping[str, object]) -> dict[str, object]:
    """Return the keys of a broker's console, or none if ``port`` is 0.

    Where Kafka clients have to log in, people at the console have to, too.
    """
    if not port:
        return {}
    has_login = LISTENER_SECURITY_PROTOCOL_MAP.name in settings
    login = {HTTP_AUTHENTICATION.name: BASIC} if has_login else {}
    return {CONSOLE_LISTENER.name: f"http://{HOST}:{port}", **login}


def _security(keys: SecurityKeys, folder: Path, role: Role, node_id: int) -> dict[str, object]:
    return {
        keys.protocol.name: SSL,
        keys.keystore.name: str(folder / CERTS_FOLDER / f"{role}-{node_id}.pem"),
        keys.truststore.name: str(folder / CERTS_FOLDER / TRUSTSTORE_FILE),
    }


def write_config(node: Node) -> None:
    """Write the node's configuration file."""
    lines = [f"{json.dumps(key)} = {_toml(value)}" for key, value in node.config.items()]
    write_atomically(node.config_path, "\n".join(lines) + "\n")


def _toml(value: object) -> str:
    """Format a string, number or boolean for TOML, which spells them as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that readers see the old content or the new content, never a part of it.

    Only the owner may read the file: it may hold the keys with which delegation tokens are made.
    """
    make_private_folder(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def load_nodes(folder: Path) -> list[Node]:
    """Return the nodes of the cluster in ``folder``, voters first; empty if there is no cluster.

    Raises:
        ConfigError: a configuration file is malformed.
    """
    nodes = [
        *(_load_node(folder, "quorum", path) for path in _config_files(folder, "quorum")),
        *(_load_node(folder, "broker", path) for path in _config_files(folder, "broker")),
    ]
    return nodes


def _config_files(folder: Path, kind: NodeKind) -> Iterable[Path]:
    found = (folder / CONFIG_FOLDER).glob(f"{kind}-*.toml")
    return sorted(found, key=lambda path: (len(path.name), path.name))


def _load_node(folder: Path, kind: NodeKind, path: Path) -> Node:
    config = read_toml(path)
    key = BROKER_ID.name if kind == "broker" else NODE_ID.name
    node_id = config.get(key)
    if not isinstance(node_id, int) or path.stem != f"{kind}-{node_id}":
        raise ConfigError(f"{path}: {key}={node_id} does not match the file's name")
    return Node(kind, node_id, config, folder)


def with_settings(node: Node, settings: Settings) -> Node:
    """Return the node with changed settings."""
    changed = dict(settings.quorum)
    if node.kind == "broker":
        with PortReservation() as ports:
            changed = with_own_ports(settings.broker, ports.claim_any, before=node.config)
        changed = with_own_folders(changed, node.folder / f"broker-{node.id}")
    return Node(node.kind, node.id, {**node.config, **changed}, node.folder)


def refuse_foreign_folder(folder: Path) -> None:
    """Check that the folder is empty or absent, as a new cluster requires.

    Raises:
        LocalClusterError: the folder holds something that is not a cluster.
    """
    if folder.exists() and not folder.is_dir():
        raise LocalClusterError(f"{folder} is a file: give a folder with --data")
    if folder.is_dir() and any(entry.name != LOCK_NAME for entry in folder.iterdir()):
        raise LocalClusterError(
            f"{folder} is not empty and holds no Quorate cluster: "
            f"give an empty or new folder with --data"
        )


LOCK_NAME: Final = ".lock"
