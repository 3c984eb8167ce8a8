"""Clusters as these suites expect them: as Kafka's own test fixtures configure brokers."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from quorate.broker.config.listeners import ADVERTISED_LISTENERS
from quorate.client.results import ScramUpsertion
from quorate.cluster.certificates import make_certificates
from quorate.cluster.fork_server.fork_servers import spawn_forked
from quorate.cluster.layout import Node, plan_cluster, with_settings, write_config
from quorate.cluster.local import LocalCluster
from quorate.cluster.settings import Settings, check_settings
from quorate.testing import RunningCluster

PLAIN_LOGIN: Final[Mapping[str, object]] = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "grpc.security.protocol": "SSL",
    "grpc.ssl.client.auth": "required",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:plain-admin;User:CN=admin",
}
"""Brokers whose clients log in by PLAIN, as those of Kafka's test kit do."""

_USERS: Final = {"plain-admin": "plain-admin-secret", "plain-user1": "plain-user1-secret"}
"""The users of Kafka's test kit, and their passwords."""


@contextmanager
def suite_cluster(
    brokers: int,
    config: Mapping[str, object],
    broker_configs: Mapping[int, Mapping[str, object]] | None = None,
) -> Iterator[RunningCluster]:
    """Brokers count from 0, and say in their configuration where clients reach them.

    ``broker_configs``: broker id → what it alone has. With ``PLAIN_LOGIN`` in ``config`` there are
    the users of Kafka's test kit.
    """
    folder = Path(tempfile.mkdtemp(prefix="quorate-suite-")).resolve()
    nodes = _nodes(folder, brokers, config, broker_configs or {})
    cluster = LocalCluster(
        folder, nodes, progress=lambda message: None, attached=True, spawner=spawn_forked
    )
    try:
        make_certificates(folder, nodes)
        for node in nodes:
            write_config(node)
        cluster.start()
        running = RunningCluster(cluster)
        if PLAIN_LOGIN.items() <= config.items():
            _add_users(running)
        yield running
    finally:
        cluster.stop(graceful=False)
        shutil.rmtree(folder)


def _nodes(
    folder: Path,
    brokers: int,
    config: Mapping[str, object],
    broker_configs: Mapping[int, Mapping[str, object]],
) -> list[Node]:
    planned = plan_cluster(
        folder,
        voters=1,
        brokers=brokers,
        port=0,
        settings=check_settings(config),
        cluster_id="suites",
        first_broker_id=0,
    )
    nodes = [_advertised(node) if node.kind == "broker" else node for node in planned]
    return [
        with_settings(node, Settings(broker=check_settings(broker_configs[node.id]).broker))
        if node.kind == "broker" and node.id in broker_configs
        else node
        for node in nodes
    ]


def _advertised(node: Node) -> Node:
    advertised = {ADVERTISED_LISTENERS.name: f"PLAINTEXT://{node.kafka_address}"}
    return Node(node.kind, node.id, {**node.config, **advertised}, node.folder)


def _add_users(cluster: RunningCluster) -> None:
    changes = [
        ScramUpsertion.of_password(user, "SCRAM-SHA-256", password)
        for user, password in _USERS.items()
    ]
    with cluster.admin() as admin:
        for result in admin.alter_user_scram_credentials(changes):
            result.raise_for_error()
