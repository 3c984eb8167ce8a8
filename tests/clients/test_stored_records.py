"""What topics make of what unmodified producers send: another codec, other times, or nothing."""

import time

import confluent_kafka
import pytest

from quorate.broker.config.topics import CODEC_OF_TYPE
from quorate.broker.log.batches.record_batch import iterate_batches
from quorate.client.results import NewTopic
from quorate.common.configuration import parse_endpoint
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from tests.support.kafka_clients import PATIENCE_S, AioKafka, Client, Confluent, KafkaPython
from tests.support.kafka_wire import WireClient, fetching
from tests.support.whole_cluster import wait_until_known

pytestmark = [
    pytest.mark.clients,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

HOUR_MS = 3_600_000
VALUES = [b"%d" % number * 50 for number in range(200)]


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    return module_quorate_cluster(brokers=1)


def create(cluster: RunningCluster, topic: str, **config: str) -> str:
    configs = {key.replace("_", "."): value for key, value in config.items()}
    with cluster.admin() as admin:
        new = NewTopic(name=topic, num_partitions=1, replication_factor=1, configs=configs)
        admin.create_topics([new])[0].raise_for_error()
    wait_until_known(cluster, topic, 1)
    return topic


def produce(
    cluster: RunningCluster, topic: str, codec: str = "none", timestamp_ms: int = 0
) -> list[confluent_kafka.Message]:
    """All as they were acknowledged."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 20,
        }
    )
    told: list[confluent_kafka.Message] = []
    for value in VALUES:
        producer.produce(
            topic,
            value,
            partition=0,
            timestamp=timestamp_ms,
            on_delivery=lambda _, message: told.append(message),
        )
    assert producer.flush(PATIENCE_S) == 0
    return told


def consume(cluster: RunningCluster, topic: str, count: int) -> list[confluent_kafka.Message]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[confluent_kafka.Message] = []
    end = time.monotonic() + PATIENCE_S
    try:
        while len(found) < count:
            assert time.monotonic() < end, len(found)
            found += consumer.consume(count, timeout=0.2)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(stored, marks=() if stored in ("uncompressed", "zstd") else pytest.mark.slow)
        for stored in CODEC_OF_TYPE
    ],
)
def test_a_topics_codec_is_that_of_all_batches(cluster: RunningCluster, stored: str) -> None:
    topic = create(cluster, f"codec-{stored}", compression_type=stored)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for message in produce(cluster, topic, codec):
            assert message.error() is None
    readers: list[Client] = [Confluent(cluster.bootstrap)]
    if stored in ("uncompressed", "gzip"):
        # Of the others pure Python decompresses nothing without libraries of its own.
        readers += [KafkaPython(cluster.bootstrap), AioKafka(cluster.bootstrap)]
    for reader in readers:
        assert reader.consume(topic, {0: 5 * len(VALUES)}) == {0: VALUES * 5}


async def test_the_log_has_the_topics_codec(cluster: RunningCluster) -> None:
    produce(cluster, create(cluster, "t", compression_type="lz4"), "gzip")
    address = parse_endpoint("listeners", cluster.broker_address(1))
    client = await WireClient.connect(address)
    response = await client.ask(1, 12, fetching())
    await client.close()
    records = response.responses[0].partitions[0].records
    codecs = {header.compression for header, _ in iterate_batches(records, "t-0")}
    assert codecs == {CODEC_OF_TYPE["lz4"]}


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_log_append_time_is_told_to_producers_and_consumers(
    cluster: RunningCluster, codec: str
) -> None:
    topic = create(cluster, f"append-time-{codec}", message_timestamp_type="LogAppendTime")
    before_ms = now_ms()
    told = produce(cluster, topic, codec, timestamp_ms=before_ms - 100 * HOUR_MS)
    after_ms = now_ms()
    found = consume(cluster, topic, len(VALUES))
    for message in [*told, *found]:
        kind, timestamp_ms = message.timestamp()
        assert message.error() is None
        assert kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
        assert before_ms <= timestamp_ms <= after_ms
    assert [message.value() for message in found] == VALUES
    assert [message.timestamp() for message in told] == [m.timestamp() for m in found]


@pytest.mark.parametrize(
    ("config", "age_ms", "is_taken"),
    [
        ({}, -HOUR_MS // 2, True),
        ({}, -2 * HOUR_MS, False),
        ({}, 1000 * HOUR_MS, True),
        ({"message_timestamp_before_max_ms": str(HOUR_MS)}, 2 * HOUR_MS, False),
        ({"message_timestamp_after_max_ms": str(9 * HOUR_MS)}, -2 * HOUR_MS, True),
    ],
)
def test_times_beyond_the_bounds_are_refused(
    cluster: RunningCluster,
    request: pytest.FixtureRequest,
    config: dict[str, str],
    age_ms: int,
    is_taken: bool,
) -> None:
    topic = create(cluster, f"bounds-{abs(hash(request.node.name))}", **config)
    told = produce(cluster, topic, timestamp_ms=now_ms() - age_ms)
    # The request's code is INVALID_TIMESTAMP; librdkafka says this of records that are named.
    refused = {confluent_kafka.KafkaError.INVALID_RECORD}
    codes = {None if (error := message.error()) is None else error.code() for message in told}
    assert codes == ({None} if is_taken else refused)
