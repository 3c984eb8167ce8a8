"""A broker whose folder lacks a log, or is an old copy: nothing that was acknowledged is lost.

Every broker is killed, and the damaged one comes back alone and first, last, or with the others. It
may be in the ISR of everything, so only what it declares when it registers keeps it from leading
(rules 7 and 8).
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.recovery.strays import strays
from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.waiting import let_time_pass, wait_until
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC = "d"
RECORDS = 1_000
VICTIM = 1
RECORD_MOVES_S = 2.5
"""The record of what is hosted is on disk by then (``hosting.hosted_record``)."""

ORDERS = {"first": [[1], [2, 3]], "last": [[2, 3], [1]], "among": [[1, 2, 3]]}


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    config = {"min.insync.replicas": 2}
    with running_cluster(brokers=3, voters=1, config=config) as cluster:
        with cluster.admin() as admin:
            new = NewTopic(name=TOPIC, num_partitions=1, replication_factor=3)
            admin.create_topics([new])[0].raise_for_error()
        wait_until_known(cluster, TOPIC, 1)
        wait_until_whole(cluster)
        yield cluster


def value(number: int) -> bytes:
    return b"record %06d" % number


def produce(cluster: RunningCluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 1})
    failed: list[object] = []
    for number in numbers:
        producer.produce(
            TOPIC,
            value=value(number),
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert not failed


def consumed(cluster: RunningCluster, count: int) -> list[bytes]:
    """The values from the beginning on, as many as there should be."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
    values: list[bytes] = []

    def enough() -> bool:
        for message in consumer.consume(count, timeout=0.5):
            assert message.error() is None
            values.append(message.value() or b"")
        return len(values) >= count

    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        wait_until(enough, lambda: f"{count} records, not {len(values)}")
    finally:
        consumer.close()
    return values


def folder_of(cluster: RunningCluster, broker_id: int) -> Path:
    return cluster.folder / f"broker-{broker_id}"


def epochs(cluster: RunningCluster) -> dict[int, int]:
    return {broker.id: broker.epoch for broker in cluster.status().brokers}


def kill_all(cluster: RunningCluster) -> dict[int, int]:
    """Kill all brokers, and return the epochs that they had."""
    before = epochs(cluster)
    for broker_id in cluster.broker_ids:
        cluster.kill_broker(broker_id)
    return before


def start_in(cluster: RunningCluster, groups: list[list[int]], before: dict[int, int]) -> None:
    """Start one group of brokers after the other; each is up before the next one starts."""
    for group in groups:
        for broker_id in group:
            cluster.restart_broker(broker_id, wait=False)

        def are_up(came: list[int] = group) -> bool:
            now = epochs(cluster)
            return all(now.get(one, -1) > before[one] for one in came)

        cluster.wait_until(are_up, f"brokers {group} to register")
        let_time_pass(2.0, "what the controller does about those that have come alone")


def said(cluster: RunningCluster, what: str) -> bool:
    return any(what in line for line in cluster.broker_log(VICTIM, lines=500))


def flip_a_bit_of_the_topic_id(folder: Path) -> None:
    """The checksum is right: this is what no checksum finds."""
    table = StoreTable.open(folder)
    rows = table.partitions()
    changed = [
        msgspec.structs.replace(row, topic_id=bytes([row.topic_id[0] ^ 1]) + row.topic_id[1:])
        if row.topic == TOPIC
        else row
        for row in rows
    ]
    assert changed != rows
    table.add_partitions(changed)
    table.close()


def raise_the_promise(folder: Path) -> None:
    """The log ends below its checkpointed high watermark, as if the disk had lost its end."""
    table = StoreTable.open(folder)
    (number,) = [row.number for row in table.partitions() if row.topic == TOPIC]
    table.write_high_watermarks({**table.high_watermarks(), number: RECORDS + 1})
    table.close()


