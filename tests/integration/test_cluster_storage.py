"""What lies where: metadata in the quorum alone, partition logs in LMDB, equal on every replica."""

from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Producer

from quorate.client.results import NewTopic, TopicInfo
from quorate.common.types import MetadataOffset, TopicId, TopicIdPartition, TopicPartition
from quorate.metadata_log.apply import apply
from quorate.metadata_log.image import Image
from quorate.quorum.client.quorum_client import QuorumClient, SnapshotLoaded, TransactionsApplied
from quorate.testing import RunningCluster, running_cluster
from tests.support.acked_load import consume_all
from tests.support.stored_logs import stored_bytes
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PARTITIONS = 3
_topics = (f"stored-{number}" for number in count())


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, voters=3) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: RunningCluster) -> TopicInfo:
    return create(cluster, next(_topics))


def create(cluster: RunningCluster, name: str) -> TopicInfo:
    with cluster.admin() as admin:
        new = NewTopic(name=name, num_partitions=PARTITIONS, replication_factor=3)
        admin.create_topics([new])[0].raise_for_error()
        return admin.describe_topics([name])[0]


def produce(cluster: RunningCluster, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 1})
    failed: list[object] = []
    for number in range(records):
        producer.produce(
            topic,
            value=b"%06d" % number * 20,
            key=b"%06d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        if number % 50 == 0:
            producer.flush(20)
    assert producer.flush(20) == 0
    assert not failed


# --- partition logs -----------------------------------------------------------------------------


async def test_d3_replicas_are_byte_equal_in_lmdb(
    cluster: RunningCluster, topic: TopicInfo
) -> None:
    produce(cluster, topic.name, 500)
    wait_until_whole(cluster)
    for broker_id in cluster.broker_ids:
        cluster.stop_broker(broker_id)
    copies = [await stored_bytes(cluster.folder / f"broker-{b}") for b in cluster.broker_ids]
    for broker_id in cluster.broker_ids:
        cluster.restart_broker(broker_id, wait=False)
    wait_until_whole(cluster)
    for partition in range(PARTITIONS):
        tip = TopicIdPartition(TopicId(topic.topic_id), partition)
        first, *others = [copy[tip] for copy in copies]
        assert b"000000" in first or partition
        assert len(first) > 500 // PARTITIONS * 120
        assert all(other == first for other in others)
    assert len(consume_all(cluster.bootstrap, topic.name, PARTITIONS)) == 500


async def test_c5_scenario_19_deleted_topic_leaves_no_data_also_on_a_broker_that_was_down(
    cluster: RunningCluster, topic: TopicInfo
) -> None:
    produce(cluster, topic.name, 90)
    wait_until_whole(cluster)
    cluster.stop_broker(3)
    with cluster.admin() as admin:
        admin.delete_topics([topic.name])[0].raise_for_error()
        wait_until(lambda: topic.name not in admin.list_topics(), "the topic to be gone")
    assert topic.topic_id in _topic_ids(await stored_bytes(cluster.folder / "broker-3"))

    again = create_on_two(cluster, topic.name)
    cluster.restart_broker(3)
    wait_until_whole(cluster)
    assert again.topic_id != topic.topic_id
    assert consume_all(cluster.bootstrap, topic.name, PARTITIONS) == {}

    for broker_id in cluster.broker_ids:
        cluster.stop_broker(broker_id)
    copies = [await stored_bytes(cluster.folder / f"broker-{b}") for b in cluster.broker_ids]
    for broker_id in cluster.broker_ids:
        cluster.restart_broker(broker_id, wait=False)
    wait_until_whole(cluster)
    assert all(topic.topic_id not in _topic_ids(copy) for copy in copies)


def create_on_two(cluster: RunningCluster, name: str) -> TopicInfo:
    """The topic again, under its old name, while broker 3 is down."""
    with cluster.admin() as admin:
        new = NewTopic(name=name, num_partitions=PARTITIONS, replication_factor=2)
        admin.create_topics([new])[0].raise_for_error()
        return admin.describe_topics([name])[0]


def _topic_ids(stored: dict[TopicIdPartition, bytes]) -> set[bytes]:
    return {bytes(tip.topic_id) for tip in stored}


# --- metadata -----------------------------------------------------------------------------------


async def image_of_voter(cluster: RunningCluster, voter_id: int, offset: MetadataOffset) -> Image:
    """The image as one voter alone tells it, at or past ``offset``."""
    client = QuorumClient(
        [cluster.voter_grpc_address(voter_id)],
        description="test",
        session_timeout_ms=30_000,
        security=cluster.quorum_security(),
    )
    await client.start(deadline_ms=20_000)
    try:
        image = Image()
        async for event in client.watch(MetadataOffset(0)):
            match event:
                case SnapshotLoaded(image=loaded):
                    image = loaded
                case TransactionsApplied(transactions=transactions):
                    for at, transaction in transactions:
                        image = apply(image, at, transaction).image
            if image.offset >= offset:
                return image
        raise AssertionError("the watch ended")
    finally:
        await client.close()


async def test_d1_quorum_holds_epochs_registrations_and_leadership(
    cluster: RunningCluster, topic: TopicInfo
) -> None:
    wait_until_whole(cluster)
    status = cluster.status()
    image = await image_of_voter(cluster, 1, MetadataOffset(status.metadata_offset))
    assert (image.controller_id, image.controller_epoch) == (
        status.controller_id,
        status.controller_epoch,
    )
    assert {b.broker_id: b.epoch for b in image.brokers.values()} == {
        b.id: b.epoch for b in status.brokers
    }
    for described in topic.partitions:
        stored = image.partition(TopicPartition(topic.name, described.partition))
        assert stored is not None
        assert (stored.leader, stored.replicas) == (described.leader, described.replicas)


async def test_d4_every_voter_holds_the_same_log(cluster: RunningCluster, topic: TopicInfo) -> None:
    wait_until_whole(cluster)
    offset = MetadataOffset(cluster.status().metadata_offset)
    images = [await image_of_voter(cluster, voter, offset) for voter in cluster.voter_ids]
    shared = [
        (image.controller, image.brokers, image.topics, image.configs, image.next_producer_id)
        for image in images
    ]
    assert shared[0] == shared[1] == shared[2]
    assert topic.name in images[0].topics


def test_d1_quorum_survives_the_loss_of_any_one_voter(cluster: RunningCluster) -> None:
    for voter_id in cluster.voter_ids:
        wait_until_whole(cluster)
        cluster.kill_voter(voter_id)
        name = f"without-voter-{voter_id}"
        create(cluster, name)
        produce(cluster, name, 30)
        assert len(consume_all(cluster.bootstrap, name, PARTITIONS)) == 30
        cluster.restart_voter(voter_id)


def test_leaders_go_on_without_a_quorum_and_metadata_waits_for_it(
    cluster: RunningCluster, topic: TopicInfo
) -> None:
    """Losing sight of the quorum does not stop a leader (rule 6); nothing can change meanwhile."""
    wait_until_whole(cluster)
    before = cluster.status()
    down = cluster.voter_ids[:2]
    for voter_id in down:
        cluster.kill_voter(voter_id)
    produce(cluster, topic.name, 60)
    for voter_id in down:
        cluster.restart_voter(voter_id)
    create(cluster, f"{topic.name}-after")
    wait_until_whole(cluster)
    assert cluster.status().controller_epoch >= before.controller_epoch
    assert len(consume_all(cluster.bootstrap, topic.name, PARTITIONS)) == 60
