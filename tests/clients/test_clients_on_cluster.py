"""Unmodified clients against three real brokers: what is acknowledged by all is read back equal."""

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from metadata_log.configuration import parse_endpoint
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
