"""Unmodified clients against three real brokers: what is acknowledged by all is read back equal."""

import time

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

import quorate.client
from quorate.client.results import ConfigChange
from quorate.common.configuration import parse_endpoint
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_clients import CLIENTS, PATIENCE_S, Client, Confluent, Kcat
from tests.support.kafka_wire import WireClient, fetching, producing, record_batch

pytestmark = [
    pytest.mark.clients,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    return module_quorate_cluster(brokers=3)


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest, cluster: RunningCluster) -> Client:
    if request.param is Kcat and Kcat.missing():
        pytest.skip("kcat is not installed: apt-get install kcat")
    made: Client = request.param(cluster.bootstrap)
    return made


def test_all_records_acknowledged_by_all_replicas_are_consumed_in_order(client: Client) -> None:
    topic = f"on-cluster-{client.name}"
    client.create(topic, PARTITIONS, replication_factor=3)
    sent = {
        partition: [b"%d-%d" % (partition, number) for number in range(300)]
        for partition in range(PARTITIONS)
    }
    client.produce(topic, sent)
    assert client.end_offsets(topic, PARTITIONS) == dict.fromkeys(range(PARTITIONS), 300)
    assert client.consume(topic, {p: len(items) for p, items in sent.items()}) == sent


def test_kip_467_a_client_learns_which_records_of_a_batch_were_at_fault(
    cluster: RunningCluster,
) -> None:
    """A compacted topic takes no record without a key; the others of its batch are told apart."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    compacted = NewTopic("compacted", 1, 3, config={"cleanup.policy": "compact"})
    admin.create_topics([compacted])["compacted"].result(PATIENCE_S)
    told: dict[bytes | None, int] = {}

    def delivered(
        error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        told[message.value()] = 0 if error is None else error.code()

    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 500})
    for number in range(5):
        key = None if number in (1, 4) else b"k"
        producer.produce("compacted", b"%d" % number, key=key, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    at_fault = confluent_kafka.KafkaError.INVALID_RECORD
    with_it = confluent_kafka.KafkaError._INVALID_DIFFERENT_RECORD
    assert told == {b"0": with_it, b"1": at_fault, b"2": with_it, b"3": with_it, b"4": at_fault}


def test_kip_734_the_offset_of_the_greatest_timestamp(cluster: RunningCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("timed", 1, 3)])["timed"].result(PATIENCE_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for timestamp_ms in (1_000, 3_000, 2_000):
        producer.produce("timed", b"v", timestamp=timestamp_ms)
    assert producer.flush(PATIENCE_S) == 0
    tp = confluent_kafka.TopicPartition("timed", 0)
    greatest = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    found = admin.list_offsets({tp: greatest})[tp].result(PATIENCE_S)
    assert (found.offset, found.timestamp) == (1, 3_000)


def refusal(cluster: RunningCluster, topic: str, replication_factor: int) -> str | None:
    """The name of the error that creating a topic ends in; None: it was created."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    futures = admin.create_topics(
        [NewTopic(topic, 1, replication_factor)], request_timeout=PATIENCE_S
    )
    try:
        futures[topic].result()
    except confluent_kafka.KafkaException as error:
        return str(error.args[0].name())
    return None


def test_refusals_of_topics_reach_the_client(cluster: RunningCluster) -> None:
    """Scenario 5, through whatever broker the client happens to ask."""
    assert refusal(cluster, "too-many", 4) == "INVALID_REPLICATION_FACTOR"
    assert refusal(cluster, "foo_bar", 3) is None
    assert refusal(cluster, "foo_bar", 3) == "TOPIC_ALREADY_EXISTS"
    assert refusal(cluster, "foo.bar", 3) == "TOPIC_EXCEPTION"


async def test_c12_c19_a_broker_that_does_not_lead_says_so(cluster: RunningCluster) -> None:
    Confluent(cluster.bootstrap).create("t", 1, replication_factor=3)
    codes = []
    for broker_id in cluster.broker_ids:
        address = parse_endpoint("listeners", cluster.broker_address(broker_id))
        client = await WireClient.connect(address)
        produced = await client.ask(0, 9, producing(record_batch(1)))
        fetched = await client.ask(1, 12, fetching(max_wait_ms=100))
        codes.append(
            (
                produced.responses[0].partition_responses[0].error_code,
                fetched.responses[0].partitions[0].error_code,
            )
        )
        await client.close()
    not_leader = errors_pb2.NOT_LEADER_OR_FOLLOWER
    assert sorted(codes) == [(0, 0), (not_leader, not_leader), (not_leader, not_leader)]


