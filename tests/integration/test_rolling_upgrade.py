"""Scenario 21: a rolling restart through both levels of inter_broker_protocol, under load."""

import dataclasses
from collections.abc import Iterator

import pytest

from quorate.client.results import NewTopic
from quorate.cluster.layout import load_nodes, write_config
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import acked_load, assert_nothing_lost, consume_all
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

LEVEL = "inter.broker.protocol.version"
PARTITIONS = 6
RECORDS = 20
"""Per partition, acknowledged between two restarts."""


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    """As brokers of the version before would run it."""
    with running_cluster(brokers=3, voters=1, config={LEVEL: 1}) as cluster:
        yield cluster


def configure_level(cluster: RunningCluster, broker_id: int, level: int) -> None:
    """What the broker may use from its next start on."""
    for node in load_nodes(cluster.folder):
        if (node.kind, node.id) == ("broker", broker_id):
            write_config(dataclasses.replace(node, config={**node.config, LEVEL: level}))


def levels(cluster: RunningCluster) -> tuple[int, int]:
    """In force, and understood by all live brokers."""
    for feature in cluster.status().features:
        if feature.name == "inter_broker_protocol":
            return feature.level, feature.newest
    raise AssertionError("the feature is not shown")


@pytest.mark.slow
def test_b4_scenario_21_nothing_is_lost_in_a_rolling_upgrade(cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        new = NewTopic(name="load", num_partitions=PARTITIONS, replication_factor=3)
        admin.create_topics([new])[0].raise_for_error()
    assert levels(cluster) == (1, 1)
    with acked_load(cluster.bootstrap, "load", PARTITIONS) as load:
        for broker_id in cluster.broker_ids:
            load.wait_for_more(RECORDS)
            configure_level(cluster, broker_id, 2)
            cluster.stop_broker(broker_id)
            cluster.restart_broker(broker_id)
            wait_until_whole(cluster)
        assert levels(cluster) == (1, 2), "the new software behaves as the old one"
        with cluster.admin() as admin:
            (raised,) = admin.update_features({"inter_broker_protocol": 2})
            raised.raise_for_error()
        load.wait_for_more(RECORDS)
        for broker_id in cluster.broker_ids:
            cluster.stop_broker(broker_id)
            cluster.restart_broker(broker_id)
            wait_until_whole(cluster)
            load.wait_for_more(RECORDS)
        acknowledged = load.stop()
    assert levels(cluster) == (2, 2)
    assert not acknowledged.failures
    assert_nothing_lost(acknowledged, consume_all(cluster.bootstrap, "load", PARTITIONS))


def test_b4_scenario_21_a_broker_left_behind_holds_the_upgrade_up_and_cannot_come_late(
    cluster: RunningCluster,
) -> None:
    for broker_id in (1, 2):
        configure_level(cluster, broker_id, 2)
        cluster.restart_broker(broker_id)
    wait_until_whole(cluster)
    with cluster.admin() as admin:
        (refused,) = admin.update_features({"inter_broker_protocol": 2})
        assert "broker 3 (1 at most)" in refused.message
        cluster.stop_broker(3)
        wait_until(lambda: len(cluster.status().brokers) == 2, "broker 3 to be gone")
        admin.update_features({"inter_broker_protocol": 2})[0].raise_for_error()
    cluster.restart_broker(3, wait=False)
    wait_until(
        lambda: any("inter_broker_protocol is at level 2" in line for line in last_words(cluster)),
        "broker 3 to say why it cannot join",
    )


def last_words(cluster: RunningCluster) -> list[str]:
    return cluster.broker_log(3, 5)
