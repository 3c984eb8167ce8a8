"""A topic that is created again under its name is another topic to clients on the way (KIP-516)."""

import logging
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from uuid import UUID

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from quorate.common.configuration import parse_endpoint
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_clients import PATIENCE_S
from tests.support.kafka_wire import WireClient, by_topic_ids, fetching, producing, record_batch
from tests.support.waiting import async_wait_until

pytestmark = [pytest.mark.clients, pytest.mark.integration]

PRODUCE, FETCH, METADATA = 0, 1, 3
BY_ID = {PRODUCE: 13, FETCH: 17}


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    return module_quorate_cluster(brokers=2)


@pytest.fixture
def admin(cluster: RunningCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 2)])[topic].result(PATIENCE_S)


def create_again(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    create(admin, topic)


async def connect(cluster: RunningCluster, admin: AdminClient, topic: str) -> WireClient:
    """A connection to the leader of partition 0."""

    def leader() -> int | None:
        partitions = admin.list_topics(topic).topics[topic].partitions
        return partitions[0].leader if partitions and partitions[0].leader > 0 else None

    address = cluster.broker_address(await async_wait_until(leader, f"leader of {topic}"))
    return await WireClient.connect(parse_endpoint("listeners", address))


async def id_of(client: WireClient, topic: str) -> UUID:
    values = {
        "topics": [{"name": topic, "topic_id": None}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    (described,) = (await client.ask(METADATA, 13, values)).topics
    assert isinstance(described.topic_id, UUID)
    return described.topic_id


async def test_neither_a_session_nor_a_cached_id_reaches_the_successor(
    cluster: RunningCluster, admin: AdminClient
) -> None:
    create(admin, "t")
    client = await connect(cluster, admin, "t")
    before = {"t": await id_of(client, "t")}
    request = by_topic_ids(producing(record_batch(3, b"old")), before)
    produced = await client.ask(PRODUCE, BY_ID[PRODUCE], request)
    assert produced.responses[0].partition_responses[0].error_code == errors_pb2.NONE
    begun = await client.ask(FETCH, BY_ID[FETCH], by_topic_ids(fetching(3, session=(0, 0)), before))
    assert begun.session_id > 0
    create_again(admin, "t")
    successor = await connect(cluster, admin, "t")
    after = {"t": await id_of(successor, "t")}
    assert after != before
    for_news = fetching(partitions=(), session=(begun.session_id, 1), max_wait_ms=100)
    told = await client.ask(FETCH, BY_ID[FETCH], for_news)
    (topic,) = told.responses
    assert topic.topic_id == before["t"]
    gone = (
        errors_pb2.INCONSISTENT_TOPIC_ID,
        errors_pb2.UNKNOWN_TOPIC_ID,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert topic.partitions[0].error_code in gone
    assert not topic.partitions[0].records
    late = await successor.ask(PRODUCE, BY_ID[PRODUCE], request)
    outcome = late.responses[0].partition_responses[0]
    assert (outcome.error_code, outcome.base_offset) == (errors_pb2.UNKNOWN_TOPIC_ID, -1)
    stale = await successor.ask(FETCH, BY_ID[FETCH], by_topic_ids(fetching(0), before))
    assert stale.responses[0].partitions[0].error_code == errors_pb2.UNKNOWN_TOPIC_ID
    new = by_topic_ids(producing(record_batch(1, b"new")), after)
    produced = await successor.ask(PRODUCE, BY_ID[PRODUCE], new)
    outcome = produced.responses[0].partition_responses[0]
    assert (outcome.error_code, outcome.base_offset) == (errors_pb2.NONE, 0)
    await client.close()
    await successor.close()


class SentVersions(logging.Handler):
    """The versions of the requests that librdkafka says it has sent, by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: defaultdict[str, set[int]] = defaultdict(set)

    def emit(self, record: logging.LogRecord) -> None:
        if found := re.search(r"Sent (\w+)Request \(v(\d+)", record.getMessage()):
            self.sent[found[1]].add(int(found[2]))


@pytest.fixture
def versions() -> Iterator[SentVersions]:
    handler = SentVersions()
    logger = logging.getLogger("librdkafka")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    logger.propagate = False
    yield handler
    logger.removeHandler(handler)


def test_librdkafka_goes_on_with_the_successor(
    cluster: RunningCluster, admin: AdminClient, versions: SentVersions
) -> None:
    """It stays where it was: what it reads next are the records behind that offset."""
    settings = {"bootstrap.servers": cluster.bootstrap, "debug": "protocol"}
    logger = logging.getLogger("librdkafka")
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True}, logger=logger)
    consumer = confluent_kafka.Consumer({**settings, "group.id": "g"}, logger=logger)

    def produce(*values: bytes) -> list[int | None]:
        offsets: list[int | None] = []
        for value in values:
            producer.produce(
                "r", value, partition=0, on_delivery=lambda _, sent: offsets.append(sent.offset())
            )
        assert producer.flush(PATIENCE_S) == 0
        return offsets

    def consume() -> bytes | None:
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                return message.value()
        return None

    create(admin, "r")
    assert produce(b"old 0", b"old 1") == [0, 1]
    consumer.assign([confluent_kafka.TopicPartition("r", 0, 0)])
    assert [consume(), consume()] == [b"old 0", b"old 1"]
    create_again(admin, "r")
    assert produce(b"new 0", b"new 1", b"new 2") == [0, 1, 2]
    assert consume() == b"new 2"
    consumer.close()
    (version,) = versions.sent["Fetch"]
    assert version >= 13, "librdkafka fetches by ids"
