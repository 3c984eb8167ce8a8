"""Retention in a real cluster: set by clients while it runs, seen by consumers."""

import time
from collections.abc import Iterator
from typing import Final

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

PATIENCE_S: Final = 30.0
DAY_MS: Final = 86_400_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, log_retention_check_interval_ms=200) as running:
        yield running


def create(cluster: RunningCluster, name: str, **configs: str) -> None:
    with cluster.admin() as admin:
        topic = NewTopic(name=name, num_partitions=1, replication_factor=3, configs=configs)
        admin.create_topics([topic])[0].raise_for_error()


def produce(cluster: RunningCluster, topic: str, *ages_days: float) -> None:
    """One batch per record."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 1})
    now_ms = time.time_ns() // 1_000_000
    for number, age_days in enumerate(ages_days):
        timestamp_ms = int(now_ms - age_days * DAY_MS)
        producer.produce(topic, b"%d" % number, partition=0, timestamp=timestamp_ms)
    assert producer.flush(PATIENCE_S) == 0


def begins_at(cluster: RunningCluster, topic: str, offset: int) -> None:
    """Wait until the log begins there for consumers."""
    wait_until(
        lambda: _low(cluster, topic) == offset,
        f"{topic} to begin at {offset}",
        timeout_s=PATIENCE_S,
    )


def _low(cluster: RunningCluster, topic: str) -> int | None:
    """None: its leader has just gone. A new client each time: an old one keeps asking that one."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    partition = confluent_kafka.TopicPartition(topic, 0)
    try:
        low, _ = consumer.get_watermark_offsets(partition, timeout=1)
    except confluent_kafka.KafkaException:
        return None
    finally:
        consumer.close()
    return int(low)


def alter(cluster: RunningCluster, topic: str, key: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result()


def test_d3_retention_is_seven_days_and_changes_while_brokers_run(
    cluster: RunningCluster,
) -> None:
    create(cluster, "orders")
    produce(cluster, "orders", 9, 8, 6, 2, 0)
    begins_at(cluster, "orders", 2)
    alter(cluster, "orders", "retention.ms", str(3 * DAY_MS))
    begins_at(cluster, "orders", 3)
    alter(cluster, "orders", "retention.bytes", "1")
    begins_at(cluster, "orders", 4)


def test_d3_a_topic_that_is_kept_for_ever_is(cluster: RunningCluster) -> None:
    create(cluster, "archive", **{"retention.ms": "-1"})
    create(cluster, "other")
    produce(cluster, "archive", 900, 800)
    produce(cluster, "other", 900)
    begins_at(cluster, "other", 1)
    begins_at(cluster, "archive", 0)


def test_d3_a_new_leader_brings_nothing_back(cluster: RunningCluster) -> None:
    create(cluster, "moved")
    produce(cluster, "moved", 9, 9, 0)
    begins_at(cluster, "moved", 2)
    with cluster.admin() as admin:
        leader = admin.describe_topics(["moved"])[0].partitions[0].leader
    cluster.kill_broker(leader)
    try:
        begins_at(cluster, "moved", 2)
    finally:
        cluster.restart_broker(leader)
