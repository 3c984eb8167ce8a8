"""A controller and the replicas in log directories that have failed (KIP-112, KIP-858)."""

from quorate.broker.changes.table import ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS
from quorate.broker.controller.broker_trouble_reports import BELIEVED_MS
from quorate.broker.controller.managers import broker_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.common.types import (
    NO_BROKER,
    BrokerId,
    TopicId,
    TopicIdPartition,
    TopicPartition,
)
from quorate_proto.v1 import admin_pb2, control_pb2, errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.controller.cluster import Cluster

NOBODY = NO_BROKER


async def report(cluster: Cluster, broker_id: int, *offline: str) -> None:
    """The broker says that its replica of partition 0 of each of these topics is offline."""
    answer = await cluster.active.report_replicas(
        control_pb2.ReportReplicasRequest(
            broker_id=broker_id,
            broker_epoch=cluster.brokers[broker_id].epoch,
            offline_directories=["/disk-2"] if offline else [],
            offline=[
                control_pb2.DamagedReplica(
                    topic_id=cluster.image.topics[topic].topic_id, partition=0
                )
                for topic in offline
            ],
        )
    )
    assert answer.error_code == errors_pb2.NONE


def leadership(cluster: Cluster, topic: str) -> tuple[int, tuple[int, ...]]:
    found = cluster.partition(topic)
    return found.leader, found.isr


async def test_nobody_leads_where_the_only_replica_is_offline(cluster: Cluster) -> None:
    await cluster.create_topic("alone", (2,))
    await cluster.create_topic("fine", (2,))
    await report(cluster, 2, "alone")
    assert leadership(cluster, "alone") == (NOBODY, (2,)), "it stays in the ISR: it has the records"
    assert leadership(cluster, "fine") == (2, (2,))
    await cluster.at_rest()
    assert cluster.brokers[1].cache.leader(TopicPartition("alone", 0)) == NOBODY


async def test_others_lead_where_there_are_others(cluster: Cluster) -> None:
    await cluster.create_topic("led", (2, 3))
    await cluster.create_topic("followed", (3, 2))
    await report(cluster, 2, "led", "followed")
    assert leadership(cluster, "led") == (3, (3,))
    assert leadership(cluster, "followed") == (3, (3,))


async def test_a_report_that_is_repeated_changes_nothing(cluster: Cluster) -> None:
    await cluster.create_topic("alone", (2,))
    await cluster.create_topic("led", (2, 3))
    await report(cluster, 2, "alone", "led")
    before = cluster.image.offset
    for _ in range(3):
        await report(cluster, 2, "alone", "led")
    assert cluster.image.offset == before