@pytest.mark.parametrize(
    "order",
    [pytest.param(order, marks=() if order == "first" else pytest.mark.slow) for order in ORDERS],
)
def test_rules_7_and_8_a_flipped_bit_of_a_topic_id_loses_nothing(
    cluster: RunningCluster, order: str
) -> None:
    produce(cluster, range(RECORDS))
    let_time_pass(RECORD_MOVES_S, "the record of what is hosted")
    before = kill_all(cluster)
    flip_a_bit_of_the_topic_id(folder_of(cluster, VICTIM))
    start_in(cluster, ORDERS[order], before)
    wait_until_whole(cluster)
    assert consumed(cluster, RECORDS) == [value(number) for number in range(RECORDS)]
    if order == "first":  # Otherwise the others may have taken it out of the ISR before.
        assert said(cluster, f"{TOPIC}-0 is lost on this broker: its log is not in the folder")
    wait_until(
        lambda: said(cluster, "the quorum does not know these partitions"),
        "the log under the unknown id to be kept",
    )
    assert not said(cluster, "deleting the logs")
    with cluster.admin() as admin:
        assert any("look at them with `quorate log strays" in one for one in admin.cluster_alerts())
    cluster.stop_broker(VICTIM)
    (stray,) = strays(folder_of(cluster, VICTIM))
    assert (stray.topic, stray.end_offset) == (TOPIC, RECORDS)


def test_rule_8_a_log_below_its_own_promise_leads_nobody(cluster: RunningCluster) -> None:
    produce(cluster, range(RECORDS))
    before = kill_all(cluster)
    raise_the_promise(folder_of(cluster, VICTIM))
    start_in(cluster, ORDERS["first"], before)
    wait_until_whole(cluster)
    assert consumed(cluster, RECORDS) == [value(number) for number in range(RECORDS)]
    assert said(cluster, f"{TOPIC}-0 is lost on this broker: its log ends below")


def test_rule_8_an_old_copy_of_the_folder_leads_nobody(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """The copy is from an incarnation before the one that the quorum knows."""
    produce(cluster, range(RECORDS // 2))
    cluster.stop_broker(VICTIM)
    shutil.copytree(folder_of(cluster, VICTIM), tmp_path / "copy")
    cluster.restart_broker(VICTIM)
    wait_until_whole(cluster)
    produce(cluster, range(RECORDS // 2, RECORDS))
    before = kill_all(cluster)
    put_back(cluster, tmp_path / "copy")
    start_in(cluster, ORDERS["first"], before)
    wait_until_whole(cluster)
    assert consumed(cluster, RECORDS) == [value(number) for number in range(RECORDS)]
    assert said(cluster, "is an old copy, or has lost its last writes: it does not know")


@pytest.mark.slow
def test_rule_8_a_disk_that_lost_its_last_minutes_leads_nobody(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """The copy is from the incarnation that the quorum knows: only the mark tells."""
    produce(cluster, range(RECORDS // 2))
    cluster.pause_broker(VICTIM)
    shutil.copytree(folder_of(cluster, VICTIM), tmp_path / "copy")
    cluster.resume_broker(VICTIM)
    wait_until_whole(cluster)
    for tenth in range(5):
        first = RECORDS // 2 + tenth * 100
        produce(cluster, range(first, first + 100))
        let_time_pass(5.0, "a checkpoint with its mark")
    before = kill_all(cluster)
    put_back(cluster, tmp_path / "copy")
    start_in(cluster, ORDERS["first"], before)
    wait_until_whole(cluster)
    assert consumed(cluster, RECORDS) == [value(number) for number in range(RECORDS)]
    assert said(cluster, "and the quorum has seen")


def put_back(cluster: RunningCluster, copy: Path) -> None:
    shutil.rmtree(folder_of(cluster, VICTIM))
    shutil.copytree(copy, folder_of(cluster, VICTIM))


def test_killed_brokers_with_whole_folders_declare_nothing(cluster: RunningCluster) -> None:
    """A topic that was created right before has no record yet, and is not lost."""
    produce(cluster, range(RECORDS))
    with cluster.admin() as admin:
        new = NewTopic(name="newest", num_partitions=3, replication_factor=3)
        admin.create_topics([new])[0].raise_for_error()
    before = kill_all(cluster)
    start_in(cluster, ORDERS["first"], before)
    wait_until_whole(cluster)
    assert consumed(cluster, RECORDS) == [value(number) for number in range(RECORDS)]
    for broker_id in cluster.broker_ids:
        lines = cluster.broker_log(broker_id, lines=500)
        assert not [
            line for line in lines if "is lost on this broker" in line or "old copy" in line
        ]
