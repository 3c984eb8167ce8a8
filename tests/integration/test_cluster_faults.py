"""Bad input at the doors of a running cluster: refused, named, and of no harm to anybody else."""

import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient as KafkaAdmin
from confluent_kafka.cimpl import NewTopic as KafkaNewTopic

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from quorate_proto.v1 import errors_pb2 as errors
from tests.support.acked_load import consume_all
from tests.support.raw_client import RawClient, fetch, frame, produce, record_batch
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

FRAME_LIMIT_BYTES = 1 << 20
BATCH_LIMIT_BYTES = 64 << 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    limits = {
        "socket.request.max.bytes": FRAME_LIMIT_BYTES,
        "message.max.bytes": BATCH_LIMIT_BYTES,
        "auto.create.topics.enable": False,
    }
    with running_cluster(brokers=2, voters=1, config=limits) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: RunningCluster, request: pytest.FixtureRequest) -> str:
    """A topic of one partition on both brokers, named after the test."""
    name = request.node.name.partition("[")[0]
    with cluster.admin() as admin:
        if name not in admin.list_topics():
            new = NewTopic(name=name, assignments=[[1, 2]])
            admin.create_topics([new])[0].raise_for_error()
        wait_until(
            lambda: admin.describe_topics([name])[0].partitions[0].isr == (1, 2), "both in sync"
        )
    return str(name)


@pytest.fixture
def leader(cluster: RunningCluster) -> Iterator[RawClient]:
    with RawClient(cluster.broker_address(1)) as wire:
        assert wire.is_served()
        yield wire


# --- frames -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(struct.pack(">i", FRAME_LIMIT_BYTES + 1), id="oversized"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="huge"),
        pytest.param(struct.pack(">i", -1), id="negative"),
        pytest.param(frame(b"\0\0"), id="shorter than a header"),
        pytest.param(frame(b"\x7f\xff\0\0\0\0\0\1\xff\xff"), id="unknown API"),
        pytest.param(frame(b"\0\0\0\x03\0\0\0\1\xff\xff" + b"\xfe" * 40), id="garbled Produce"),
        pytest.param(
            frame(b"\0\x03\0\x09\0\0\0\1\xff\xff\0" + b"\xff" * 9), id="hostile array length"
        ),
        pytest.param(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", id="HTTP"),
    ],
)
def test_malformed_frame_harms_its_own_connection_only(
    cluster: RunningCluster, leader: RawClient, bad: bytes
) -> None:
    with RawClient(cluster.broker_address(1)) as hostile:
        hostile.send_raw(bad)
        assert hostile.is_closed_by_peer()
    assert leader.is_served()
    with RawClient(cluster.broker_address(1)) as another:
        assert another.is_served()
    assert cluster.broker_pid(1) is not None


def test_half_a_frame_and_silence_holds_nobody_up(
    cluster: RunningCluster, leader: RawClient
) -> None:
    with RawClient(cluster.broker_address(1)) as slow:
        slow.send_raw(struct.pack(">i", FRAME_LIMIT_BYTES - 1) + b"x")
        assert leader.is_served()


# --- produce and fetch --------------------------------------------------------------------------


def test_corrupt_batch_is_refused_and_nothing_is_appended(
    cluster: RunningCluster, leader: RawClient, topic: str
) -> None:
    good = produce(leader, topic, 0, record_batch(b"one", b"two"))
    assert good == (errors.NONE, 0)
    corrupt = record_batch(b"three")
    corrupt[-2] ^= 0x40
    assert produce(leader, topic, 0, corrupt).error_code == errors.CORRUPT_MESSAGE
    second_is_corrupt = record_batch(b"four") + corrupt
    assert produce(leader, topic, 0, second_is_corrupt).error_code != errors.NONE
    after = fetch(leader, topic, 0, 0)
    assert (after.error_code, after.high_watermark) == (errors.NONE, 2)
    assert produce(leader, topic, 0, record_batch(b"five")) == (errors.NONE, 2)
    values = [value for places in _consumed(cluster, topic).values() for *_, value in places]
    assert sorted(values) == [b"five", b"one", b"two"]


def _consumed(cluster: RunningCluster, topic: str) -> dict[bytes, list[tuple[int, int, bytes]]]:
    """Records of the raw client have no keys: all of them are under the empty one."""
    return dict(consume_all(cluster.bootstrap, topic, 1))


def test_batch_above_the_limit_is_refused(leader: RawClient, topic: str) -> None:
    too_large = record_batch(bytes(BATCH_LIMIT_BYTES))
    assert produce(leader, topic, 0, too_large).error_code == errors.MESSAGE_TOO_LARGE
    assert fetch(leader, topic, 0, 0).high_watermark == 0


def test_c12_produce_and_fetch_at_a_non_leader_are_refused(
    cluster: RunningCluster, topic: str
) -> None:
    with RawClient(cluster.broker_address(2)) as follower:
        refused = produce(follower, topic, 0, record_batch(b"x"))
        assert refused.error_code == errors.NOT_LEADER_OR_FOLLOWER
        assert fetch(follower, topic, 0, 0).error_code == errors.NOT_LEADER_OR_FOLLOWER


