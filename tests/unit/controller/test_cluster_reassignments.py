"""A controller that moves replicas, among brokers: told, raced, failing at every step (C11)."""

from collections.abc import AsyncIterator, Callable

import pytest

from quorate.broker.changes.table import (
    ALTER_PARTITION_REASSIGNMENTS,
    DELETE_TOPICS,
    LIST_PARTITION_REASSIGNMENTS,
)
from quorate.broker.controller.channels.control_transport import ControlKind
from quorate.broker.controller.requests.reassignments import Reassignments
from quorate.common.types import BrokerId, TopicPartition
from quorate.metadata_log.partitions import Partition
from quorate.quorum.quorum_errors import QuorumUnavailable
from quorate_proto.v1 import admin_pb2, control_pb2, errors_pb2
from tests.unit.controller.cluster import NO_CONTEXT, Cluster

TP = TopicPartition("orders", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Five brokers, 1 the controller; one partition on 3, 2 and 4, led by 3."""
    cluster = Cluster()
    await cluster.start_brokers(1, 2, 3, 4, 5)
    await cluster.create_topic("orders", (3, 2, 4))
    yield cluster
    await cluster.stop()


def request(*target: int) -> admin_pb2.AlterPartitionReassignmentsRequest:
    """Move the partition to ``target``; cancel if there is none."""
    wanted = admin_pb2.WantedReassignment(
        topic="orders", partition=0, replicas=target, cancel=not target
    )
    return admin_pb2.AlterPartitionReassignmentsRequest(
        partitions=[wanted], allow_replication_factor_change=True
    )


async def move(cluster: Cluster, *target: int) -> int:
    """The error code of the one partition."""
    answer = await cluster.active.perform(ALTER_PARTITION_REASSIGNMENTS, request(*target))
    assert answer.error_code == errors_pb2.NONE
    (result,) = answer.partitions
    return result.error_code


def told(cluster: Cluster, broker_id: int) -> control_pb2.PartitionLeadership | None:
    """What a broker was last told of the partition; None: nothing, or to drop it since."""
    found: control_pb2.PartitionLeadership | None = None
    for sent in cluster.sent:
        if sent.to != broker_id:
            continue
        if isinstance(sent.request, control_pb2.LeaderAndIsrRequest):
            if sent.request.is_init:
                found = None
            for topic in sent.request.topics:
                found = topic.partitions[0]
        elif isinstance(sent.request, control_pb2.StopReplicaRequest):
            (stopped,) = sent.request.partitions
            assert stopped.delete_data
            if found is None or stopped.leader_epoch >= found.leader_epoch:
                found = None
    return found


async def test_c11_added_replicas_are_told_and_removed_ones_stopped(cluster: Cluster) -> None:
    cluster.sent.clear()
    assert await move(cluster, 5, 2, 4) == errors_pb2.NONE
    await cluster.at_rest()
    for broker_id in (2, 3, 4, 5):
        leadership = told(cluster, broker_id)
        assert leadership is not None
        assert (leadership.leader, leadership.leader_epoch) == (3, 1)
        assert list(leadership.replicas) == [3, 2, 4, 5]
        assert list(leadership.adding_replicas) == [5]
    cluster.change_isr("orders", 0, (3, 2, 4, 5))
    await cluster.at_rest()
    assert cluster.partition("orders").replicas == (5, 2, 4)
    (request,) = cluster.brokers[3].replicas.stopped
    (stopped,) = request.partitions
    assert (stopped.topic, stopped.leader_epoch, stopped.delete_data) == ("orders", 2, True)
    for broker_id in (2, 4, 5):
        leadership = told(cluster, broker_id)
        assert leadership is not None
        assert (leadership.leader, leadership.leader_epoch) == (5, 2)
        assert not leadership.adding_replicas
        assert not cluster.brokers[broker_id].replicas.stopped
        cached = cluster.brokers[broker_id].cache.partition(TP)
        assert cached is not None
        assert (cached.replicas, cached.leader) == ((5, 2, 4), 5)


async def test_c11_s8_cancelled_the_new_replica_goes_again(cluster: Cluster) -> None:
    await move(cluster, 5, 2, 4)
    await cluster.at_rest()
    assert await move(cluster) == errors_pb2.NONE
    await cluster.at_rest()
    assert cluster.partition("orders").replicas == (3, 2, 4)
    assert told(cluster, 5) is None
    assert cluster.brokers[5].replicas.stopped
    assert await move(cluster) == errors_pb2.NO_REASSIGNMENT_IN_PROGRESS


async def test_c11_a_silent_broker_that_left_does_not_hold_it_up(cluster: Cluster) -> None:
    await move(cluster, 5, 2, 4)
    await cluster.at_rest()
    cluster.silent.add(3)
    cluster.change_isr("orders", 0, (3, 2, 4, 5))
    await cluster.at_rest()
    assert cluster.partition("orders").replicas == (5, 2, 4)
    assert told(cluster, 5) is not None
    cluster.silent.clear()
    await cluster.when(lambda: cluster.brokers[3].replicas.stopped)


async def test_c11_b1_a_replica_that_has_left_is_told_of_no_leadership(cluster: Cluster) -> None:
    """Its LeaderAndIsr is still being sent when the partition leaves it."""
    await move(cluster, 5, 2, 4)
    await cluster.at_rest()
    cluster.silent.add(3)
    await move(cluster, 5, 2)
    await move(cluster, 5, 4)
    cluster.change_isr("orders", 0, (3, 2, 4, 5))
    await cluster.at_rest()
    cluster.silent.clear()
    cluster.sent.clear()
    await cluster.when(lambda: cluster.brokers[3].replicas.stopped)
    for sent in cluster.requests(ControlKind.LEADER_AND_ISR):
        assert isinstance(sent.request, control_pb2.LeaderAndIsrRequest)
        for topic in sent.request.topics:
            assert all(sent.to in one.replicas for one in topic.partitions)


async def test_c11_an_isr_change_that_comes_first_is_decided_upon_again(cluster: Cluster) -> None:
    client = cluster.brokers[1].quorum
    cluster.quorum.before_next(client, lambda: cluster.change_isr("orders", 0, (3, 2)))
    assert await move(cluster, 5, 2) == errors_pb2.NONE
    assert cluster.partition("orders").isr == (3, 2)
    await cluster.at_rest()
    cluster.quorum.before_next(client, lambda: cluster.change_isr("orders", 0, (2, 3, 5)))
    cluster.change_isr("orders", 0, (3, 2, 5))
    await cluster.at_rest()
    assert cluster.partition("orders").replicas == (5, 2)


async def test_c11_an_isr_that_shrinks_again_in_time_ends_nothing(cluster: Cluster) -> None:
    await move(cluster, 5, 2)
    await cluster.at_rest()
    client = cluster.brokers[1].quorum
    cluster.quorum.before_next(client, lambda: cluster.change_isr("orders", 0, (3, 2)))
    cluster.change_isr("orders", 0, (3, 2, 5))
    await cluster.at_rest()
    assert cluster.partition("orders").replicas == (3, 2, 4, 5)
    cluster.change_isr("orders", 0, (3, 2, 5))
    await cluster.at_rest()
    assert cluster.partition("orders").replicas == (5, 2)


async def test_c11_a_quorum_that_was_away_is_asked_again(cluster: Cluster) -> None:
    await move(cluster, 5, 2)
    await cluster.at_rest()
    cluster.change_isr("orders", 0, (3, 2, 5))
    cluster.quorum.available = False
    await cluster.at_rest()
    cluster.quorum.available = True
    await cluster.at_rest()
    assert cluster.partition("orders").replicas == (5, 2)


async def test_c11_what_no_change_told_of_is_noticed_in_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await move(cluster, 5, 2)
    await cluster.at_rest()
    monkeypatch.setattr(Reassignments, "on_image", lambda *_: None)
    cluster.change_isr("orders", 0, (3, 2, 5))
    await cluster.at_rest()
    assert cluster.image.reassignments
    await cluster.when(lambda: not cluster.image.reassignments)


async def test_c11_deletion_stops_old_and_new_replicas(cluster: Cluster) -> None:
    await move(cluster, 5, 2, 4)
    answer = await cluster.active.perform(
        DELETE_TOPICS, admin_pb2.DeleteTopicsRequest(names=["orders"])
    )
    assert [one.error_code for one in answer.topics] == [errors_pb2.NONE]
    assert not cluster.image.reassignments
    for broker_id in (2, 3, 4, 5):
        assert cluster.brokers[broker_id].replicas.stopped


async def test_c11_a_broker_that_dies_meanwhile_is_dealt_with_as_always(cluster: Cluster) -> None:
    await move(cluster, 5, 2, 4)
    await cluster.at_rest()
    cluster.change_isr("orders", 0, (3, 2, 5))
    await cluster.kill(3)
    await cluster.at_rest()
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr) == (2, (2, 5))
    cluster.change_isr("orders", 0, (2, 5, 4))
    await cluster.at_rest()
    assert cluster.partition("orders").replicas == (5, 2, 4)


async def test_c11_controlled_shutdown_moves_leaderships_of_moving_partitions(
    cluster: Cluster,
) -> None:
    await move(cluster, 5, 2, 4)
    await cluster.at_rest()
    asked = control_pb2.ControlledShutdownRequest(
        broker_id=3, broker_epoch=cluster.brokers[3].epoch
    )
    answer = await cluster.active.controlled_shutdown(asked)
    assert (answer.error_code, answer.remaining_partitions) == (errors_pb2.NONE, 0)
    assert cluster.partition("orders").leader == 2


async def test_c11_all_that_is_asked_for_and_listed_reaches_the_controller_alone(
    cluster: Cluster,
) -> None:
    elsewhere = cluster.brokers[2].admin
    declined = await elsewhere.perform(ALTER_PARTITION_REASSIGNMENTS, request(5, 2), NO_CONTEXT)
    assert declined.error_code == errors_pb2.NOT_CONTROLLER
    every = admin_pb2.ListPartitionReassignmentsRequest(all=True)
    not_here = await elsewhere.perform(LIST_PARTITION_REASSIGNMENTS, every, NO_CONTEXT)
    assert not_here.error_code == errors_pb2.NOT_CONTROLLER
    controller = cluster.brokers[1].admin
    await controller.perform(ALTER_PARTITION_REASSIGNMENTS, request(5, 2), NO_CONTEXT)
    answer = await controller.perform(LIST_PARTITION_REASSIGNMENTS, every, NO_CONTEXT)
    assert [list(one.adding_replicas) for one in answer.partitions] == [[5]]
    named = admin_pb2.ListPartitionReassignmentsRequest(
        partitions=[admin_pb2.PartitionRef(topic="orders", partition=7)]
    )
    assert not (
        await controller.perform(LIST_PARTITION_REASSIGNMENTS, named, NO_CONTEXT)
    ).partitions


# --- the controller dies at every step ----------------------------------------------------------


def before_it_is_written(cluster: Cluster) -> None:
    """The controller's next transaction gets nowhere, nor does any later one."""
    client = cluster.brokers[1].quorum

    def gone() -> None:
        client.cut_off = True
        raise QuorumUnavailable("the controller dies before it is written")

    cluster.quorum.before_next(client, gone)


def once_it_is_applied(cluster: Cluster) -> None:
    """Its next transaction is its last: it neither learns of it nor tells anybody."""
    client = cluster.brokers[1].quorum

    def gone() -> None:
        client.cut_off = True
        client.watch_may_go_on.clear()
        cluster.quorum.lose_answers(client, 1)

    cluster.quorum.before_next(client, gone)


Crash = Callable[[Cluster], None]
CRASHES = pytest.mark.parametrize("crash", [before_it_is_written, once_it_is_applied])


def final(cluster: Cluster) -> Partition:
    """The partition, once everybody was told of it."""
    partition = cluster.partition("orders")
    for broker_id in cluster.brokers:
        leadership = told(cluster, broker_id)
        if broker_id not in partition.replicas:
            assert leadership is None
        else:
            assert leadership is not None
            assert leadership.leader_epoch == partition.leader_epoch
            assert tuple(leadership.replicas) == partition.replicas
    return partition


@CRASHES
async def test_c11_c9_the_controller_dies_as_it_begins(cluster: Cluster, crash: Crash) -> None:
    crash(cluster)
    assert await move(cluster, 5, 2, 4) == errors_pb2.REQUEST_TIMED_OUT
    await cluster.kill(1)
    await cluster.at_rest()
    if crash is before_it_is_written:
        assert final(cluster).replicas == (3, 2, 4)
        await move(cluster, 5, 2, 4)
        await cluster.at_rest()
    assert final(cluster).replicas == (3, 2, 4, 5)
    cluster.change_isr("orders", 0, (3, 2, 4, 5))
    await cluster.at_rest()
    assert final(cluster).replicas == (5, 2, 4)


@CRASHES
async def test_c11_c9_the_controller_dies_as_it_ends(cluster: Cluster, crash: Crash) -> None:
    await move(cluster, 5, 2, 4)
    await cluster.at_rest()
    crash(cluster)
    cluster.change_isr("orders", 0, (3, 2, 4, 5))
    await cluster.when(lambda: cluster.brokers[1].quorum.cut_off)
    assert bool(cluster.image.reassignments) == (crash is before_it_is_written)
    assert told(cluster, 3) is not None
    await cluster.kill(1)
    await cluster.at_rest()
    assert final(cluster).replicas == (5, 2, 4)
    assert not cluster.image.reassignments


@CRASHES
async def test_c11_c9_the_controller_dies_as_it_cancels(cluster: Cluster, crash: Crash) -> None:
    await move(cluster, 5, 2, 4)
    await cluster.at_rest()
    crash(cluster)
    assert await move(cluster) == errors_pb2.REQUEST_TIMED_OUT
    await cluster.kill(1)
    await cluster.at_rest()
    if crash is before_it_is_written:
        assert final(cluster).replicas == (3, 2, 4, 5)
        await move(cluster)
        await cluster.at_rest()
    assert final(cluster).replicas == (3, 2, 4)


async def test_c11_c9_the_controller_dies_while_it_waits(cluster: Cluster) -> None:
    await move(cluster, 5, 2, 4)
    await cluster.at_rest()
    await cluster.kill(1)
    cluster.change_isr("orders", 0, (3, 2, 4, 5))
    await cluster.at_rest()
    assert final(cluster).replicas == (5, 2, 4)


async def test_c11_c9_the_next_controller_ends_what_was_in_sync_already(cluster: Cluster) -> None:
    await move(cluster, 5, 2, 4)
    await cluster.at_rest()
    await cluster.brokers[1].follower.close()
    cluster.change_isr("orders", 0, (3, 2, 4, 5))
    await cluster.kill(1)
    await cluster.at_rest()
    assert final(cluster).replicas == (5, 2, 4)
    assert cluster.partition("orders").controller_id == cluster.image.controller_id != BrokerId(1)
