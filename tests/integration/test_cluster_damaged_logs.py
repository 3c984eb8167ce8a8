"""A segment with damage: never served wrong, fetched again where there is a leader to ask."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from quorate.client.results import ElectionType, NewTopic
from quorate.common.types import TopicId, TopicIdPartition
from quorate.testing import RunningCluster, running_cluster
from quorate_proto.v1 import errors_pb2
from tests.support.disk_faults import cut, flip
from tests.support.raw_client import RawClient, fetch
from tests.support.stored_logs import stored_bytes
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TOPIC = "orders"
SEGMENT_BYTES = 1 << 20
RECORDS = 400
DAMAGED = 100
"""Its offset: every batch has one record of 8 KiB, so it lies in one of the first segments."""


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    with running_cluster(
        brokers=request.param, voters=1, config={"log.segment.bytes": SEGMENT_BYTES}
    ) as cluster:
        with cluster.admin() as admin:
            new = NewTopic(name=TOPIC, num_partitions=1, replication_factor=request.param)
            admin.create_topics([new])[0].raise_for_error()
        wait_until_known(cluster, TOPIC, 1)
        produce(cluster, range(RECORDS))
        wait_until_whole(cluster)
        yield cluster


def value(number: int) -> bytes:
    return b"record %06d," % number * 585


def produce(cluster: RunningCluster, numbers: range) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1}
    )
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


def consume(cluster: RunningCluster, first: int, count: int) -> list[bytes]:
    """``count`` values from an offset on."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
    values: list[bytes] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, first or OFFSET_BEGINNING)])
        while len(values) < count:
            for message in consumer.consume(count - len(values), timeout=0.5):
                assert message.error() is None
                values.append(message.value() or b"")
    finally:
        consumer.close()
    return values


def segment_with(cluster: RunningCluster, broker_id: int, wanted: bytes) -> Path:
    """The oldest that has it: how much went into each depends on how busy the machine was."""
    segments = (cluster.folder / f"broker-{broker_id}").glob("segment-*.mdb")
    return min(segment for segment in segments if wanted in segment.read_bytes())


def leader(cluster: RunningCluster) -> int:
    with cluster.admin() as admin:
        return int(admin.describe_topics([TOPIC])[0].partitions[0].leader)


@pytest.mark.parametrize("cluster", [3], indirect=True)
@pytest.mark.parametrize(
    ("what", "noticed"),
    [
        ("flipped", f"{TOPIC}-0 has damage: "),  # By the read of a consumer.
        ("cut", "truncated: "),  # At the start.
    ],
)
async def test_a_damaged_leader_is_replaced_and_fetches_its_log_again(
    cluster: RunningCluster, what: str, noticed: str
) -> None:
    victim = leader(cluster)
    cluster.stop_broker(victim)
    damaged = value(DAMAGED)[:256]
    segment = segment_with(cluster, victim, damaged)
    if what == "flipped":
        flip(segment, damaged)
    else:
        cut(segment, segment.stat().st_size // 2)
    cluster.restart_broker(victim)
    wait_until_whole(cluster)
    with cluster.admin() as admin:
        admin.elect_leaders(ElectionType.PREFERRED)
    wait_until(lambda: leader(cluster) == victim, f"broker {victim} to lead")
    assert consume(cluster, 0, RECORDS) == [value(number) for number in range(RECORDS)]
    wait_until_whole(cluster)
    said = cluster.broker_log(victim, lines=500)
    assert any(noticed in line for line in said), "\n".join(said)
    for broker_id in cluster.broker_ids:
        cluster.stop_broker(broker_id)
    folders = [cluster.folder / f"broker-{broker_id}" for broker_id in cluster.broker_ids]
    copies = [await stored_bytes(folder) for folder in folders]
    (tip,) = [one for one in copies[0] if len(copies[0][one]) > RECORDS * 8000]
    assert all(
        copy[TopicIdPartition(TopicId(tip.topic_id), 0)] == copies[0][tip] for copy in copies
    )


@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_a_sole_replica_serves_what_is_whole_and_takes_more(cluster: RunningCluster) -> None:
    cluster.stop_broker(1)
    damaged = value(DAMAGED)[:256]
    flip(segment_with(cluster, 1, damaged), damaged)
    cluster.restart_broker(1)
    assert consume(cluster, 0, DAMAGED) == [value(number) for number in range(DAMAGED)]
    with RawClient(cluster.broker_address(1)) as client:
        refused = fetch(client, TOPIC, 0, DAMAGED)
    assert refused.error_code == errors_pb2.KAFKA_STORAGE_ERROR
    produce(cluster, range(RECORDS, RECORDS + 10))
    beyond = range(DAMAGED + 1, RECORDS + 10)
    assert consume(cluster, DAMAGED + 1, len(beyond)) == [value(number) for number in beyond]
    assert leader(cluster) == 1
