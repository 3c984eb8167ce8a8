"""Workers of a share group while brokers are killed, and what comes of it."""

import random
import time
from contextlib import ExitStack
from functools import partial
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster
from tests.queues.ledger import Ledger, Record
from tests.queues.workers import Worker
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

CONFIG: Final = {
    "offsets.topic.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
    "group.share.record.lock.duration.ms": 5_000,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.heartbeat.interval.ms": 500,
    "group.share.min.heartbeat.interval.ms": 500,
    "group.share.assignment.interval.ms": 100,
    "group.share.delivery.count.limit": 10,
}


def begin_at_the_earliest(bootstrap: str, group_id: str) -> None:
    """Have a share group begin with the first record of each partition."""
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group_id, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for outcome in admin.incremental_alter_configs([resource]).values():
        outcome.result()


def create(cluster: RunningCluster, name: str, partitions: int) -> None:
    """Create a topic with three replicas."""
    with cluster.admin() as admin:
        new = NewTopic(name=name, num_partitions=partitions, replication_factor=3)
        admin.create_topics([new])[0].raise_for_error()


def fill(bootstrap: str, topic: str, records: int) -> list[Record]:
    """Produce records, and return where they are."""
    found: list[Record] = []

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        found.append(Record(message.partition(), message.offset()))  # type: ignore[attr-defined]

    # Small batches: a broker hands out whole ones.
    settings = {"bootstrap.servers": bootstrap, "log_level": 0, "batch.num.messages": 10}
    producer = Producer(settings)
    for number in range(records):
        producer.produce(topic, str(number).encode(), on_delivery=delivered)
        producer.poll(0)
    producer.flush()
    assert len(found) == records
    return found


def _is_down_to(ledger: Ledger, left: int) -> bool:
    return ledger.left <= left


def work_through_kills(
    cluster: RunningCluster,
    *,
    topic: str,
    records: int,
    workers: int,
    kills: int,
    choice: random.Random,
) -> Ledger:
    """Have workers take all records while brokers are killed and started again."""
    group_id = f"workers-of-{topic}"
    begin_at_the_earliest(cluster.bootstrap, group_id)
    ledger = Ledger(fill(cluster.bootstrap, topic, records))
    share = records // (kills + 1)
    with ExitStack() as stack:
        for number in range(workers):
            name = f"worker-{number}"
            stack.enter_context(Worker(cluster.bootstrap, group_id, topic, name, ledger))
        for kill in range(1, kills + 1):
            goal = records - share * kill
            wait_until(partial(_is_down_to, ledger, goal), "records are taken", timeout_s=90)
            assert ledger.left, "all was done before the kill: there are too few records"
            broker_id = choice.choice(cluster.broker_ids)
            cluster.kill_broker(broker_id)
            time.sleep(choice.random() * 0.5)
            cluster.restart_broker(broker_id)
            if kill < kills:
                wait_until_whole(cluster)
        wait_until(lambda: ledger.is_complete, "all is acknowledged", timeout_s=120)
    return ledger
