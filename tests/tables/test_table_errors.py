"""A table that fails, as another process than its service sees it."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from quorate.client.results import ConfigChange, NewTopic
from quorate.client.security import read_options
from quorate.cluster.client_options import client_options_of
from quorate.spark.options.connection_options import ConnectionOptions
from quorate.tables.service.table_status import TableStatus, table_statuses
from quorate.tables.service.table_topics import table_topics
from quorate.testing import RunningCluster, running_cluster
from tests.support.waiting import wait_until
from tests.tables.campaign import Service

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(300)]


def status(cluster: RunningCluster) -> TableStatus:
    connection = ConnectionOptions(
        cluster.bootstrap, read_options(client_options_of(cluster.folder))
    )
    with cluster.admin() as admin:
        [found] = table_statuses(admin, connection, table_topics(admin, ["customers"]))
    return found


def alter(cluster: RunningCluster, **configs: str) -> None:
    change = ConfigChange(
        "topic", "customers", {name.replace("_", "."): one for name, one in configs.items()}
    )
    with cluster.admin() as admin:
        admin.incremental_alter_configs([change])[0].raise_for_error()


def test_an_error_is_seen_until_it_is_mended(tmp_path: Path) -> None:
    configs: dict[str, Any] = {
        "table.format": "delta",
        "table.write.mode": "upsert",
        "table.commit.interval.ms": "200",
    }
    with running_cluster() as cluster:
        with cluster.admin() as admin:
            topic = NewTopic(
                name="customers", num_partitions=1, replication_factor=1, configs=configs
            )
            admin.create_topics([topic])[0].raise_for_error()
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(20):
            producer.produce("customers", b"v%d" % number, b"k%d" % (number % 3))
        assert producer.flush(30) == 0
        service = Service(cluster, tmp_path / "warehouse", "a", tmp_path / "a.log")
        service.start()
        try:
            wait_until(lambda: status(cluster).state == "failing", "an error", timeout_s=60)
            found = status(cluster)
            assert "needs cleanup.policy=compact" in found.error
            assert found.owner.startswith("a ")
            alter(cluster, cleanup_policy="compact")
            wait_until(lambda: status(cluster).rows == 3, "rows", timeout_s=60)
            assert (status(cluster).state, status(cluster).error) == ("kept", "")
        finally:
            service.stop()
        assert (status(cluster).state, status(cluster).error) == ("waiting", "")
