"""Partitions that were removed and added again: nothing of the old one is the new one's (C14).

Both have the same topic id and number. What tells them apart is when this broker was given its log,
and the leader epochs, which go on.
"""

from typing import Any

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.replication.partition.effects import ReplicaRole
from quorate.common.types import LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas, tip_of
from tests.support.metadata import MetadataLogBuilder
from tests.support.replica_cluster import batch
from tests.unit.replication.test_produce import settle

ALONE: dict[str, Any] = {"isr": (1,), "replicas": (1,)}


async def with_old_records(broker: BrokerReplicas) -> None:
    """Broker 1 leads "orders", has records of it, and misses that it is removed at offset 150."""
    await broker.lead("orders", **ALONE, metadata_offset=100)
    await broker.produce("orders", batch("old", "older"), acks=0)
    broker.store.flush()
    assert broker.hosted("orders").replica.high_watermark == 2


async def test_c14_a_new_leader_shows_nothing_of_the_removed_partition(
    broker: BrokerReplicas,
) -> None:
    await with_old_records(broker)
    await broker.lead("orders", **ALONE, epoch=1, metadata_offset=170, removed_at=150)
    hosted = broker.hosted("orders")
    assert broker.store.deleted == [tip_of("orders")]
    assert (hosted.log.log_end_offset, hosted.replica.high_watermark) == (0, 0)
    assert hosted.log.leader_epochs.entries == [(1, 0)]
    assert (await broker.produce("orders", batch("new"), acks=0)).base_offset == 0


async def test_c14_a_new_follower_fetches_from_the_start(broker: BrokerReplicas) -> None:
    await with_old_records(broker)
    code = await broker.command("orders", leader=2, epoch=1, metadata_offset=170, removed_at=150)
    assert code == errors_pb2.NONE
    hosted = broker.hosted("orders")
    assert hosted.replica.role is ReplicaRole.FOLLOWER
    assert hosted.log.log_end_offset == 0
    assert broker.store.deleted == [tip_of("orders")]


async def test_c14_the_new_partitions_own_records_stay(broker: BrokerReplicas) -> None:
    """Every later command names the removal, too."""
    await broker.lead("orders", **ALONE, epoch=1, metadata_offset=170, removed_at=150)
    await broker.produce("orders", batch("new"), acks=0)
    for epoch in (1, 2):
        await broker.lead("orders", **ALONE, epoch=epoch, metadata_offset=180, removed_at=150)
    assert broker.hosted("orders").log.log_end_offset == 1
    assert not broker.store.deleted


async def test_c8_c14_a_late_stop_of_the_removed_partition_does_not_hit_the_new_one(
    broker: BrokerReplicas,
) -> None:
    await with_old_records(broker)
    await broker.lead("orders", **ALONE, epoch=1, metadata_offset=170, removed_at=150)
    assert await broker.stop("orders", epoch=0, delete=True) == errors_pb2.FENCED_LEADER_EPOCH
    assert broker.leads("orders")


async def test_c8_c14_after_the_stop_a_partition_may_be_added_again(
    broker: BrokerReplicas,
) -> None:
    await with_old_records(broker)
    assert await broker.stop("orders", epoch=0, delete=True) == errors_pb2.NONE
    assert (await broker.fetch("orders", 0)).error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    produced = await broker.produce("orders", batch("late"))
    assert produced.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    late = await broker.command("orders", leader=1, **ALONE, epoch=0, metadata_offset=120)
    assert late == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, "told of the removed one"
    await broker.lead("orders", **ALONE, epoch=1, metadata_offset=170, removed_at=150)
    assert broker.hosted("orders").log.log_end_offset == 0


async def test_c14_a_disk_that_cannot_delete_hosts_no_new_partition(
    broker: BrokerReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_old_records(broker)

    async def fail(*tips: object) -> None:
        raise KafkaError(errors_pb2.KAFKA_STORAGE_ERROR, "the disk is full")

    monkeypatch.setattr(broker.store, "delete", fail)
    for _ in range(2):
        code = await broker.command(
            "orders", leader=1, **ALONE, epoch=1, metadata_offset=170, removed_at=150
        )
        assert code == errors_pb2.KAFKA_STORAGE_ERROR
        assert broker.manager.table.named(TopicPartition("orders", 0)) is None


# --- brokers that were away ----------------------------------------------------------------------


def found_at_start(broker: BrokerReplicas, topic: str, number: int, assigned_at: int) -> None:
    """A log of one record, from before this broker's process began."""
    tip = tip_of(topic, number)
    log = broker.store.create(tip, topic, assigned_at=assigned_at)
    log.append_as_leader(batch("old"), LeaderEpoch(0))
    log.flushed_offset = 1
    broker.manager.table.host(tip, topic)


@pytest.fixture
def metadata() -> MetadataLogBuilder:
    """Brokers 1 and 2; "orders" of partitions 0 and 1 on both, each led by 1."""
    builder = MetadataLogBuilder()
    for broker_id in (1, 2):
        builder.start_broker(broker_id)
    builder.elect_controller(2)
    builder.create_topic("orders", (1, 2), (1, 2))
    return builder


@pytest.mark.parametrize("log_may_be_lost", [False, True])
async def test_c10_c14_a_broker_that_was_away_starts_the_new_partition_empty(
    broker: BrokerReplicas, metadata: MetadataLogBuilder, log_may_be_lost: bool
) -> None:
    assigned_at = metadata.image.offset
    for number in (0, 1):
        found_at_start(broker, "orders", number, assigned_at)
    metadata.remove_partitions("orders", 1)
    metadata.complete_removal("orders")
    metadata.add_partitions("orders", (1, 2))
    metadata.complete_addition("orders")
    await broker.manager.adopt_image(metadata.image, log_may_be_lost=log_may_be_lost)
    assert broker.store.deleted == [tip_of("orders", 1)]
    assert broker.store.logs[tip_of("orders", 1)].log_end_offset == 0
    assert broker.store.logs[tip_of("orders", 0)].log_end_offset == 1, "0 was never removed"


async def test_c10_c14_a_broker_that_was_away_deletes_what_was_removed(
    broker: BrokerReplicas, metadata: MetadataLogBuilder
) -> None:
    found_at_start(broker, "orders", 1, metadata.image.offset)
    metadata.remove_partitions("orders", 1)
    await broker.manager.adopt_image(metadata.image)
    hosted = broker.manager.table.get(tip_of("orders", 1))
    assert hosted is not None
    assert hosted.replica.role is ReplicaRole.IDLE, "it is about to go"
    metadata.complete_removal("orders")
    broker.assignments.unassigned_now.add(tip_of("orders", 1))
    await broker.manager.adopt_image(metadata.image)
    await settle()
    assert broker.store.deleted == [tip_of("orders", 1)]
