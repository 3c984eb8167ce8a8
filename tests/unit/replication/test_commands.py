"""Control commands: C6, C7, C8, C10, C17 and rule 7."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from quorate.broker.replication.commands.stray_partitions import Assignment
from quorate.broker.replication.fetching.fetch_session_handler import FetchSessionHandler
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.pace import STEPS_IN_A_ROW
from quorate.broker.replication.partition.effects import ReplicaRole
from quorate.common.types import LeaderEpoch, TopicIdPartition, TopicPartition
from quorate.metadata_log.records import TopicDeletionPending
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.broker_replicas import BrokerReplicas, ChosenAssignments, tip_of
from tests.support.fetch_states import followed
from tests.support.metadata import MetadataLogBuilder, topic_id_of
from tests.support.replica_cluster import batch
from tests.unit.replication.test_produce import settle


async def test_c6_an_unknown_assigned_partition_is_started(broker: BrokerReplicas) -> None:
    await broker.lead("orders")
    assert tip_of("orders") in broker.store.logs
    assert broker.hosted("orders").leads


async def test_c6_a_new_leader_begins_its_epoch_at_its_log_end(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1, 2))
    await broker.produce("orders", batch("a", "b"), acks=0)
    broker.store.flush()
    await broker.lead("orders", isr=(1,), replicas=(1, 2), epoch=4, version=1)
    hosted = broker.hosted("orders")
    assert hosted.log.leader_epochs.entries == [(0, 0), (4, 2)]
    assert hosted.replica.led_from_offset == 2


async def test_c6_becoming_leader_stops_fetching_and_becoming_follower_starts_it(
    broker: BrokerReplicas,
) -> None:
    await broker.command("orders", leader=2)
    hosted = broker.hosted("orders")
    following = followed(hosted)
    handler = hosted.fetcher
    assert isinstance(handler, FetchSessionHandler)
    assert following.leader_epoch == 0
    await broker.lead("orders", epoch=1, version=1)
    assert handler.is_empty
    await broker.command("orders", leader=3, epoch=2, version=2)
    second = hosted.fetcher
    assert isinstance(second, FetchSessionHandler)
    assert second.leader == 3
    assert (await broker.produce("orders", batch("a"))).error_code != errors_pb2.NONE


async def test_c6_becoming_leader_waits_for_a_truncation_under_way(
    broker: BrokerReplicas,
) -> None:
    await broker.command("orders", leader=2)
    hosted = broker.hosted("orders")
    await hosted.truncation.acquire()
    leading = asyncio.ensure_future(broker.lead("orders", epoch=1, version=1))
    await settle()
    assert not broker.leads("orders")
    hosted.truncation.release()
    await leading
    assert broker.leads("orders")


async def test_c6_a_stopping_broker_follows_in_no_further_epoch(broker: BrokerReplicas) -> None:
    await broker.command("orders", leader=2)
    await broker.lead("bills")
    broker.manager.prepare_to_stop()
    assert broker.hosted("orders").fetcher is not None
    await broker.command("bills", leader=3, epoch=1, version=1, isr=(2, 3))
    assert broker.hosted("bills").replica.role is ReplicaRole.FOLLOWER
    assert broker.hosted("bills").fetcher is None


async def test_c17_an_older_or_repeated_command_is_skipped(broker: BrokerReplicas) -> None:
    await broker.lead("orders", epoch=3, version=7)
    for epoch, version in ((3, 7), (3, 6), (2, 9)):
        code = await broker.command("orders", leader=2, epoch=epoch, version=version)
        assert code == errors_pb2.NONE
        assert broker.hosted("orders").leads


async def test_c17_an_isr_change_in_the_same_epoch_does_not_disturb_fetching(
    broker: BrokerReplicas,
) -> None:
    await broker.command("orders", leader=2)
    following = followed(broker.hosted("orders"))
    await broker.command("orders", leader=2, isr=(2,), version=1)
    assert followed(broker.hosted("orders")) is following
    assert broker.hosted("orders").replica.isr.version == 1


async def test_b1_a_partition_whose_replicas_leave_this_broker_out_is_refused(
    broker: BrokerReplicas,
) -> None:
    code = await broker.command("orders", leader=2, isr=(2,), replicas=(2, 3))
    assert code == errors_pb2.INVALID_REQUEST
    assert not broker.store.logs


async def test_c7_an_init_sets_aside_what_it_does_not_list(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    await broker.lead("bills", is_init=True, metadata_offset=200)
    hosted = broker.hosted("orders")
    assert hosted.replica.role is ReplicaRole.IDLE
    outcome = await broker.produce("orders", batch("a"))
    assert outcome.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    await settle()
    assert not broker.store.deleted, "the quorum says that it is assigned (rule 7)"
    await broker.lead("orders", isr=(1,), replicas=(1,), metadata_offset=201)
    assert hosted.leads, "the same command again wakes it"


async def test_c7_what_the_quorum_confirms_to_be_unassigned_is_deleted(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders")
    broker.assignments.unassigned_now.add(tip_of("orders"))
    await broker.lead("bills", is_init=True, metadata_offset=200)
    await settle()
    assert broker.store.deleted == [tip_of("orders")]
    assert broker.manager.table.named(TopicPartition("orders", 0)) is None


async def test_rule_7_what_the_quorum_does_not_know_is_kept_until_it_is_named(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders")
    stray = broker.hosted("orders")
    broker.assignments.unknown.add(tip_of("orders"))
    await broker.lead("bills", is_init=True, metadata_offset=200)
    await settle()
    assert not broker.store.deleted
    assert broker.manager.strays() == (stray,)
    await broker.lead("orders", epoch=1, version=1, metadata_offset=201)
    assert broker.manager.strays() == ()


async def test_c7_an_old_init_does_not_set_aside_what_a_newer_command_named(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", metadata_offset=150)
    await broker.lead("bills", is_init=True, metadata_offset=149)
    assert broker.hosted("orders").leads


async def test_c7_a_stray_that_is_named_before_the_check_is_over_stays() -> None:
    asked = asyncio.Event()
    answer = asyncio.Event()

    class Slow(ChosenAssignments):
        async def assignments(
            self, table: PartitionTable, tips: Sequence[TopicIdPartition]
        ) -> Mapping[TopicIdPartition, Assignment]:
            asked.set()
            await answer.wait()
            return dict.fromkeys(tips, Assignment.ENDED)

    broker = await BrokerReplicas(assignments=Slow()).start()
    await broker.lead("orders")
    await broker.lead("bills", is_init=True, metadata_offset=200)
    await asked.wait()
    await broker.lead("orders", epoch=1, version=1, metadata_offset=201)
    answer.set()
    await settle()
    assert not broker.store.deleted
    await broker.close()


async def test_c7_a_stray_that_a_command_under_way_names_is_not_deleted(
    broker: BrokerReplicas,
) -> None:
    """The quorum's answer and the command cross: the command was first, so it counts."""
    await broker.lead("orders")
    await broker.lead("bills")
    blocked = broker.hosted("bills").truncation
    await blocked.acquire()
    request = control_pb2.LeaderAndIsrRequest()
    for topic in ("bills", "orders"):
        told = request.topics.add(topic=topic, topic_id=tip_of(topic).topic_id)
        told.partitions.add(leader=1, leader_epoch=1, record_version=1, isr=[1], replicas=[1])
    commanded = asyncio.ensure_future(broker.manager.apply_leader_and_isr(request))
    await settle()
    broker.assignments.unassigned_now.add(tip_of("orders"))
    broker.manager._commands._strays.set_aside([broker.hosted("orders")])
    await settle()
    blocked.release()
    await commanded
    await settle()
    assert not broker.store.deleted
    assert broker.leads("orders")


