"""A controller among brokers: topics, failures, failover, resignation, fencing."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.controller.transport import ControlKind
from metadata_log.records import ControllerRemoved, Operation, PartitionChange
from metadata_log.types import NO_BROKER, BrokerId, TopicPartition
from quorate_proto.v1 import admin_pb2, control_pb2, errors_pb2
from tests.unit.controller.cluster import NO_CONTEXT, Cluster, new_topic


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three brokers; broker 1 is the controller."""
    cluster = Cluster()
    await cluster.start_brokers(1, 2, 3)
    yield cluster
    await cluster.stop()


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


async def test_c2_c3_a_dead_brokers_leaderships_move_to_the_isr(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3, 1), (3, 1, 2))
    await cluster.kill(2)
    await cluster.at_rest()
    first, second = cluster.partition("orders", 0), cluster.partition("orders", 1)
    assert (first.leader, first.isr, first.leader_epoch) == (3, (3, 1), 1)
    assert (second.leader, second.isr, second.leader_epoch) == (3, (3, 1), 1)
    assert cluster.brokers[1].cache.leader(TopicPartition("orders", 0)) == 3
    assert {one.partition for one in cluster.brokers[3].replicas.led[-1].topics[0].partitions} == {
        0,
        1,
    }


async def test_e2_e4_c9_the_next_controller_starts_from_the_image(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2, 3))
    cluster.sent.clear()
    await cluster.kill(1)
    await cluster.at_rest()
    assert cluster.image.controller_epoch == 2
    assert cluster.image.controller_id in (2, 3)
    assert len(cluster.controllers) == 1
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.controller_epoch) == (2, (2, 3), 2)
    for broker_id in (2, 3):
        first, *rest = cluster.requests(ControlKind.LEADER_AND_ISR, broker_id)
        assert isinstance(first.request, control_pb2.LeaderAndIsrRequest)
        assert first.request.is_init
        assert first.request.topics[0].partitions[0].leader == 1, "as read from the image"
        assert rest[-1].request.topics[0].partitions[0].leader == 2  # type: ignore[union-attr]
        assert not rest[-1].request.is_init  # type: ignore[union-attr]


async def test_e5_the_controller_resigns_and_another_takes_over(cluster: Cluster) -> None:
    before = cluster.active
    for broker_id in (2, 3):
        cluster.brokers[broker_id].quorum.far_away_s = 0.5
    await before.resign()
    await cluster.at_rest()
    assert cluster.image.controller_id in (2, 3)
    assert cluster.image.controller_epoch == 2
    answer = await before.create_topics(
        admin_pb2.CreateTopicsRequest(topics=[new_topic("late", (1,))])
    )
    assert answer.error_code == errors_pb2.NOT_CONTROLLER


async def test_e3_a_deposed_controller_is_refused_and_steps_down(cluster: Cluster) -> None:
    """Broker 1 stops hearing from the quorum while a request of its is still unanswered."""
    deposed = cluster.active
    cluster.silent.add(3)
    await cluster.create_topic("orders", (2, 3))
    await cluster.brokers[1].follower.close()
    cluster.quorum.expire(cluster.brokers[1].quorum.session_id, tell=False)
    await cluster.when(
        lambda: cluster.brokers[1].elector.active is deposed and len(cluster.controllers) == 2
    )
    await cluster.at_rest()
    cluster.silent.clear()
    await cluster.when(lambda: cluster.brokers[1].elector.active is None)
    assert cluster.image.controller_epoch == 2
    assert cluster.image.controller_id in (2, 3)
    await cluster.when(lambda: cluster.brokers[3].replicas.led[-1].header.controller_epoch == 2)
    assert deposed.alerts == [], "it says no more"


async def test_b3_a_bounced_broker_is_noticed_between_two_looks(cluster: Cluster) -> None:
    """Gone and back before the controller looks: its leaderships move all the same."""
    await cluster.create_topic("orders", (2, 3))
    await cluster.create_topic("alone", (2,))
    controller = cluster.brokers[1].quorum
    controller.watch_may_go_on.clear()
    await cluster.bounce(2)
    controller.watch_may_go_on.set()
    await cluster.at_rest()
    shared, alone = cluster.partition("orders"), cluster.partition("alone")
    assert (shared.leader, shared.isr) == (3, (3,))
    assert (alone.leader, alone.isr, alone.leader_epoch) == (2, (2,), 1), "a new leader epoch"
    first, *_ = cluster.brokers[2].replicas.led
    assert not first.is_init, "only a new controller's first command is"
    assert {one.topic: one.partitions[0].leader_epoch for one in first.topics} == {
        "orders": 1,
        "alone": 1,
    }
    assert cluster.brokers[2].cache.leader(TopicPartition("orders", 0)) == 3


