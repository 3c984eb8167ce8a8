"""What a restarted broker may say: its watermark is a checkpoint, and trails (C10, C19)."""

from collections.abc import AsyncIterator

import pytest

from quorate.common.types import BrokerId, TopicPartition
from quorate.metadata_log.records import IsrChange, IsrMember
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas, tip_of
from tests.support.metadata import MetadataLogBuilder
from tests.support.replica_cluster import batch
from tests.unit.replication.test_produce import settle

ORDERS = TopicPartition("orders", 0)
CHECKPOINTED, COMMITTED = 1, 3


def isr_change(metadata: MetadataLogBuilder, *isr: int) -> IsrChange:
    """What broker 1, as it is registered, writes about the partition."""
    leaf = metadata.image.partition(ORDERS)
    assert leaf is not None
    epochs = {int(one): broker.epoch for one, broker in metadata.image.brokers.items()}
    return IsrChange(
        topic=ORDERS.topic,
        topic_id=tip_of("orders").topic_id,
        partition=ORDERS.partition,
        expected_version=leaf.version,
        leader=BrokerId(1),
        leader_broker_epoch=epochs[1],
        leader_epoch=leaf.leader_epoch,
        isr=tuple(IsrMember(broker_id=BrokerId(one), broker_epoch=epochs[one]) for one in isr),
    )


@pytest.fixture
async def restarted() -> AsyncIterator[BrokerReplicas]:
    """Led with ISR {1, 2}, checkpointed 1, told clients of 3 committed records; not told yet."""
    before = await BrokerReplicas().start()
    await before.lead("orders", isr=(1, 2), replicas=(1, 2, 3))
    for value in ("a", "b", "c"):
        await before.produce("orders", batch(value), acks=0)
    before.store.flush()
    before.follower(2).send("orders", fetch=CHECKPOINTED)
    before.manager._maintenance.checkpoint()
    before.follower(2).send("orders", fetch=COMMITTED)
    assert before.manager.list_offset(ORDERS, -1).offset == COMMITTED
    after = BrokerReplicas()
    for tip, log in before.store.logs.items():
        log.checkpointed_high_watermark = before.store.checkpoints[tip]
        after.store.logs[tip] = log
    await before.close()
    await after.start()
    yield after
    await after.close()


async def test_c10_a_replica_starts_from_its_checkpointed_watermark(
    restarted: BrokerReplicas,
) -> None:
    assert restarted.hosted("orders").replica.high_watermark == CHECKPOINTED
    await restarted.command("orders", leader=2, isr=(1, 2))
    assert restarted.hosted("orders").replica.high_watermark == CHECKPOINTED


@pytest.mark.parametrize(("epoch", "version"), [(0, 0), (1, 1)])
async def test_c19_a_restarted_leader_takes_no_offset_back(
    restarted: BrokerReplicas, epoch: int, version: int
) -> None:
    """Whether it resumes its epoch or is elected again: it has to hear from the ISR first."""
    await restarted.lead("orders", isr=(1, 2), epoch=epoch, version=version)
    assert restarted.manager.list_offset(ORDERS, -1).error_code == errors_pb2.OFFSET_NOT_AVAILABLE
    for offset in range(CHECKPOINTED, COMMITTED + 1):
        outcome = await restarted.fetch("orders", offset)
        assert (outcome.error_code, outcome.size) == (errors_pb2.NONE, 0)
    restarted.follower(2).send("orders", fetch=COMMITTED, epoch=epoch)
    assert restarted.manager.list_offset(ORDERS, -1).offset == COMMITTED


async def test_c19_a_restarted_sole_leader_knows_at_once(restarted: BrokerReplicas) -> None:
    await restarted.lead("orders", isr=(1,), version=1)
    assert restarted.manager.list_offset(ORDERS, -1).offset == COMMITTED


async def test_scenario_15_a_restarted_leader_admits_nobody_who_lacks_what_it_had_committed(
    restarted: BrokerReplicas,
) -> None:
    """In the epoch of before: its start, and the checkpoint, lie below what was committed in it."""
    await restarted.lead("orders", isr=(1, 2))
    restarted.follower(3).send("orders", fetch=COMMITTED - 1)
    isr = restarted.hosted("orders").replica.isr
    assert isr.in_flight is None, "broker 3 lacks a record that was acknowledged"
    restarted.follower(3).send("orders", fetch=COMMITTED)
    assert restarted.hosted("orders").replica.isr.proposed == {1, 2, 3}


async def test_c10_a_resumed_leader_commits_nothing_that_its_own_last_word_may_undo() -> None:
    """Killed while broker 2's joining was on its way to the quorum, and back before it is there."""
    metadata = MetadataLogBuilder()
    for broker_id in (1, 2):
        metadata.start_broker(broker_id)
    metadata.elect_controller(2)
    metadata.create_topic("orders", (1, 2))
    leave = isr_change(metadata, 1)
    assert metadata.write(leave).results[0].ok
    last_word = isr_change(metadata, 1, 2)
    broker = await BrokerReplicas().start()
    await broker.manager.adopt_image(metadata.image)
    await broker.produce("orders", batch("a"), acks=0)
    broker.store.flush()
    replica = broker.hosted("orders").replica
    assert broker.leads("orders")
    assert replica.isr.committed == (1,)
    assert metadata.write(last_word).results[0].ok, "nobody else is registered as broker 1 yet"
    assert replica.high_watermark == 0, "broker 2 is in the ISR, and does not have it"
    await broker.close()


async def test_c5_scenario_19_a_topic_created_again_while_its_replica_was_down_begins_empty(
    restarted: BrokerReplicas,
) -> None:
    """The broker is among its replicas again: what it holds under the old id is another topic's."""
    metadata = MetadataLogBuilder()
    for broker_id in (1, 2):
        metadata.start_broker(broker_id)
    metadata.elect_controller(2)
    metadata.create_topic("orders", (2, 1), generation=1)
    old, new = tip_of("orders"), tip_of("orders", generation=1)
    restarted.assignments.unassigned_now.add(old)
    await restarted.manager.adopt_image(metadata.image)
    hosted = restarted.hosted("orders")
    assert (hosted.tip, hosted.log.log_end_offset, hosted.replica.high_watermark) == (new, 0, 0)
    await settle()
    assert restarted.store.deleted == [old]
    await restarted.lead("orders", isr=(1,), epoch=1, version=1, generation=1)
    assert restarted.manager.list_offset(ORDERS, -1).offset == 0
    assert (await restarted.produce("orders", batch("new"), acks=0)).base_offset == 0
