"""Compacted topics in a real cluster: what unmodified consumers read, whatever is killed when."""

import time
from collections.abc import Iterator
from typing import Final

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer

from quorate.client.results import NewTopic, PartitionName
from quorate.testing import RunningCluster, running_cluster
from tests.support.kafka_clients import CLIENTS, Confluent, Kcat
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

PATIENCE_S: Final = 60.0
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(
        brokers=3, log_segment_bytes=1 << 20, log_cleaner_backoff_ms=100
    ) as running:
        yield running


def create(
    cluster: RunningCluster, name: str, replicas: tuple[int, ...] = (), **configs: str
) -> None:
    """A compacted topic whose records are cleaned within seconds; on all three brokers."""
    configs = {
        "cleanup.policy": "compact",
        "max.compaction.lag.ms": "500",
        "min.cleanable.dirty.ratio": "0.01",
    } | {key.replace("_", "."): value for key, value in configs.items()}
    with cluster.admin() as admin:
        on = replicas or tuple(cluster.broker_ids)
        topic = NewTopic(name=name, configs=configs, assignments=[on])
        admin.create_topics([topic])[0].raise_for_error()


class Writer:
    """Writes keys, and knows what each of them was last."""

    def __init__(self, cluster: RunningCluster, topic: str, codec: str = "none") -> None:
        self.newest: dict[bytes, bytes | None] = {}
        self.count = 0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "batch.num.messages": 20,
            }
        )

    def put(self, key: int, value: bytes | None) -> None:
        name = b"key-%d" % key
        self._producer.produce(self._topic, value, name, partition=0, on_delivery=self._delivered)
        self.newest[name] = value
        self.count += 1

    def round(self, keys: int, number: int) -> None:
        for key in range(keys):
            self.put(key, b"%d of %d " % (number, key) * 20)

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0

    def _delivered(self, error: object, message: object) -> None:
        assert error is None, error

    @property
    def live(self) -> dict[bytes, bytes]:
        return {key: value for key, value in self.newest.items() if value is not None}


def read_all(cluster: RunningCluster, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of everything there is, from the beginning."""
    partition = confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([partition])
    found: list[tuple[int, bytes, bytes | None]] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                offset, key = message.offset(), message.key()
                assert offset is not None
                assert key is not None
                found.append((offset, key, message.value()))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()
    raise TimeoutError(f"no end of {topic} after {len(found)} records")


def until_compacted(cluster: RunningCluster, topic: str, records: int) -> None:
    """Wait until no more than so many records are left of it."""
    wait_until(
        lambda: len(read_all(cluster, topic)) <= records,
        f"{topic} to have {records} records",
        timeout_s=PATIENCE_S,
    )


def check(found: list[tuple[int, bytes, bytes | None]], live: dict[bytes, bytes]) -> None:
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    replayed = {key: value for _, key, value in found}
    assert {key: value for key, value in replayed.items() if value is not None} == live


@pytest.mark.parametrize(
    "codec",
    [pytest.param(codec, marks=() if codec == "zstd" else pytest.mark.slow) for codec in CODECS],
)
def test_of_each_key_the_newest_record_is_left(cluster: RunningCluster, codec: str) -> None:
    topic = f"compacted-{codec}"
    create(cluster, topic, delete_retention_ms="0")
    writer = Writer(cluster, topic, codec)
    for number in range(10):
        writer.round(30, number)
    for key in range(0, 30, 3):
        writer.put(key, None)
    writer.flush()
    end = writer.count
    until_compacted(cluster, topic, 30)
    found = read_all(cluster, topic)
    check(found, writer.live)
    assert all(offset >= end - 40 for offset, _, _ in found)
    # Tombstones go at the cleaning after the one that met them first.
    writer.put(1, b"last")
    writer.flush()
    until_compacted(cluster, topic, 21)
    check(read_all(cluster, topic), writer.live)


def test_a_record_without_a_key_is_refused(cluster: RunningCluster) -> None:
    create(cluster, "keyed")
    errors: list[confluent_kafka.KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("keyed", b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    (error,) = errors
    assert error is not None
    assert error.code() == confluent_kafka.KafkaError.INVALID_RECORD


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_brokers_killed_while_they_clean_lose_nothing(cluster: RunningCluster, kills: int) -> None:
    topic = f"killed-{kills}"
    create(cluster, topic, min_insync_replicas="2", delete_retention_ms="0")
    writer = Writer(cluster, topic, "lz4")
    for number in range(kills):
        for part in range(4):
            writer.round(400, 10 * number + part)
        for key in range(number, 400, 10):
            writer.put(key, None)
        writer.flush()
        victim = cluster.broker_ids[number % 3]
        cluster.kill_broker(victim)
        writer.round(50, 10 * number + 9)
        writer.flush()
        cluster.restart_broker(victim)
        check(read_all(cluster, topic), writer.live)
    until_compacted(cluster, topic, 800)
    check(read_all(cluster, topic), writer.live)


def test_a_new_replica_takes_what_is_left_and_leads_with_it(cluster: RunningCluster) -> None:
    first, second, third = cluster.broker_ids
    create(cluster, "moved", replicas=(first, second))
    writer = Writer(cluster, "moved")
    for number in range(20):
        writer.round(20, number)
    writer.flush()
    until_compacted(cluster, "moved", 20)
    name = PartitionName(topic="moved", partition=0)
    with cluster.admin() as admin:
        assert admin.alter_partition_reassignments({name: (third,)})[0].ok
        wait_until(lambda: not admin.list_partition_reassignments(), "the move")
    check(read_all(cluster, "moved"), writer.live)
    writer.round(20, 99)
    writer.flush()
    until_compacted(cluster, "moved", 20)
    check(read_all(cluster, "moved"), writer.live)


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(client, marks=() if client is Confluent else pytest.mark.slow)
        for client in CLIENTS
    ],
    ids=lambda client: client.name,
)
def test_every_client_reads_past_what_is_gone(
    cluster: RunningCluster, client: type[Confluent] | type[Kcat]
) -> None:
    """Empty batches in front of the records, and between them."""
    if client is Kcat and Kcat.missing():
        pytest.skip("kcat is not installed: apt-get install kcat")
    topic = f"read-by-{client.name}"
    create(cluster, topic, delete_retention_ms="0")
    writer = Writer(cluster, topic, "gzip")
    for number in range(10):
        writer.round(30, number)
    for key in range(1, 30, 2):
        writer.put(key, None)
    writer.flush()
    until_compacted(cluster, topic, 30)
    writer.put(0, b"last")
    writer.flush()
    until_compacted(cluster, topic, 15)
    expected = [value for _, _, value in read_all(cluster, topic)]
    assert client(cluster.bootstrap).consume(topic, {0: 15}) == {0: expected}