async def test_b3_a_second_bounce_while_the_first_is_dealt_with_is_noticed(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("alone", (2,))
    controller = cluster.brokers[1].quorum
    cluster.quorum.before_next(controller, lambda: cluster.bounce_in_the_log(2))
    cluster.bounce_in_the_log(2)
    await cluster.at_rest()
    assert cluster.image.brokers[BrokerId(2)].admitted
    assert cluster.partition("alone").leader == 2
    assert cluster.partition("alone").leader_epoch == 2, "one for each incarnation"


async def test_b3_a_bounce_while_there_is_no_controller_is_noticed(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2,))
    for broker in cluster.brokers.values():
        await broker.elector.close()
    await cluster.bounce(2)
    await cluster.kill(1)
    await cluster.when(lambda: cluster.controllers)
    await cluster.at_rest()
    alone = cluster.partition("orders", 0)
    assert (alone.leader, alone.leader_epoch) == (2, 1)
    assert cluster.brokers[2].replicas.led[0].is_init, "its controller is new"


async def test_b3_the_old_incarnations_shutdown_request_is_refused(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    old = cluster.brokers[2].epoch
    await cluster.bounce(2)
    await cluster.at_rest()
    answer = await cluster.active.controlled_shutdown(
        control_pb2.ControlledShutdownRequest(broker_id=2, broker_epoch=old)
    )
    assert answer.error_code == errors_pb2.STALE_BROKER_EPOCH


async def test_b3_leaders_move_before_a_broker_stops(cluster: Cluster) -> None:
    """Scenario 11."""
    await cluster.create_topic("orders", (2, 3), (2, 1), (3, 2))
    await cluster.create_topic("alone", (2,))
    answer = await cluster.active.controlled_shutdown(
        control_pb2.ControlledShutdownRequest(broker_id=2, broker_epoch=cluster.brokers[2].epoch)
    )
    assert answer.error_code == errors_pb2.NONE
    assert answer.remaining_partitions == 0, "a partition with no other replica cannot move"
    assert [one.leader for one in cluster.image.topics["orders"].partitions] == [3, 1, 3]
    assert cluster.partition("alone").leader == 2
    assert cluster.brokers[3].replicas.led[-1].topics[0].partitions[0].leader == 3, "told already"


async def test_b3_brokers_that_stop_together_do_not_wait_for_one_another(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    left = []
    for broker_id in (1, 2, 3):
        request = control_pb2.ControlledShutdownRequest(
            broker_id=broker_id, broker_epoch=cluster.brokers[broker_id].epoch
        )
        left.append((await cluster.active.controlled_shutdown(request)).remaining_partitions)
    assert left == [0, 0, 0]


async def test_c2_c9_a_returning_broker_gets_its_leaderless_partitions(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    await cluster.kill(3)
    await cluster.at_rest()
    await cluster.kill(2)
    await cluster.at_rest()
    offline = cluster.partition("orders")
    assert (offline.leader, offline.isr) == (-1, (2,))
    await cluster.start_broker(3)
    await cluster.at_rest()
    assert cluster.partition("orders").leader == -1, "3 is not in the ISR"
    await cluster.start_broker(2)
    await cluster.at_rest()
    back = cluster.partition("orders")
    assert (back.leader, back.isr, back.leader_epoch) == (2, (2,), 3)
    assert cluster.brokers[1].cache.leader(TopicPartition("orders", 0)) == 2


async def test_c2_unclean_election_follows_the_topics_switch(cluster: Cluster) -> None:
    await cluster.create_topic("careful", (2, 3))
    await cluster.create_topic("careless", (2, 3), unclean_leader_election_enable="true")
    for broker_id in (3, 2):
        await cluster.kill(broker_id)
        await cluster.at_rest()
    await cluster.start_broker(3)
    await cluster.at_rest()
    assert cluster.partition("careful").leader == -1
    assert (cluster.partition("careless").leader, cluster.partition("careless").isr) == (3, (3,))


async def test_d1_a_lost_log_leaves_every_isr_and_stays_out_after_the_next_bounce(
    cluster: Cluster,
) -> None:
    """Rule 8: where it was the only member, the partition is offline until an operator decides."""
    await cluster.create_topic("orders", (2, 3))
    await cluster.create_topic("alone", (2,))
    cluster.log_may_be_lost = True
    await cluster.bounce(2)
    await cluster.at_rest()
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (3, (3,))
    assert (cluster.partition("alone").leader, cluster.partition("alone").isr) == (-1, ())
    cluster.log_may_be_lost = False
    await cluster.bounce(2)
    await cluster.at_rest()
    assert cluster.partition("alone").leader == -1
    cluster.set_topic_config("alone", "unclean.leader.election.enable", "true")
    await cluster.at_rest()
    assert cluster.partition("alone").leader == 2, "the operator accepts the loss"


async def test_c5_deletion_stops_all_replicas_then_removes_the_topic(cluster: Cluster) -> None:
    result = await cluster.create_topic("orders", (2, 3))
    response = await cluster.active.delete_topics(admin_pb2.DeleteTopicsRequest(names=["orders"]))
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
    response = await cluster.active.delete_topics(admin_pb2.DeleteTopicsRequest(names=["orders"]))
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
    response = await cluster.active.delete_topics(request)
    assert response.topics[0].error_code == errors_pb2.REQUEST_TIMED_OUT
    await cluster.kill(1)
    cluster.silent.clear()
    await cluster.at_rest()
    assert "orders" not in cluster.image.topics
    assert cluster.brokers[3].replicas.stopped[-1].header.controller_epoch == 2


async def test_e1_first_claim_wins_and_the_others_know_the_winner() -> None:
    cluster = Cluster()
    for broker_id in (1, 2, 3):
        await cluster.start_broker(broker_id)
    await cluster.at_rest()
    holder = cluster.image.controller
    assert holder is not None
    assert (holder.broker_id, holder.timestamp_ms) == (1, 1_593_330_804_078)
    assert cluster.image.controller_epoch == 1
    assert len(cluster.controllers) == 1
    assert {one.follower.image.controller_id for one in cluster.brokers.values()} == {1}
    await cluster.stop()


async def test_e5_deleting_controller_by_hand_forces_an_election(cluster: Cluster) -> None:
    cluster.quorum.write(Operation(records=(ControllerRemoved(broker_id=NO_BROKER),)))
    await cluster.at_rest()
    assert cluster.image.controller_epoch == 2
    assert len(cluster.controllers) == 1


async def test_e5_the_office_is_handed_to_another_broker(cluster: Cluster) -> None:
    cluster.hand_over(1, 3)
    await cluster.at_rest()
    assert [one.broker_id for one in cluster.controllers] == [3]
    assert (await cluster.create_topic("orders", (2,))).error_code == errors_pb2.NONE


async def test_e3_a_refused_write_tells_a_controller_that_its_time_is_over(
    cluster: Cluster,
) -> None:
    """It has not seen the handover: its watch is behind."""
    deposed = cluster.active
    cluster.brokers[1].quorum.watch_may_go_on.clear()
    cluster.hand_over(1, 3)
    request = admin_pb2.CreateTopicsRequest(topics=[new_topic("orders", (2,))])
    answer = await deposed.create_topics(request)
    assert answer.error_code == errors_pb2.NOT_CONTROLLER
    assert cluster.brokers[1].controller is None
    assert "orders" not in cluster.image.topics


async def test_c4_validation_alone_changes_nothing(cluster: Cluster) -> None:
    request = admin_pb2.CreateTopicsRequest(
        topics=[new_topic("orders", (2,)), new_topic("bad name", (2,))], validate_only=True
    )
    offset = cluster.image.offset
    answer = await cluster.active.create_topics(request)
    assert [one.error_code for one in answer.topics] == [
        errors_pb2.NONE,
        errors_pb2.INVALID_TOPIC_EXCEPTION,
    ]
    assert {one.topic_id for one in answer.topics} == {b""}
    assert cluster.image.offset == offset


async def test_e4_a_controller_that_cannot_decide_gives_up_its_office(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = cluster.active
    monkeypatch.setattr(faulty, "_settle_brokers", lambda: 1 / 0)
    await cluster.create_topic("orders", (2, 3))
    await cluster.kill(2)
    await cluster.at_rest()
    assert cluster.image.controller_id == 3
    assert cluster.partition("orders").leader == 3


async def test_e4_a_controller_that_loses_its_session_stops_before_it_stands_again(
    cluster: Cluster,
) -> None:
    before = cluster.active
    cluster.quorum.expire(cluster.brokers[1].quorum.session_id)
    assert cluster.brokers[1].controller is None, "at once"
    await cluster.at_rest()
    assert cluster.image.controller_epoch == 2
    assert cluster.brokers[1].epoch == cluster.image.brokers[BrokerId(1)].epoch
    answer = await before.allocate_producer_ids(admin_pb2.AllocateProducerIdsRequest())
    assert answer.error_code == errors_pb2.NOT_CONTROLLER


async def test_e6_isr_changes_of_leaders_are_told_to_all(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    before = len(cluster.brokers[3].replicas.led)
    cluster.change_isr("orders", 0, isr=(2,))
    await cluster.at_rest()
    for broker in cluster.brokers.values():
        assert broker.cache.topics["orders"].partitions[0].isr == (2,)
    assert len(cluster.brokers[3].replicas.led) == before, "nobody has to lead or follow anew"


async def test_c1_a_failover_that_conflicts_with_the_leader_is_decided_again(
    cluster: Cluster,
) -> None:
    """The leader changes its ISR in the moment between the decision and the write."""
    await cluster.create_topic("orders", (3, 2, 1))
    controller = cluster.brokers[1]
    cluster.quorum.before_next(
        controller.quorum, lambda: cluster.change_isr("orders", 0, isr=(3, 1))
    )
    await cluster.kill(2)
    await cluster.at_rest()
    after = cluster.partition("orders")
    assert (after.leader, after.isr) == (3, (3, 1))
    assert (after.controller_id, after.controller_epoch) == (1, 1)


async def test_c3_c19_ten_thousand_leaders_move_in_few_transactions_and_one_request_each(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("wide", *[(2, 3, 1)] * 10_000)
    log_before = len(cluster.quorum.log)
    cluster.sent.clear()
    await cluster.kill(2)
    await cluster.at_rest()
    changes = [
        transaction
        for _, transaction in cluster.quorum.log[log_before:]
        if any(isinstance(r, PartitionChange) for op in transaction.operations for r in op.records)
    ]
    assert len(changes) <= 2
    assert all(one.leader == 3 for one in cluster.image.topics["wide"].partitions)
    led = cluster.requests(ControlKind.LEADER_AND_ISR)
    assert sorted(one.to for one in led) == [1, 3]
    assert all(len(one.request.topics[0].partitions) == 10_000 for one in led)  # type: ignore[union-attr]
    assert led[0].body is led[1].body, "equal requests share their bytes"
    assert cluster.brokers[1].cache.topics["wide"].partitions[9_999].leader == 3


async def test_c17_an_election_goes_ahead_of_a_flood_of_creations(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    flood = admin_pb2.CreateTopicsRequest(
        topics=[new_topic(f"flood-{n}", *[(1, 3)] * 1_000) for n in range(20)]
    )
    creating = asyncio.create_task(cluster.active.create_topics(flood))
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
    deleting = asyncio.create_task(cluster.active.delete_topics(request))
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
    first = await cluster.active.allocate_producer_ids(ask)
    second = await cluster.active.allocate_producer_ids(ask)
    assert (first.first_producer_id, first.count) == (0, 1000)
    assert second.first_producer_id == 1000
    stale = admin_pb2.AllocateProducerIdsRequest(broker_id=2, broker_epoch=1)
    refused = await cluster.active.allocate_producer_ids(stale)
    assert refused.error_code == errors_pb2.STALE_BROKER_EPOCH


async def test_f6_without_a_quorum_a_creation_times_out_and_nothing_is_claimed(
    cluster: Cluster,
) -> None:
    cluster.quorum.available = False
    request = admin_pb2.CreateTopicsRequest(topics=[new_topic("orders", (1,))])
    (result,) = (await cluster.active.create_topics(request)).topics
    assert result.error_code == errors_pb2.REQUEST_TIMED_OUT
    cluster.quorum.available = True
    assert (await cluster.create_topic("orders", (1,))).error_code == errors_pb2.NONE


async def test_c2_a_failover_waits_for_the_quorum(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    cluster.quorum.lose_answers(cluster.brokers[1].quorum, 1)
    await cluster.kill(2)
    cluster.quorum.available = False
    await cluster.at_rest()
    cluster.quorum.available = True
    await cluster.at_rest()
    assert cluster.partition("orders").leader == 3