def test_unknown_topic_and_partition_are_refused(leader: RawClient, topic: str) -> None:
    for name, partition in (("no-such-topic", 0), (topic, 7), (topic, -1)):
        code = produce(leader, name, partition, record_batch(b"x")).error_code
        assert code == errors.UNKNOWN_TOPIC_OR_PARTITION, (name, partition)
        code = fetch(leader, name, partition, 0).error_code
        assert code == errors.UNKNOWN_TOPIC_OR_PARTITION, (name, partition)


def test_c16_consumer_gets_nothing_at_the_end_and_an_error_beyond_it(
    leader: RawClient, topic: str
) -> None:
    assert produce(leader, topic, 0, record_batch(b"a", b"b", b"c")).error_code == errors.NONE
    assert fetch(leader, topic, 0, 3) == (errors.NONE, 3, b"")
    assert fetch(leader, topic, 0, 4).error_code == errors.OFFSET_OUT_OF_RANGE
    assert fetch(leader, topic, 0, -5).error_code == errors.OFFSET_OUT_OF_RANGE
    assert fetch(leader, topic, 0, 2).records, "the batch that contains the offset"


def test_c16_what_a_follower_lacks_is_not_shown_to_consumers(
    cluster: RunningCluster, leader: RawClient, topic: str
) -> None:
    """acks=1 is answered by the leader alone; the consumer waits for the follower."""
    cluster.pause_broker(2)
    try:
        assert produce(leader, topic, 0, record_batch(b"early"), acks=1).error_code == errors.NONE
        between = fetch(leader, topic, 0, 0)
        assert between == (errors.NONE, 0, b"")
        assert fetch(leader, topic, 0, 1).error_code == errors.NONE
        assert fetch(leader, topic, 0, 2).error_code == errors.OFFSET_OUT_OF_RANGE
    finally:
        cluster.resume_broker(2)
    wait_until(lambda: fetch(leader, topic, 0, 0).high_watermark == 1, "the follower")


# --- topics -------------------------------------------------------------------------------------


def create_with_kafka_client(cluster: RunningCluster, topic: KafkaNewTopic) -> int:
    """Kafka's error code; 0 for success."""
    admin = KafkaAdmin({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    try:
        admin.create_topics([topic], request_timeout=15)[topic.topic].result(20)
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    return 0


@pytest.mark.parametrize("name", [".", "..", "with space", "sla/sh", "x" * 250, "ümlaut"])
def test_bad_topic_name_is_refused(cluster: RunningCluster, name: str) -> None:
    new = KafkaNewTopic(name, 1, 1)
    assert create_with_kafka_client(cluster, new) == errors.INVALID_TOPIC_EXCEPTION


def test_name_that_collides_in_metric_names_is_refused(cluster: RunningCluster) -> None:
    assert create_with_kafka_client(cluster, KafkaNewTopic("foo_bar", 1, 1)) == 0
    clash = KafkaNewTopic("foo.bar", 1, 1)
    assert create_with_kafka_client(cluster, clash) == errors.INVALID_TOPIC_EXCEPTION


def test_existing_topic_is_refused(cluster: RunningCluster) -> None:
    assert create_with_kafka_client(cluster, KafkaNewTopic("twice", 1, 1)) == 0
    again = create_with_kafka_client(cluster, KafkaNewTopic("twice", 1, 1))
    assert again == errors.TOPIC_ALREADY_EXISTS


def test_c4_more_replicas_than_live_brokers_are_refused(cluster: RunningCluster) -> None:
    too_many = create_with_kafka_client(cluster, KafkaNewTopic("wide", 1, 3))
    assert too_many == errors.INVALID_REPLICATION_FACTOR
    with cluster.admin() as admin:
        assert "wide" not in admin.list_topics()


def test_one_bad_topic_does_not_stop_its_siblings(cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        results = admin.create_topics(
            [
                NewTopic(name="good-one", num_partitions=1, replication_factor=1),
                NewTopic(name="bad one", num_partitions=1, replication_factor=1),
                NewTopic(name="too-wide", num_partitions=1, replication_factor=9),
                NewTopic(name="good-two", num_partitions=1, replication_factor=2),
            ]
        )
        assert [result.error for result in results] == [
            "NONE",
            "INVALID_TOPIC_EXCEPTION",
            "INVALID_REPLICATION_FACTOR",
            "NONE",
        ]
        assert {"good-one", "good-two"} <= set(admin.list_topics())


def test_deleting_a_topic_that_is_not_there_is_refused(cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        assert admin.delete_topics(["never-made"])[0].error == "UNKNOWN_TOPIC_OR_PARTITION"


def test_unknown_topic_is_not_made_where_auto_creation_is_off(cluster: RunningCluster) -> None:
    refused: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "message.timeout.ms": 3000,
            "topic.metadata.propagation.max.ms": 500,
            "log_level": 0,
        }
    )
    producer.produce("conjured", b"x", partition=0, on_delivery=lambda e, _: refused.append(e))
    assert producer.flush(10) == 0
    assert refused[0] is not None
    with cluster.admin() as admin:
        assert "conjured" not in admin.list_topics()
