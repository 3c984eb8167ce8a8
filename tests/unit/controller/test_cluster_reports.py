"""A controller and the replicas that brokers report: full disks, damaged logs."""

from quorate.broker.controller.broker_trouble_reports import BELIEVED_MS
from quorate.common.types import TopicPartition
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.controller.cluster import Cluster


def full(cluster: Cluster, broker_id: int) -> control_pb2.ReportReplicasRequest:
    epoch = cluster.brokers[broker_id].epoch
    return control_pb2.ReportReplicasRequest(broker_id=broker_id, broker_epoch=epoch, is_full=True)


def damaged(cluster: Cluster, broker_id: int, *topics: str) -> control_pb2.ReportReplicasRequest:
    """Its replica of partition 0 of each."""
    return control_pb2.ReportReplicasRequest(
        broker_id=broker_id,
        broker_epoch=cluster.brokers[broker_id].epoch,
        damaged=[
            control_pb2.DamagedReplica(topic_id=cluster.image.topics[topic].topic_id, partition=0)
            for topic in topics
        ],
    )


async def test_a_full_broker_leaves_the_isrs_that_have_others(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3, 1), (3, 2, 1))
    await cluster.create_topic("alone", (2,))
    answer = await cluster.active.report_replicas(full(cluster, 2))
    assert (answer.error_code, answer.remaining_partitions) == (errors_pb2.NONE, 1)
    led, followed = cluster.partition("orders", 0), cluster.partition("orders", 1)
    assert (led.leader, led.isr) == (3, (3, 1))
    assert (followed.leader, followed.isr) == (3, (3, 1))
    assert (cluster.partition("alone").leader, cluster.partition("alone").isr) == (2, (2,))
    await cluster.at_rest()
    assert cluster.brokers[1].cache.leader(TopicPartition("orders", 0)) == 3


async def test_the_last_of_an_isr_stays_when_all_disks_are_full(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2, 3))
    for broker_id in (1, 2, 3):
        await cluster.active.report_replicas(full(cluster, broker_id))
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (3, (3,))


async def test_a_full_broker_is_believed_for_a_while_or_until_it_says_otherwise(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (2, 3))
    await cluster.active.report_replicas(full(cluster, 3))
    cluster.change_isr("orders", 0, (2, 3))
    await cluster.at_rest()
    leave = control_pb2.ControlledShutdownRequest(
        broker_id=2, broker_epoch=cluster.brokers[2].epoch
    )
    await cluster.active.controlled_shutdown(leave)
    assert cluster.partition("orders").leader == 2, "nobody else is fit"
    fine = control_pb2.ReportReplicasRequest(broker_id=3, broker_epoch=cluster.brokers[3].epoch)
    await cluster.active.report_replicas(fine)
    await cluster.active.controlled_shutdown(leave)
    assert cluster.partition("orders").leader == 3


async def test_a_report_is_forgotten_when_it_is_not_repeated(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (2, 3))
    await cluster.active.report_replicas(full(cluster, 3))
    staying = cluster.active._brokers.staying
    assert 3 not in staying(cluster.image)
    await pass_time(BELIEVED_MS / 1000)  # Of virtual time.
    assert 3 in staying(cluster.image)


async def test_a_damaged_replica_leaves_the_isr_for_an_epoch_of_its_own(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    await cluster.create_topic("others", (2, 3))
    answer = await cluster.active.report_replicas(damaged(cluster, 2, "orders"))
    assert (answer.error_code, answer.remaining_partitions) == (errors_pb2.NONE, 0)
    found = cluster.partition("orders")
    assert (found.leader, found.isr, found.leader_epoch) == (3, (3,), 1), "once, not once more"
    assert cluster.partition("others").leader_epoch == 0
    answer = await cluster.active.report_replicas(damaged(cluster, 2, "orders"))
    found = cluster.partition("orders")
    assert (found.leader, found.isr, found.leader_epoch) == (3, (3,), 2), "it was out before"


async def test_a_damaged_replica_without_a_substitute_stays(cluster: Cluster) -> None:
    await cluster.create_topic("alone", (2,))
    answer = await cluster.active.report_replicas(damaged(cluster, 2, "alone"))
    assert (answer.error_code, answer.remaining_partitions) == (errors_pb2.NONE, 1)
    found = cluster.partition("alone")
    assert (found.leader, found.isr, found.leader_epoch) == (2, (2,), 0)


async def test_nobody_reports_replicas_that_are_not_its_own(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    await cluster.active.report_replicas(damaged(cluster, 1, "orders"))
    assert cluster.partition("orders").leader_epoch == 0


async def test_b3_a_report_of_an_earlier_incarnation_is_refused(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    old = full(cluster, 2)
    await cluster.bounce(2)
    await cluster.at_rest()
    before = cluster.partition("orders")
    answer = await cluster.active.report_replicas(old)
    assert answer.error_code == errors_pb2.STALE_BROKER_EPOCH
    assert cluster.partition("orders") == before


async def test_administrators_are_told_of_full_disks_and_damaged_logs(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    await cluster.create_topic("payments", (3, 2))
    assert cluster.active.alerts == []
    await cluster.active.report_replicas(full(cluster, 2))
    await cluster.active.report_replicas(damaged(cluster, 3, "orders", "payments"))
    told = cluster.active.alerts
    assert len(told) == 2
    assert told[0].startswith("broker 2: the disk of its log directory is full")
    assert told[1].startswith("broker 3: damaged logs of orders-0, payments-0:")
    await pass_time(BELIEVED_MS / 1000)
    assert cluster.active.alerts == []


async def test_c21_where_a_leader_cannot_lead_another_is_elected(cluster: Cluster) -> None:
    for broker_id in (2, 3):
        cluster.brokers[broker_id].replicas.broken.add("orders")
    await cluster.create_topic("orders", (2, 3, 1))
    await cluster.create_topic("fine", (2, 3, 1))
    await cluster.at_rest()
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (1, (1,))
    assert (cluster.partition("fine").leader, cluster.partition("fine").isr) == (2, (2, 3, 1))
    assert cluster.brokers[3].cache.leader(TopicPartition("orders", 0)) == 1


async def test_c21_the_last_one_stays_and_is_an_alert(cluster: Cluster) -> None:
    cluster.brokers[2].replicas.broken.add("orders")
    await cluster.create_topic("orders", (2,))
    await cluster.at_rest()
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (2, (2,))
    (alert,) = cluster.active.alerts
    assert "orders-0" in alert
