"""The controller of a real cluster: it dies, resigns, deletes; brokers bounce and stop."""

import time
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Producer

from quorate.client.admin import AdminClient
from quorate.client.results import NewTopic, PartitionInfo
from quorate.testing.running import RunningCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

FAILOVER_LIMIT_S = 6.0
"""Well under a session timeout: a broken connection is noticed after a second."""


@pytest.fixture
def cluster(quorate_cluster: Callable[..., RunningCluster]) -> RunningCluster:
    return quorate_cluster(brokers=3)


def create(cluster: RunningCluster, name: str, *assignments: Sequence[int]) -> None:
    with cluster.admin() as admin:
        (result,) = admin.create_topics([NewTopic(name=name, assignments=assignments)])
    assert result.error == "NONE", result.message


def partitions(cluster: RunningCluster, name: str) -> Sequence[PartitionInfo]:
    with cluster.admin() as admin:
        (topic,) = admin.describe_topics([name])
    return topic.partitions


def leaders(cluster: RunningCluster, name: str) -> list[int]:
    return [partition.leader for partition in partitions(cluster, name)]


def write_one(cluster: RunningCluster, topic: str) -> None:
    """One record, durable on every member of the ISR."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce(topic, b"a record")
    assert producer.flush(20) == 0


def test_c2_e1_e2_c9_the_controllers_broker_dies_and_all_it_held_moves(
    cluster: RunningCluster,
) -> None:
    first = cluster.status()
    others = [one for one in cluster.broker_ids if one != first.controller_id]
    create(cluster, "orders", *[(first.controller_id, *others)] * 4)
    assert leaders(cluster, "orders") == [first.controller_id] * 4
    cluster.kill_broker(first.controller_id)
    wait_until(
        lambda: (
            cluster.controller_id() in others and set(leaders(cluster, "orders")) <= set(others)
        ),
        "another controller, and leaders among the living",
        timeout_s=FAILOVER_LIMIT_S,
    )
    after = cluster.status()
    assert after.controller_epoch == first.controller_epoch + 1
    assert not after.offline_partitions
    cluster.restart_broker(first.controller_id)
    wait_until(
        lambda: not cluster.status().under_replicated_partitions, "the ISRs to be whole again"
    )
    assert cluster.controller_id() == after.controller_id, "who comes back stands behind"


def test_e5_the_controller_resigns_and_another_broker_follows(cluster: RunningCluster) -> None:
    before = cluster.status()
    with cluster.admin() as admin:
        admin.resign_controller()
    wait_until(
        lambda: cluster.controller_id() not in (-1, before.controller_id), "another controller"
    )
    assert cluster.status().controller_epoch == before.controller_epoch + 1
    create(cluster, "after", (1, 2, 3))


def test_b3_scenario_11_a_broker_that_stops_hands_over_first(cluster: RunningCluster) -> None:
    """Scenario 11: nobody ever sees an offline partition, and the stop is quick."""
    create(cluster, "orders", (2, 1, 3), (2, 3, 1))
    begin = time.monotonic()
    cluster.stop_broker(2)
    took_s = time.monotonic() - begin
    assert set(leaders(cluster, "orders")) <= {1, 3}
    assert any("leads nothing any more" in line for line in cluster.broker_log(2))
    assert took_s < 8, "it did not wait for its limit"


def test_b3_a_bounced_broker_is_noticed_and_rejoins(cluster: RunningCluster) -> None:
    create(cluster, "orders", (2, 3))
    create(cluster, "alone", (2,))
    before = partitions(cluster, "alone")[0].leader_epoch
    cluster.restart_broker(2)
    wait_until(
        lambda: (
            partitions(cluster, "alone")[0].leader == 2
            and partitions(cluster, "alone")[0].leader_epoch > before
        ),
        "a new leader epoch for what it alone has",
    )
    wait_until(lambda: len(partitions(cluster, "orders")[0].isr) == 2, "the ISR to be whole again")


def test_c5_a_topic_deleted_while_a_broker_is_down_is_gone_there_too(
    cluster: RunningCluster,
) -> None:
    create(cluster, "orders", (1, 2, 3))
    write_one(cluster, "orders")
    cluster.kill_broker(3)
    wait_until(lambda: len(cluster.status().brokers) == 2, "broker 3 to be missed")
    with cluster.admin() as admin:
        (result,) = admin.delete_topics(["orders"])
        assert result.error == "NONE", result.message
        assert "orders" not in admin.list_topics()
    create(cluster, "orders", (1, 2))
    cluster.restart_broker(3)
    wait_until(
        lambda: any("deleted the replicas of orders-0" in line for line in cluster.broker_log(3)),
        "broker 3 to find that the first topic is gone",
        timeout_s=20,
    )
    assert partitions(cluster, "orders")[0].isr == (1, 2)


def test_c4_the_controller_answers_for_each_topic(cluster: RunningCluster) -> None:
    wanted = [
        NewTopic(name="good", num_partitions=2, replication_factor=3),
        NewTopic(name="too.many", num_partitions=1, replication_factor=4),
        NewTopic(name="bad name", num_partitions=1, replication_factor=1),
    ]
    with cluster.admin() as admin:
        results = admin.create_topics(wanted)
        assert [one.error for one in results] == [
            "NONE",
            "INVALID_REPLICATION_FACTOR",
            "INVALID_TOPIC_EXCEPTION",
        ]
        assert admin.list_topics() == ["good"]


def test_c9_every_broker_knows_the_controller(cluster: RunningCluster) -> None:
    for broker_id in cluster.broker_ids:
        with AdminClient(grpc_addresses=[cluster.broker_grpc_address(broker_id)]) as admin:
            assert admin.cluster_status().controller_id == cluster.controller_id()
