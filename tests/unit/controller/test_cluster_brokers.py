"""A controller among brokers that die, bounce, return and stop (C1 to C3, B3)."""

from unittest.mock import Mock

import pytest

from quorate.broker.controller.channels.control_transport import ControlKind
from quorate.broker.controller.managers import broker_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.common.types import BrokerId, TopicPartition
from quorate.metadata_log.records import LostReplica, PartitionChange, ReplicasLost
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.metadata import MetadataLogBuilder, session_of, topic_id_of
from tests.unit.controller.cluster import Cluster


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
    assert first.is_init, "it may hold what was deleted while it was away"
    assert {one.topic: one.partitions[0].leader_epoch for one in first.topics} == {
        "orders": 1,
        "alone": 1,
    }
    assert cluster.brokers[2].cache.leader(TopicPartition("orders", 0)) == 3


async def test_c7_who_registers_again_without_a_restart_is_told_all_that_is_its_own(
    cluster: Cluster,
) -> None:
    """A session can be lost while a topic goes: nobody else tells of its removal any more."""
    await cluster.create_topic("orders", (2, 3))
    cluster.quorum.expire(cluster.brokers[2].quorum.session_id)
    await cluster.at_rest()
    told = cluster.brokers[2].replicas.led[-1]
    assert told.is_init
    assert [topic.topic for topic in told.topics] == ["orders"]


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


async def test_b3_scenario_11_the_old_incarnations_shutdown_request_is_refused(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (2, 3))
    old = cluster.brokers[2].epoch
    await cluster.bounce(2)
    await cluster.at_rest()
    answer = await cluster.active.controlled_shutdown(
        control_pb2.ControlledShutdownRequest(broker_id=2, broker_epoch=old)
    )
    assert answer.error_code == errors_pb2.STALE_BROKER_EPOCH


async def test_b3_scenario_11_leaders_move_before_a_broker_stops(cluster: Cluster) -> None:
    """Scenario 11."""
    await cluster.create_topic("orders", (2, 3), (2, 1), (3, 2))
    await cluster.create_topic("alone", (2,))
    answer = await cluster.active.controlled_shutdown(
        control_pb2.ControlledShutdownRequest(broker_id=2, broker_epoch=cluster.brokers[2].epoch)
    )
    assert answer.error_code == errors_pb2.NONE
    assert answer.remaining_partitions == 0, "a partition with no other replica cannot move"
    assert [one.leader for one in cluster.image.topics["orders"].partitions] == [3, 1, 3]
    assert [one.isr for one in cluster.image.topics["orders"].partitions] == [(3,), (1,), (3,)]
    assert (cluster.partition("alone").leader, cluster.partition("alone").isr) == (2, (2,))
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


async def test_rule_8_a_lost_replica_leaves_its_isr_and_the_others_stay(cluster: Cluster) -> None:
    """Where it was the only member, that one partition is offline until an operator decides."""
    await cluster.create_topic("damaged", (2,), (2,))
    damaged = cluster.image.topics["damaged"].topic_id
    cluster.lost_replicas = (LostReplica(topic_id=damaged, partition=1),)
    await cluster.bounce(2)
    await cluster.at_rest()
    assert cluster.image.brokers[BrokerId(2)].admitted
    whole, lost = cluster.partition("damaged", 0), cluster.partition("damaged", 1)
    assert (whole.leader, whole.isr) == (2, (2,))
    assert (lost.leader, lost.isr) == (-1, ())
    cluster.lost_replicas = ()
    await cluster.bounce(2)
    await cluster.at_rest()
    assert cluster.partition("damaged", 1).isr == (), "a later bounce does not forget the loss"
    cluster.set_topic_config("damaged", "unclean.leader.election.enable", "true")
    await cluster.at_rest()
    assert cluster.partition("damaged", 1).leader == 2, "the operator accepts the loss"


def test_rule_8_the_first_broker_back_does_not_lead_what_it_has_lost() -> None:
    """All brokers were down. The others of the ISR have the records, and lead when they come."""
    log = MetadataLogBuilder()
    for broker_id in (1, 2, 3, 4):
        log.start_broker(broker_id)
    log.elect_controller(4)
    log.create_topic("orders", (1, 2, 3))
    for broker_id in (1, 2, 3):
        log.stop_broker(broker_id)
    log.start_broker(1, incarnation=1)
    lost = LostReplica(topic_id=topic_id_of("orders"), partition=0)
    log.write(ReplicasLost(broker_id=BrokerId(1), session_id=session_of(1, 1), replicas=(lost,)))
    (change,) = broker_manager.leadership_changes(
        log.image,
        ControllerTenure(BrokerId(4), log.image.controller_epoch),
        broker_manager.liveness(log.image),
        unclean=lambda _: False,
    )
    (record,) = change.records
    assert isinstance(record, PartitionChange)
    assert (record.leader, record.isr) == (-1, (2, 3))


async def test_changed_configurations_are_looked_at_only_where_nobody_leads(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look for leaders costs what there is of partitions, and configurations change often."""
    await cluster.create_topic("orders", (2, 3))
    await cluster.create_topic("dead", (3,))
    reconsider_leadership = Mock(wraps=broker_manager.leadership_changes)
    monkeypatch.setattr(broker_manager, "leadership_changes", reconsider_leadership)
    cluster.set_topic_config("orders", "min.insync.replicas", "1")
    cluster.set_topic_config("dead", "min.insync.replicas", "1")
    await cluster.at_rest()
    assert not reconsider_leadership.called, "both have leaders"
    await cluster.kill(3)
    await cluster.at_rest()
    reconsider_leadership.reset_mock()
    cluster.set_topic_config("orders", "min.insync.replicas", "2")
    await cluster.at_rest()
    assert not reconsider_leadership.called
    cluster.set_topic_config("dead", "min.insync.replicas", "2")
    await cluster.at_rest()
    assert reconsider_leadership.called


async def test_c2_a_loss_that_was_accepted_before_is_decided_upon_once(cluster: Cluster) -> None:
    """The only replica comes back without its log, and the topic allows for that."""
    await cluster.create_topic("careless", (2,), unclean_leader_election_enable="true")
    cluster.log_may_be_lost = True
    await cluster.bounce(2)
    await cluster.at_rest()
    partition = cluster.partition("careless")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert cluster.image.brokers[BrokerId(2)].admitted
    await cluster.at_rest()
    assert cluster.partition("careless") is partition


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


async def test_c2_a_failover_waits_for_the_quorum(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    cluster.quorum.lose_answers(cluster.brokers[1].quorum, 1)
    await cluster.kill(2)
    cluster.quorum.available = False
    await cluster.at_rest()
    cluster.quorum.available = True
    await cluster.at_rest()
    assert cluster.partition("orders").leader == 3