async def test_c8_stop_replica_stops_fetching_and_checkpoints_and_deletes(
    broker: BrokerReplicas,
) -> None:
    await broker.command("orders", leader=2)
    handler = broker.hosted("orders").fetcher
    assert isinstance(handler, FetchSessionHandler)
    assert await broker.stop("orders", epoch=-2, delete=True) == errors_pb2.NONE
    assert handler.is_empty
    assert broker.store.deleted == [tip_of("orders")]
    assert not broker.manager.table.changed_high_watermarks()
    assert (await broker.fetch("orders", 0)).error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION


async def test_c8_stop_replica_is_fenced_by_leader_epoch_and_a_deletion_outranks_all(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", epoch=5)
    assert await broker.stop("orders", epoch=4, delete=True) == errors_pb2.FENCED_LEADER_EPOCH
    assert broker.hosted("orders").leads
    assert await broker.stop("orders", epoch=-2, delete=True) == errors_pb2.NONE
    assert not broker.store.logs


async def test_c8_stopping_without_deleting_keeps_the_log(broker: BrokerReplicas) -> None:
    await broker.lead("orders", epoch=5)
    assert await broker.stop("orders", epoch=5) == errors_pb2.NONE
    assert broker.hosted("orders").replica.role is ReplicaRole.IDLE
    assert tip_of("orders") in broker.store.logs


async def test_c8_stopping_what_is_not_here_succeeds(broker: BrokerReplicas) -> None:
    assert await broker.stop("orders", epoch=-2, delete=True) == errors_pb2.NONE


async def test_c8_a_late_command_does_not_bring_a_deleted_topic_back(
    broker: BrokerReplicas,
) -> None:
    await broker.stop("orders", epoch=-2, delete=True)
    code = await broker.command("orders", leader=1, epoch=9)
    assert code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert not broker.store.logs
    await broker.lead("orders", generation=1)
    assert broker.hosted("orders").tip == tip_of("orders", generation=1)


async def test_c8_a_replica_removed_by_reassignment_may_come_back_in_a_later_epoch(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", epoch=3)
    await broker.stop("orders", epoch=4, delete=True)
    assert await broker.command("orders", leader=1, epoch=4) != errors_pb2.NONE
    await broker.lead("orders", epoch=5)


async def test_c5_a_topic_created_again_under_its_name_is_another_partition(
    broker: BrokerReplicas,
) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    await broker.produce("orders", batch("old"), acks=0)
    await broker.lead("orders", isr=(1,), replicas=(1,), generation=1)
    assert (await broker.produce("orders", batch("new"), acks=0)).base_offset == 0
    assert len(broker.store.logs) == 2


async def test_c10_logs_found_at_startup_serve_nobody_until_told(broker: BrokerReplicas) -> None:
    log = broker.store.create(tip_of("orders"), "orders")
    log.append_as_leader(batch("a", "b", "c"), LeaderEpoch(0))
    log.flushed_offset, log.checkpointed_high_watermark = 3, 2
    await broker.restart()
    outcome = await broker.fetch("orders", 0)
    assert outcome.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    assert broker.hosted("orders").replica.high_watermark == 2
    await broker.lead("orders", isr=(1,), replicas=(1,), epoch=1)
    assert broker.hosted("orders").replica.high_watermark == 3


@pytest.fixture
def metadata() -> MetadataLogBuilder:
    builder = MetadataLogBuilder()
    for broker_id in (1, 2):
        builder.start_broker(broker_id)
    builder.elect_controller(2)
    builder.create_topic("led", (1, 2))
    builder.create_topic("followed", (2, 1))
    builder.create_topic("elsewhere", (2,))
    return builder


async def test_c10_startup_leads_and_follows_as_the_image_says(
    broker: BrokerReplicas, metadata: MetadataLogBuilder
) -> None:
    await broker.manager.adopt_image(metadata.image)
    assert broker.hosted("led").leads
    assert broker.hosted("followed").replica.role is ReplicaRole.FOLLOWER
    assert broker.hosted("followed").fetcher is not None
    assert tip_of("elsewhere") not in broker.store.logs


async def test_c7_an_init_from_the_log_leads_and_follows_as_the_image_says(
    broker: BrokerReplicas, metadata: MetadataLogBuilder
) -> None:
    await broker.lead("gone", metadata_offset=1)
    broker.assignments.unassigned_now.add(tip_of("gone"))
    assert await broker.manager.apply_init(metadata.image) == []
    assert broker.hosted("led").leads
    assert broker.hosted("followed").replica.role is ReplicaRole.FOLLOWER
    assert broker.hosted("followed").fetcher is not None
    assert tip_of("elsewhere") not in broker.store.logs
    await settle()
    assert broker.store.deleted == [tip_of("gone")], "what it does not list is set aside"


async def test_c7_an_init_from_the_log_changes_nothing_that_a_newer_command_did(
    broker: BrokerReplicas, metadata: MetadataLogBuilder
) -> None:
    image = metadata.image
    await broker.lead("later", metadata_offset=image.offset + 1)
    await broker.command("led", leader=2, epoch=7, version=7, metadata_offset=image.offset + 1)
    await broker.manager.apply_init(image)
    assert broker.hosted("later").leads
    assert broker.hosted("led").replica.role is ReplicaRole.FOLLOWER
    assert broker.hosted("led").replica.leader_epoch == 7


async def test_c21_an_init_from_the_log_is_answered_with_what_failed(
    broker: BrokerReplicas, metadata: MetadataLogBuilder
) -> None:
    broker.store.create(tip_of("led"), "led")
    await broker.restart()
    broker.hosted("led").note_broken("an invariant does not hold")
    (failed,) = await broker.manager.apply_init(metadata.image)
    assert (failed.topic, failed.error_code) == ("led", errors_pb2.KAFKA_STORAGE_ERROR)


async def test_c5_startup_brings_back_nothing_that_is_being_deleted(
    broker: BrokerReplicas, metadata: MetadataLogBuilder
) -> None:
    """Its data may be gone: an empty log would lead in a leader epoch that had records."""
    metadata.write_as_controller(TopicDeletionPending(name="led", topic_id=topic_id_of("led")))
    await broker.manager.adopt_image(metadata.image)
    assert tip_of("led") not in broker.store.logs
    assert broker.hosted("followed").replica.role is ReplicaRole.FOLLOWER


async def test_c10_startup_deletes_what_is_no_longer_assigned_after_the_check(
    broker: BrokerReplicas, metadata: MetadataLogBuilder
) -> None:
    for topic in ("gone", "unclear"):
        broker.store.create(tip_of(topic), topic)
    await broker.restart()
    broker.assignments.unassigned_now.add(tip_of("gone"))
    await broker.manager.adopt_image(metadata.image)
    await settle()
    assert broker.store.deleted == [tip_of("gone")]
    assert tip_of("unclear") in broker.store.logs


async def test_rule_8_a_broker_that_may_have_lost_log_does_not_lead_by_itself(
    broker: BrokerReplicas, metadata: MetadataLogBuilder
) -> None:
    await broker.manager.adopt_image(metadata.image, log_may_be_lost=True)
    assert broker.hosted("led").replica.role is ReplicaRole.IDLE
    assert broker.hosted("followed").replica.role is ReplicaRole.FOLLOWER
    await broker.lead("led", isr=(1,), replicas=(1, 2), epoch=1, version=1)


async def test_c20_every_partition_has_its_outcome(broker: BrokerReplicas) -> None:
    request = control_pb2.LeaderAndIsrRequest()
    told = request.topics.add(topic="orders", topic_id=tip_of("orders").topic_id)
    told.partitions.add(partition=0, leader=1, isr=[1], replicas=[1])
    told.partitions.add(partition=1, leader=2, isr=[2], replicas=[2])
    outcomes = await broker.manager.apply_leader_and_isr(request)
    assert [(o.partition, o.error_code) for o in outcomes] == [
        (0, errors_pb2.NONE),
        (1, errors_pb2.INVALID_REQUEST),
    ]


async def test_c6_high_watermarks_are_checkpointed_on_the_way_out(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    await broker.produce("orders", batch("a"), acks=0)
    broker.store.flush()
    await broker.manager.close()
    assert broker.store.checkpoints == {tip_of("orders"): 1}


async def test_c8_replicas_stopped_together_are_deleted_together(broker: BrokerReplicas) -> None:
    request = control_pb2.StopReplicaRequest()
    for number, topic in enumerate(("orders", "bills", "carts")):
        await broker.lead(topic, epoch=number)
        request.partitions.add(
            topic=topic,
            topic_id=tip_of(topic).topic_id,
            leader_epoch=-2 if number else 0,
            delete_data=bool(number),
        )
    request.partitions.add(
        topic="orders", topic_id=tip_of("orders", generation=7).topic_id, delete_data=True
    )
    outcomes = await broker.manager.stop_replicas(request)
    assert [outcome.topic for outcome in outcomes] == ["orders", "bills", "carts", "orders"]
    assert {outcome.error_code for outcome in outcomes} == {errors_pb2.NONE}
    assert broker.store.deleted == [tip_of("bills"), tip_of("carts")]
    assert broker.store.deletions == 1
    assert tip_of("orders") in broker.store.logs


async def test_c6_a_long_command_lets_others_have_their_turn(broker: BrokerReplicas) -> None:
    """Else a broker that is told of thousands of partitions is silent until it is declared dead."""
    request = control_pb2.LeaderAndIsrRequest()
    topic = request.topics.add(topic="orders", topic_id=tip_of("orders").topic_id)
    for number in range(3 * STEPS_IN_A_ROW):
        topic.partitions.add(partition=number, leader=1, isr=[1], replicas=[1])
    commanded = asyncio.ensure_future(broker.manager.apply_leader_and_isr(request))
    hosted_at_turns = []
    while not commanded.done():
        await asyncio.sleep(0)
        hosted_at_turns.append(len(list(broker.manager.table)))
    assert hosted_at_turns[0] <= STEPS_IN_A_ROW
    assert len(set(hosted_at_turns)) >= 3


async def test_c7_many_strays_are_asked_about_and_deleted_together(broker: BrokerReplicas) -> None:
    """A broker that was away while thousands of topics were deleted finds their logs at once."""
    topics = [f"topic-{number}" for number in range(30)]
    for topic in topics:
        await broker.lead(topic)
    broker.assignments.unassigned_now = {tip_of(topic) for topic in topics[1:]}
    await broker.lead("bills", is_init=True, metadata_offset=200)
    await settle()
    assert broker.assignments.asked_about == [30]
    assert sorted(broker.store.deleted) == sorted(broker.assignments.unassigned_now)
    assert broker.store.deletions == 1
    assert broker.hosted(topics[0]).replica.is_idle, "kept, and led by nobody"
