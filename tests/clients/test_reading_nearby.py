"""Unmodified consumers in a rack of a real cluster (KIP-392, KIP-227).

They read all from the replica next to them, in fetch sessions where they can, and go on elsewhere
when it dies.
"""

import json
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

from quorate.broker.config.client_keys import RACK_AWARE_SELECTOR
from quorate.cluster.fork_server.fork_servers import spawn_forked
from quorate.cluster.local import LocalCluster
from quorate.cluster.settings import check_settings
from quorate.testing import RunningCluster
from tests.support.kafka_clients import PATIENCE_S, Confluent, KafkaPython
from tests.support.whole_cluster import wait_until_known

pytestmark = [pytest.mark.clients, pytest.mark.integration]

PARTITIONS = 12
EACH = 20
NEAR = 2
"""The broker in the consumers' rack."""

Poll = Callable[[], list[tuple[int, bytes]]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """Broker n is in rack rn."""
    folder = Path(tempfile.mkdtemp(prefix="quorate-"))
    local = LocalCluster.create(
        folder,
        voters=1,
        brokers=3,
        port=0,
        settings=check_settings({"replica.selector.class": RACK_AWARE_SELECTOR}),
        progress=lambda _: None,
        attached=True,
        spawner=spawn_forked,
    )
    for node in local.brokers:
        with node.config_path.open("a", encoding="utf-8") as config:
            config.write(f'"broker.rack" = "r{node.id}"\n')
    try:
        local.start()
        yield RunningCluster(local)
    finally:
        local.stop(graceful=False)
        shutil.rmtree(folder)


@contextmanager
def confluent(cluster: RunningCluster, topic: str) -> Iterator[Poll]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "client.rack": f"r{NEAR}",
            "auto.offset.reset": "error",
            "topic.metadata.refresh.interval.ms": 1_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])

    def poll() -> list[tuple[int, bytes]]:
        found = []
        for message in consumer.consume(1_000, timeout=0.2):
            error = message.error()
            assert error is None or error.code() in TRANSIENT, error
            if error is None:
                found.append((message.partition() or 0, message.value() or b""))
        return found

    try:
        yield poll
    finally:
        consumer.close()


TRANSIENT = (
    confluent_kafka.KafkaError._TRANSPORT,
    confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
    confluent_kafka.KafkaError._RESOLVE,
)


@contextmanager
def kafka_python(cluster: RunningCluster, topic: str) -> Iterator[Poll]:
    """The one of the clients that has fetch sessions."""
    with KafkaPython(cluster.bootstrap).in_rack(f"r{NEAR}", topic, PARTITIONS) as consumer:

        def poll() -> list[tuple[int, bytes]]:
            found = consumer.poll(timeout_ms=200)
            return [(tp.partition, record.value) for tp, some in found.items() for record in some]

        yield poll


def figures(cluster: RunningCluster, name: str, **labels: str) -> dict[int, float]:
    """Of each live broker, the sum of one figure."""
    found = {}
    for group in json.loads((cluster.folder / "prometheus.json").read_text()):
        if group["labels"]["kind"] != "broker":
            continue
        with urllib.request.urlopen(f"http://{group['targets'][0]}/metrics", timeout=10) as page:
            text = page.read().decode()
        found[int(group["labels"]["id"])] = sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )
    return found


def values_of(begin: int) -> dict[int, list[bytes]]:
    return {
        partition: [b"%d-%d" % (partition, n) for n in range(begin, begin + EACH)]
        for partition in range(PARTITIONS)
    }


def read_until(poll: Poll, got: dict[int, list[bytes]], each: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while any(len(values) < each for values in got.values()):
        assert time.monotonic() < end, {p: len(values) for p, values in got.items()}
        for partition, value in poll():
            got[partition].append(value)


@pytest.mark.parametrize("reader", [kafka_python, confluent], ids=lambda one: one.__name__)
def test_a_consumer_reads_all_from_the_replica_in_its_rack(
    cluster: RunningCluster,
    reader: Callable[[RunningCluster, str], AbstractContextManager[Poll]],
) -> None:
    topic = f"nearby-{reader.__name__.replace('_', '-')}"
    client = Confluent(cluster.bootstrap)
    client.create(topic, PARTITIONS, replication_factor=3)
    wait_until_known(cluster, topic, PARTITIONS)
    first, second = values_of(0), values_of(EACH)
    client.produce(topic, first)
    got: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    with reader(cluster, topic) as poll:
        read_until(poll, got, EACH)
        sessions = figures(cluster, "quorate_fetch_sessions")
        client.produce(topic, second)
        read_until(poll, got, 2 * EACH)
    assert got == {partition: first[partition] + second[partition] for partition in first}
    sent = figures(cluster, "quorate_bytes_out_total", topic=topic)
    assert sent.pop(NEAR) > 0
    assert set(sent.values()) == {0.0}
    if reader is kafka_python:
        assert sessions[NEAR] > 0


def test_a_consumer_goes_on_when_its_replica_dies(cluster: RunningCluster) -> None:
    client = Confluent(cluster.bootstrap)
    client.create("dies", PARTITIONS, replication_factor=3)
    wait_until_known(cluster, "dies", PARTITIONS)
    first, second = values_of(0), values_of(EACH)
    client.produce("dies", first)
    got: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    with confluent(cluster, "dies") as poll:
        read_until(poll, got, EACH)
        cluster.kill_broker(NEAR)
        client.produce("dies", second)
        read_until(poll, got, 2 * EACH)
    assert got == {partition: first[partition] + second[partition] for partition in first}
    cluster.restart_broker(NEAR)