async def test_an_offline_replica_is_not_elected_while_its_broker_lives(cluster: Cluster) -> None:
    """Not when others come and go, not on request, and however long ago it was reported."""
    await cluster.create_topic("alone", (2,))
    await report(cluster, 2, "alone")
    epoch = cluster.partition("alone").leader_epoch
    await pass_time(2 * BELIEVED_MS / 1000)
    await cluster.bounce(3)
    await cluster.at_rest()
    for kind, code in (
        (admin_pb2.ELECTION_PREFERRED, errors_pb2.PREFERRED_LEADER_NOT_AVAILABLE),
        (admin_pb2.ELECTION_UNCLEAN, errors_pb2.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        asked = admin_pb2.ElectLeadersRequest(
            election_type=kind, topics=[admin_pb2.TopicPartitions(topic="alone", partitions=[0])]
        )
        (result,) = (await cluster.active.perform(ELECT_LEADERS, asked)).partitions
        assert result.error_code == code
    assert leadership(cluster, "alone") == (NOBODY, (2,))
    assert cluster.partition("alone").leader_epoch == epoch


async def test_an_unclean_election_passes_over_an_offline_replica(cluster: Cluster) -> None:
    """2 is preferred, 3 has less, and an operator accepts the loss."""
    await cluster.create_topic("orders", (2, 3))
    cluster.change_isr("orders", 0, (2,))
    await report(cluster, 2, "orders")
    assert leadership(cluster, "orders") == (NOBODY, (2,))
    asked = admin_pb2.ElectLeadersRequest(
        election_type=admin_pb2.ELECTION_UNCLEAN,
        topics=[admin_pb2.TopicPartitions(topic="orders", partitions=[0])],
    )
    (result,) = (await cluster.active.perform(ELECT_LEADERS, asked)).partitions
    assert result.error_code == errors_pb2.NONE
    assert leadership(cluster, "orders") == (3, (3,))


async def test_a_topic_may_accept_the_loss_beforehand(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3), unclean_leader_election_enable="true")
    cluster.change_isr("orders", 0, (2,))
    await report(cluster, 2, "orders")
    assert leadership(cluster, "orders") == (3, (3,))


async def test_it_leads_again_when_its_broker_is_back_with_the_folder(cluster: Cluster) -> None:
    await cluster.create_topic("alone", (2,))
    await report(cluster, 2, "alone")
    await cluster.bounce(2)
    await cluster.at_rest()
    assert leadership(cluster, "alone") == (2, (2,))


async def test_it_leads_again_when_its_broker_says_that_it_is_fine(cluster: Cluster) -> None:
    await cluster.create_topic("alone", (2,))
    await report(cluster, 2, "alone")
    await report(cluster, 2)
    await cluster.at_rest()
    assert leadership(cluster, "alone") == (2, (2,))


async def test_a_new_controller_believes_the_image_until_brokers_have_reported(
    cluster: Cluster,
) -> None:
    """It elects nobody whom its predecessor knew to be offline. A broker that is fine reports
    nothing, so after a while its replica leads again."""
    await cluster.create_topic("broken", (2,))
    await cluster.create_topic("mended", (3,))
    await report(cluster, 2, "broken")
    await report(cluster, 3, "mended")
    epoch = cluster.partition("broken").leader_epoch
    cluster.hand_over(1, 2)
    await cluster.at_rest()
    assert leadership(cluster, "broken") == (NOBODY, (2,))
    assert leadership(cluster, "mended") == (NOBODY, (3,))
    await report(cluster, 2, "broken")
    await pass_time(BELIEVED_MS / 1000)
    assert leadership(cluster, "broken") == (NOBODY, (2,))
    assert cluster.partition("broken").leader_epoch == epoch
    assert leadership(cluster, "mended") == (3, (3,))


async def test_a_new_controller_accepts_no_loss_before_it_knows_who_is_offline(
    cluster: Cluster,
) -> None:
    """2 has all records, 3 fewer, and both are offline: to elect 3 would only shrink the ISR."""
    await cluster.create_topic("orders", (2, 3), unclean_leader_election_enable="true")
    cluster.change_isr("orders", 0, (2,))
    await report(cluster, 3, "orders")
    await report(cluster, 2, "orders")
    assert leadership(cluster, "orders") == (NOBODY, (2,))
    cluster.hand_over(1, 2)
    await cluster.at_rest()
    await report(cluster, 3, "orders")
    await report(cluster, 2, "orders")
    await pass_time(BELIEVED_MS / 1000 + 1)
    await cluster.at_rest()
    assert leadership(cluster, "orders") == (NOBODY, (2,))


async def test_nobody_reports_offline_replicas_that_are_not_its_own(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    before = cluster.image.offset
    await report(cluster, 1, "orders")
    assert cluster.image.offset == before


async def test_a_report_of_partitions_that_are_not_there_changes_nothing(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    topic_id = cluster.image.topics["orders"].topic_id
    unknown = [TopicIdPartition(topic_id, number) for number in (-1, 1)]
    unknown.append(TopicIdPartition(TopicId(b"?" * 16), 0))
    operations = broker_manager.leadership_changes(
        cluster.image,
        ControllerTenure(BrokerId(1), cluster.image.controller_epoch),
        broker_manager.liveness(cluster.image),
        unclean=lambda _topic: True,
        offline=dict.fromkeys(unknown, frozenset({BrokerId(2)})),
        only=unknown,
    )
    assert operations == []


async def test_a_replica_that_is_offline_and_unfit_gets_one_epoch_for_both(
    cluster: Cluster,
) -> None:
    """Brokers name it twice, for the controllers of earlier releases."""
    await cluster.create_topic("orders", (2, 3))
    named = control_pb2.DamagedReplica(
        topic_id=cluster.image.topics["orders"].topic_id, partition=0
    )
    request = control_pb2.ReportReplicasRequest(
        broker_id=2, broker_epoch=cluster.brokers[2].epoch, damaged=[named], offline=[named]
    )
    await cluster.active.report_replicas(request)
    assert leadership(cluster, "orders") == (3, (3,))
    assert cluster.partition("orders").leader_epoch == 1


async def test_a_reassignment_gives_no_leadership_to_an_offline_replica(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    cluster.change_isr("orders", 0, (2,))
    await report(cluster, 2, "orders")
    wanted = admin_pb2.WantedReassignment(topic="orders", partition=0, replicas=[2])
    asked = admin_pb2.AlterPartitionReassignmentsRequest(
        partitions=[wanted], allow_replication_factor_change=True
    )
    (result,) = (await cluster.active.perform(ALTER_PARTITION_REASSIGNMENTS, asked)).partitions
    assert result.error_code == errors_pb2.NONE
    assert cluster.partition("orders").replicas == (2,)
    assert leadership(cluster, "orders") == (NOBODY, (2,))


async def test_a_broker_stops_without_waiting_for_an_offline_replica(cluster: Cluster) -> None:
    """Nobody could take the partition over, so the broker has nothing to wait for."""
    await cluster.create_topic("orders", (2, 3))
    await report(cluster, 3, "orders")
    asked = control_pb2.ControlledShutdownRequest(
        broker_id=2, broker_epoch=cluster.brokers[2].epoch
    )
    answer = await cluster.active.controlled_shutdown(asked)
    assert (answer.error_code, answer.remaining_partitions) == (errors_pb2.NONE, 0)
    assert leadership(cluster, "orders") == (2, (2,))


async def test_a_broker_that_stops_hands_nothing_to_an_offline_replica(cluster: Cluster) -> None:
    """A leader may have returned it to the ISR before it knew."""
    await cluster.create_topic("orders", (2, 3))
    await report(cluster, 3, "orders")
    cluster.change_isr("orders", 0, (2, 3))
    asked = control_pb2.ControlledShutdownRequest(
        broker_id=2, broker_epoch=cluster.brokers[2].epoch
    )
    assert (await cluster.active.controlled_shutdown(asked)).remaining_partitions == 0
    assert cluster.partition("orders").leader == 2


async def test_an_offline_replica_does_not_lead_instead_of_a_damaged_one(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    await report(cluster, 3, "orders")
    cluster.change_isr("orders", 0, (2, 3))
    named = control_pb2.DamagedReplica(
        topic_id=cluster.image.topics["orders"].topic_id, partition=0
    )
    request = control_pb2.ReportReplicasRequest(
        broker_id=2, broker_epoch=cluster.brokers[2].epoch, damaged=[named]
    )
    await cluster.active.report_replicas(request)
    assert cluster.partition("orders").leader == 2


async def test_of_many_offline_replicas_those_that_somebody_relies_on_are_decided(
    cluster: Cluster,
) -> None:
    """A report names all of them every few seconds, which are 100,000 in a large cluster."""
    for topic in ("alone", "led", "followed"):
        await cluster.create_topic(topic, (2,) if topic == "alone" else (2, 3))
    tips = [
        TopicIdPartition(cluster.image.topics[topic].topic_id, 0)
        for topic in ("alone", "led", "followed")
    ]
    assert broker_manager.relying_on(cluster.image, BrokerId(2), tips) == tips
    await report(cluster, 2, "alone", "led", "followed")
    assert broker_manager.relying_on(cluster.image, BrokerId(2), tips) == []
