"""A controller among brokers: topics made and deleted, and what brokers are told of them."""

import asyncio

from quorate.broker.changes.table import ALLOCATE_PRODUCER_IDS, CREATE_TOPICS, DELETE_TOPICS
from quorate.broker.controller.channels.control_transport import ControlKind
from quorate.common.types import TopicPartition
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.unit.controller.cluster import NO_CONTEXT, Cluster, new_topic


async def test_c4_e6_a_new_topic_is_led_by_its_first_replica_and_all_are_told(
    cluster: Cluster,
) -> None:
    result = await cluster.create_topic("orders", (2, 3, 1), (3, 1, 2))
    assert result.error_code == errors_pb2.NONE
    assert cluster.partition("orders", 0).leader == 2
    assert cluster.partition("orders", 0).isr == (2, 3, 1)
    for broker in cluster.brokers.values():
        told = broker.replicas.led[-1].topics[0]
        assert [one.leader for one in told.partitions] == [2, 3]
        assert broker.cache.leader(TopicPartition("orders", 1)) == 3
        assert broker.cache.controller_id == 1


async def test_c5_deletion_stops_all_replicas_then_removes_the_topic(cluster: Cluster) -> None:
    result = await cluster.create_topic("orders", (2, 3))
    response = await cluster.active.perform(
        DELETE_TOPICS, admin_pb2.DeleteTopicsRequest(names=["orders"])
    )
    assert [one.error_code for one in response.topics] == [errors_pb2.NONE]
    assert "orders" not in cluster.image.topics
    assert "orders" not in cluster.image.deletions
    for broker_id in (2, 3):
        (request,) = cluster.brokers[broker_id].replicas.stopped
        (stopped,) = request.partitions
        assert (stopped.topic, stopped.topic_id) == ("orders", result.topic_id)
        assert (stopped.leader_epoch, stopped.delete_data) == (-2, True)
    assert not cluster.brokers[1].replicas.stopped, "it hosts none"
    assert all("orders" not in broker.cache.topics for broker in cluster.brokers.values())


async def test_c5_deletion_does_not_wait_for_ever_for_a_silent_broker(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    cluster.silent.add(3)
    response = await cluster.active.perform(
        DELETE_TOPICS, admin_pb2.DeleteTopicsRequest(names=["orders"])
    )
    assert response.topics[0].error_code == errors_pb2.NONE
    assert "orders" not in cluster.image.topics
    cluster.silent.clear()
    await cluster.when(lambda: cluster.brokers[3].replicas.stopped)


async def test_c5_c9_a_pending_deletion_is_carried_out_by_the_next_controller(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (2, 3))
    cluster.silent.add(3)
    request = admin_pb2.DeleteTopicsRequest(names=["orders"])
    request.context.timeout_ms = 1_000
    response = await cluster.active.perform(DELETE_TOPICS, request)
    assert response.topics[0].error_code == errors_pb2.REQUEST_TIMED_OUT
    await cluster.kill(1)
    cluster.silent.clear()
    await cluster.at_rest()
    assert "orders" not in cluster.image.topics
    assert cluster.brokers[3].replicas.stopped[-1].header.controller_epoch == 2


async def test_c4_validation_alone_changes_nothing(cluster: Cluster) -> None:
    request = admin_pb2.CreateTopicsRequest(
        topics=[new_topic("orders", (2,)), new_topic("bad name", (2,))], validate_only=True
    )
    offset = cluster.image.offset
    answer = await cluster.active.perform(CREATE_TOPICS, request)
    assert [one.error_code for one in answer.topics] == [
        errors_pb2.NONE,
        errors_pb2.INVALID_TOPIC_EXCEPTION,
    ]
    assert {one.topic_id for one in answer.topics} == {b""}
    assert cluster.image.offset == offset


async def test_c17_an_election_goes_ahead_of_a_flood_of_creations(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    flood = admin_pb2.CreateTopicsRequest(
        topics=[new_topic(f"flood-{n}", *[(1, 3)] * 1_000) for n in range(20)]
    )
    creating = asyncio.create_task(cluster.active.perform(CREATE_TOPICS, flood))
    await cluster.when(lambda: "flood-1" in cluster.image.topics)
    await cluster.kill(2)
    await cluster.when(lambda: cluster.partition("orders").leader == 3)
    assert "flood-19" not in cluster.image.topics, "the flood is still coming in"
    assert {one.error_code for one in (await creating).topics} == {errors_pb2.NONE}


async def test_c18_a_request_without_an_answer_is_sent_again_and_raised_as_an_alert(
    cluster: Cluster,
) -> None:
    cluster.silent.add(3)
    await cluster.create_topic("orders", (2, 3))
    await cluster.when(lambda: cluster.active.alerts)
    assert any("LeaderAndIsr to broker 3 got no answer" in text for text in cluster.active.alerts)
    status = await cluster.brokers[1].admin.ClusterStatus(
        admin_pb2.ClusterStatusRequest(), NO_CONTEXT
    )
    assert list(status.alerts) == cluster.active.alerts
    cluster.silent.clear()
    await cluster.when(lambda: not cluster.active.alerts)
    assert cluster.brokers[3].replicas.led[-1].topics[0].topic == "orders"
    assert cluster.brokers[3].cache.leader(TopicPartition("orders", 0)) == 2


async def test_c17_leadership_does_not_wait_behind_a_slow_deletion_or_metadata(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("doomed", (3, 2))
    await cluster.create_topic("orders", (2, 3))
    gate = asyncio.Event()
    cluster.slow[3, ControlKind.STOP_REPLICA] = gate
    cluster.slow[3, ControlKind.UPDATE_METADATA] = gate
    request = admin_pb2.DeleteTopicsRequest(names=["doomed"])
    deleting = asyncio.create_task(cluster.active.perform(DELETE_TOPICS, request))
    await cluster.when(lambda: cluster.requests(ControlKind.STOP_REPLICA, to=3))
    await cluster.kill(2)
    await cluster.when(
        lambda: cluster.brokers[3].replicas.led[-1].topics[0].partitions[0].leader == 3
    )
    assert not cluster.brokers[3].replicas.stopped, "the deletion is still going on"
    gate.set()
    await deleting


async def test_c4_producer_ids_are_handed_out_once(cluster: Cluster) -> None:
    epoch = cluster.brokers[2].epoch
    ask = admin_pb2.AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch)
    first = await cluster.active.perform(ALLOCATE_PRODUCER_IDS, ask)
    second = await cluster.active.perform(ALLOCATE_PRODUCER_IDS, ask)
    assert (first.first_producer_id, first.count) == (0, 1000)
    assert second.first_producer_id == 1000
    stale = admin_pb2.AllocateProducerIdsRequest(broker_id=2, broker_epoch=1)
    refused = await cluster.active.perform(ALLOCATE_PRODUCER_IDS, stale)
    assert refused.error_code == errors_pb2.STALE_BROKER_EPOCH


async def test_f6_without_a_quorum_a_creation_times_out_and_nothing_is_claimed(
    cluster: Cluster,
) -> None:
    cluster.quorum.available = False
    request = admin_pb2.CreateTopicsRequest(topics=[new_topic("orders", (1,))])
    (result,) = (await cluster.active.perform(CREATE_TOPICS, request)).topics
    assert result.error_code == errors_pb2.REQUEST_TIMED_OUT
    cluster.quorum.available = True
    assert (await cluster.create_topic("orders", (1,))).error_code == errors_pb2.NONE