def test_c16_a_consumer_beyond_the_end_is_reset_by_its_policy(cluster: RunningCluster) -> None:
    confluent = Confluent(cluster.bootstrap)
    confluent.create("short", 1, replication_factor=3)
    confluent.produce("short", {0: [b"only"]})
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("short", 0, 50)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert "out of range" in str(error).lower()
    finally:
        consumer.close()


def altered(cluster: RunningCluster, kind: str, name: str, **values: str) -> None:
    """Configuration keys set by confluent-kafka."""
    resource = ConfigResource(
        kind,
        name,
        incremental_configs=[
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in values.items()
        ],
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (future,) = admin.incremental_alter_configs([resource], request_timeout=PATIENCE_S).values()
    future.result()


def described(cluster: RunningCluster, kind: str, name: str) -> dict[str, ConfigEntry]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    futures = admin.describe_configs([ConfigResource(kind, name)], request_timeout=PATIENCE_S)
    (future,) = futures.values()
    found: dict[str, ConfigEntry] = future.result()
    return found


async def test_f3_a_changed_configuration_acts_on_every_broker_at_once(
    cluster: RunningCluster,
) -> None:
    Confluent(cluster.bootstrap).create("t2", 3, replication_factor=3)
    altered(cluster, "topic", "t2", max_message_bytes="80")
    answered_s = time.monotonic()
    for partition in range(3):
        while await produced_to(cluster, "t2", partition) != errors_pb2.MESSAGE_TOO_LARGE:
            assert time.monotonic() - answered_s < PATIENCE_S
    entry = described(cluster, "topic", "t2")["max.message.bytes"]
    assert (entry.value, ConfigSource(entry.source)) == (
        "80",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
    )
    with quorate.client.AdminClient(
        cluster.bootstrap
    ) as admin:  # confluent-kafka takes no empty name
        default = ConfigChange("broker", "", {"fetch.max.bytes": "70000"})
        (result,) = admin.incremental_alter_configs([default])
    result.raise_for_error()
    for broker_id in cluster.broker_ids:
        while True:
            entry = described(cluster, "broker", str(broker_id))["fetch.max.bytes"]
            if entry.value == "70000":
                break
            assert time.monotonic() - answered_s < PATIENCE_S
        assert ConfigSource(entry.source) == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    with pytest.raises(confluent_kafka.KafkaException, match=r"min\.insync\.replicas=0"):
        altered(cluster, "topic", "t2", min_insync_replicas="0")


async def produced_to(cluster: RunningCluster, topic: str, partition: int) -> int:
    """The error code of a batch of 100 bytes at the partition's leader."""
    leader = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic).topics[topic]
    broker_id = leader.partitions[partition].leader
    address = parse_endpoint("listeners", cluster.broker_address(broker_id))
    client = await WireClient.connect(address)
    request = producing(*[None] * partition, record_batch(1, b"x" * 100))
    (told,) = request["topic_data"]
    told["name"] = topic
    told["partition_data"] = told["partition_data"][-1:]
    answer = await client.ask(0, 9, request)
    await client.close()
    return int(answer.responses[0].partition_responses[0].error_code)


def test_d3_deleted_records_are_gone_for_every_client(cluster: RunningCluster) -> None:
    confluent = Confluent(cluster.bootstrap)
    confluent.create("begun", 1, replication_factor=3)
    confluent.produce("begun", {0: [b"%d" % number for number in range(10)]})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    upto = confluent_kafka.TopicPartition("begun", 0, 7)
    (future,) = admin.delete_records([upto], request_timeout=PATIENCE_S).values()
    assert future.result().low_watermark == 7
    assert confluent.consume("begun", {0: 3}) == {0: [b"7", b"8", b"9"]}
    beyond = confluent_kafka.TopicPartition("begun", 0, 11)
    (future,) = admin.delete_records([beyond], request_timeout=PATIENCE_S).values()
    with pytest.raises(confluent_kafka.KafkaException, match="OFFSET_OUT_OF_RANGE"):
        future.result()
