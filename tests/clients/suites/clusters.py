"""Clusters as these suites expect them: as Kafka's own test fixtures configure brokers."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from quorate.broker.config.listeners import ADVERTISED_LISTENERS
from quorate.cluster.certificates import make_certificates
from quorate.cluster.layout import Node, plan_cluster, write_config
from quorate.cluster.local import LocalCluster
from quorate.cluster.settings import check_settings
from quorate.testing.fork_server.fork_servers import spawn_forked


@contextmanager
def suite_cluster(brokers: int, config: Mapping[str, object]) -> Iterator[LocalCluster]:
    """Brokers count from 0, and say in their configuration where clients reach them."""
    folder = Path(tempfile.mkdtemp(prefix="quorate-suite-")).resolve()
    settings = check_settings(config)
    planned = plan_cluster(
        folder,
        voters=1,
        brokers=brokers,
        port=0,
        settings=settings,
        cluster_id="suites",
        first_broker_id=0,
    )
    nodes = [_advertised(node) if node.kind == "broker" else node for node in planned]
    cluster = LocalCluster(
        folder, nodes, progress=lambda message: None, attached=True, spawner=spawn_forked
    )
    try:
        make_certificates(folder, nodes)
        for node in nodes:
            write_config(node)
        cluster.start()
        yield cluster
    finally:
        cluster.stop(graceful=False)
        shutil.rmtree(folder)


def _advertised(node: Node) -> Node:
    advertised = {ADVERTISED_LISTENERS.name: f"PLAINTEXT://{node.kafka_address}"}
    return Node(node.kind, node.id, {**node.config, **advertised}, node.folder)
