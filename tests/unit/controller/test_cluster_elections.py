"""A controller among brokers: elections on demand, and leadership that goes back by itself."""

import asyncio

import pytest

from quorate.broker.changes.table import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
)
from quorate.broker.controller.requests import topic_requests
from quorate.broker.controller.requests.leader_elections import RECOVERY_LOOK_INTERVAL_S
from quorate.common.types import BrokerId, LeaderEpoch, TopicPartition
from quorate.metadata_log.records import ControllerEpochIs, Operation, PartitionChange
from quorate_proto.v1 import admin_pb2, control_pb2, errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.controller.cluster import NO_CONTEXT, Cluster, new_topic


def election(
    *wanted: tuple[str, int], unclean: bool = False, everything: bool = False
) -> admin_pb2.ElectLeadersRequest:
    return admin_pb2.ElectLeadersRequest(
        election_type=admin_pb2.ELECTION_UNCLEAN if unclean else admin_pb2.ELECTION_PREFERRED,
        topics=[admin_pb2.TopicPartitions(topic=name, partitions=[n]) for name, n in wanted],
        all_partitions=everything,
    )


async def code(cluster: Cluster, request: admin_pb2.ElectLeadersRequest) -> int:
    (result,) = (await cluster.active.perform(ELECT_LEADERS, request)).partitions
    return result.error_code


async def let_2_lose_its_leaderships(cluster: Cluster) -> None:
    """Broker 2 bounces and is back in every ISR; broker 3 leads what preferred 2."""
    await cluster.bounce(2)
    await cluster.at_rest()
    for topic in cluster.image.topics.values():
        for number, partition in enumerate(topic.partitions):
            if partition.leader == 3 and partition.replicas[0] == 2:
                cluster.change_isr(topic.name, number, (3, 2))
    await cluster.at_rest()


def let_all_be_in_sync(cluster: Cluster) -> None:
    """Every live replica of topic "orders" is in its ISR."""
    for number, partition in enumerate(cluster.image.topics["orders"].partitions):
        live = [one for one in partition.replicas if one in cluster.brokers]
        missing = [one for one in live if one not in partition.isr]
        if missing:
            cluster.change_isr("orders", number, (*partition.isr, *missing))


async def test_c2_scenario_7_preferred_and_unclean_elections_after_all_have_died() -> None:
    cluster = Cluster()
    await cluster.start_brokers(4, 1, 2, 3)
    await cluster.create_topic("orders", (1, 2, 3))
    for broker_id in (2, 3, 1):
        await cluster.kill(broker_id)
        await cluster.at_rest()
    offline = cluster.partition("orders")
    assert (offline.leader, offline.isr) == (-1, (1,))
    await cluster.start_broker(2)
    await cluster.at_rest()
    refused = await code(cluster, election(("orders", 0)))
    assert refused == errors_pb2.PREFERRED_LEADER_NOT_AVAILABLE
    assert await code(cluster, election(("orders", 0), unclean=True)) == errors_pb2.NONE
    back = cluster.partition("orders")
    assert (back.leader, back.isr, back.leader_epoch) == (2, (2,), offline.leader_epoch + 1)
    assert cluster.brokers[2].replicas.led[-1].topics[0].partitions[0].leader == 2, "told already"
    await cluster.stop()


async def test_c2_a_preferred_election_of_everything_names_what_was_needed(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (2, 3), (3, 2), (2, 3))
    await let_2_lose_its_leaderships(cluster)
    response = await cluster.active.perform(ELECT_LEADERS, election(everything=True))
    assert [(one.topic, one.partition) for one in response.partitions] == [
        ("orders", 0),
        ("orders", 2),
    ]
    assert {one.error_code for one in response.partitions} == {errors_pb2.NONE}
    assert [one.leader for one in cluster.image.topics["orders"].partitions] == [2, 3, 2]
    assert cluster.brokers[3].cache.leader(TopicPartition("orders", 0)) == 2
    again = await cluster.active.perform(ELECT_LEADERS, election(everything=True))
    assert not again.partitions


async def test_c2_an_isr_change_that_gets_in_between_is_decided_again(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3, 1))
    await let_2_lose_its_leaderships(cluster)
    controller = cluster.brokers[1].quorum
    cluster.quorum.before_next(controller, lambda: cluster.change_isr("orders", 0, (3, 2)))
    assert await code(cluster, election(("orders", 0))) == errors_pb2.NONE
    after = cluster.partition("orders")
    assert (after.leader, after.isr) == (2, (3, 2)), "the ISR is the one that the leader wrote"


async def test_c2_an_election_on_request_waits_for_one_creation_and_not_for_all(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (2, 3))
    await let_2_lose_its_leaderships(cluster)
    cluster.quorum.latency_s = 1.0
    creations = [
        asyncio.ensure_future(
            cluster.active.perform(
                CREATE_TOPICS,
                admin_pb2.CreateTopicsRequest(topics=[new_topic(f"storm-{number}", (1, 2))]),
            )
        )
        for number in range(5)
    ]
    await pass_time(0.5)
    assert await code(cluster, election(("orders", 0))) == errors_pb2.NONE
    assert cluster.partition("orders").leader == 2
    assert sum(name.startswith("storm-") for name in cluster.image.topics) <= 2
    await asyncio.gather(*creations)


async def test_c2_an_election_on_request_waits_for_one_piece_of_a_deletion(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_requests, "PIECE_PARTITIONS", 2)
    names = [f"old-{number}" for number in range(6)]
    for name in names:
        await cluster.create_topic(name, (1, 2))
    await cluster.create_topic("orders", (2, 3))
    await let_2_lose_its_leaderships(cluster)
    cluster.quorum.latency_s = 1.0
    by_name, by_id = names[:5], [cluster.image.topics[names[5]].topic_id]
    deletion = asyncio.ensure_future(
        cluster.active.perform(
            DELETE_TOPICS,
            admin_pb2.DeleteTopicsRequest(context=NO_CONTEXT, names=by_name, topic_ids=by_id),
        )
    )
    await pass_time(0.5)
    assert await code(cluster, election(("orders", 0))) == errors_pb2.NONE
    assert len(cluster.image.deletions) <= 4, "two pieces at most"
    assert [one.name for one in (await deletion).topics] == names
    await cluster.at_rest()
    assert set(cluster.image.topics) == {"orders"}


async def test_c2_a_preferred_leader_lost_meanwhile_is_not_elected(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3, 1))
    await let_2_lose_its_leaderships(cluster)
    controller = cluster.brokers[1].quorum
    cluster.quorum.before_next(controller, lambda: cluster.change_isr("orders", 0, (3,)))
    refused = await code(cluster, election(("orders", 0)))
    assert refused == errors_pb2.PREFERRED_LEADER_NOT_AVAILABLE
    assert cluster.partition("orders").leader == 3


async def test_c2_a_partition_named_twice_has_one_answer(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    request = election(("orders", 0), ("orders", 0))
    assert await code(cluster, request) == errors_pb2.ELECTION_NOT_NEEDED


async def test_f6_without_a_quorum_an_election_times_out(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3, 1))
    await let_2_lose_its_leaderships(cluster)
    cluster.quorum.available = False
    assert await code(cluster, election(("orders", 0))) == errors_pb2.REQUEST_TIMED_OUT


async def test_f2_who_is_not_the_controller_elects_nobody(cluster: Cluster) -> None:
    answer = await cluster.brokers[2].admin.perform(
        ELECT_LEADERS, election(everything=True), NO_CONTEXT
    )
    assert answer.error_code == errors_pb2.NOT_CONTROLLER


def balancing(**settings: object) -> Cluster:
    values: dict[str, object] = {
        "auto.leader.rebalance.enable": True,
        "leader.imbalance.check.interval.seconds": 30,
    }
    return Cluster(**{**values, **settings})


async def test_c2_leadership_goes_back_by_itself_above_the_imbalance() -> None:
    cluster = balancing()
    await cluster.start_brokers(1, 2, 3)
    await cluster.create_topic("orders", *[(2, 3)] * 3, *[(3, 2)] * 3)
    await let_2_lose_its_leaderships(cluster)
    assert {one.leader for one in cluster.image.topics["orders"].partitions} == {3}
    await cluster.when(lambda: cluster.partition("orders", 2).leader == 2)
    assert [one.leader for one in cluster.image.topics["orders"].partitions] == [2, 2, 2, 3, 3, 3]
    await cluster.at_rest()
    assert cluster.brokers[2].replicas.led[-1].topics[0].partitions[0].leader == 2
    await cluster.stop()


async def test_c2_leadership_goes_back_soon_after_brokers_are_back() -> None:
    cluster = balancing(**{"leader.imbalance.check.interval.seconds": 300})
    await cluster.start_brokers(1, 2, 3)
    await cluster.create_topic("orders", *[(2, 3)] * 3, *[(3, 2)] * 3)
    await let_2_lose_its_leaderships(cluster)
    let_all_be_in_sync(cluster)
    began_s = asyncio.get_running_loop().time()
    await cluster.when(lambda: cluster.partition("orders", 2).leader == 2)
    assert asyncio.get_running_loop().time() - began_s < 3 * RECOVERY_LOOK_INTERVAL_S
    await cluster.stop()


async def test_c2_leadership_does_not_go_back_while_the_controller_does_not_reach_everybody() -> (
    None
):
    """A controller that is cut off would move leadership to brokers that it cannot tell of it."""
    cluster = balancing(**{"leader.imbalance.check.interval.seconds": 300})
    await cluster.start_brokers(1, 2, 3)
    await cluster.create_topic("orders", *[(2, 3)] * 3, *[(3, 2)] * 3)
    await let_2_lose_its_leaderships(cluster)
    cut = frozenset({BrokerId(3), cluster.image.controller_id})
    cluster.cut_links.add(cut)
    let_all_be_in_sync(cluster)
    await pass_time(30)
    assert {one.leader for one in cluster.image.topics["orders"].partitions} == {3}
    cluster.cut_links.discard(cut)
    began_s = asyncio.get_running_loop().time()
    await cluster.when(lambda: cluster.partition("orders", 2).leader == 2)
    assert asyncio.get_running_loop().time() - began_s < 3 * RECOVERY_LOOK_INTERVAL_S
    await cluster.stop()


async def test_c2_while_a_replica_is_absent_leadership_waits_for_the_interval() -> None:
    cluster = balancing(**{"leader.imbalance.check.interval.seconds": 50})
    began_s = asyncio.get_running_loop().time()
    await cluster.start_brokers(1, 2, 3, 4)
    await cluster.create_topic("orders", *[(2, 3)] * 3, *[(3, 2)] * 3, (4, 3))
    await cluster.kill(4)
    await let_2_lose_its_leaderships(cluster)
    let_all_be_in_sync(cluster)
    await cluster.when(lambda: cluster.partition("orders", 2).leader == 2)
    assert asyncio.get_running_loop().time() - began_s > 30
    await cluster.stop()


async def test_c2_leadership_that_moves_without_a_broker_waits_for_the_interval() -> None:
    """Leadership that somebody moved by hand stays for a while."""
    cluster = balancing(**{"leader.imbalance.check.interval.seconds": 300})
    await cluster.start_brokers(1, 2, 3)
    await cluster.create_topic("orders", (2, 3))
    await pass_time(30)
    before = cluster.partition("orders")
    moved = PartitionChange(
        topic="orders",
        topic_id=cluster.image.topics["orders"].topic_id,
        partition=0,
        expected_version=before.version,
        leader=BrokerId(3),
        leader_epoch=LeaderEpoch(before.leader_epoch + 1),
        isr=before.isr,
        controller_id=cluster.image.controller_id,
        controller_epoch=cluster.image.controller_epoch,
    )
    held = ControllerEpochIs(controller_epoch=cluster.image.controller_epoch)
    assert cluster.quorum.write(Operation(records=(moved,), conditions=(held,))).ok
    await pass_time(60)
    assert cluster.partition("orders").leader == 3
    await cluster.stop()


async def test_c2_a_broker_that_stops_gets_no_leadership_back() -> None:
    cluster = balancing()
    await cluster.start_brokers(1, 2, 3)
    await cluster.create_topic("orders", (2, 3))
    await cluster.active.controlled_shutdown(
        control_pb2.ControlledShutdownRequest(broker_id=2, broker_epoch=cluster.brokers[2].epoch)
    )
    cluster.change_isr("orders", 0, (3, 2))
    for _ in range(100):
        await cluster.at_rest()
    assert cluster.partition("orders").leader == 3
    await cluster.stop()


async def test_f3_balancing_is_switched_on_and_hastened_while_the_controller_is_in_office() -> None:
    cluster = Cluster()
    await cluster.start_brokers(1, 2, 3)
    await cluster.create_topic("orders", (2, 3))
    await let_2_lose_its_leaderships(cluster)
    for _ in range(100):
        await cluster.at_rest()
    assert cluster.partition("orders").leader == 3
    await configure(cluster, "leader.imbalance.check.interval.seconds", "3600")
    await configure(cluster, "auto.leader.rebalance.enable", "true")
    began_s = asyncio.get_running_loop().time()
    await configure(cluster, "leader.imbalance.check.interval.seconds", "5")
    await cluster.when(lambda: cluster.partition("orders").leader == 2)
    assert asyncio.get_running_loop().time() - began_s < 60
    await cluster.stop()


async def test_f3_new_topics_take_what_is_configured_now(cluster: Cluster) -> None:
    await configure(cluster, "num.partitions", "3")
    await configure(cluster, "default.replication.factor", "2")
    await cluster.active.perform(
        CREATE_TOPICS,
        admin_pb2.CreateTopicsRequest(
            topics=[admin_pb2.NewTopic(name="new", num_partitions=-1, replication_factor=-1)]
        ),
    )
    assert [len(one.replicas) for one in cluster.image.topics["new"].partitions] == [2, 2, 2]
    await configure(cluster, "delete.topic.enable", "false")
    answer = await cluster.active.perform(
        DELETE_TOPICS, admin_pb2.DeleteTopicsRequest(names=["new"])
    )
    assert [one.error_code for one in answer.topics] == [errors_pb2.TOPIC_DELETION_DISABLED]


async def test_c2_f3_an_unclean_election_that_is_allowed_now_happens_now(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    cluster.change_isr("orders", 0, (2,))
    await cluster.kill(2)
    await cluster.at_rest()
    assert cluster.partition("orders").leader == -1
    await configure(cluster, "unclean.leader.election.enable", "true")
    await cluster.when(lambda: cluster.partition("orders").leader == 3)


async def configure(cluster: Cluster, key: str, value: str) -> None:
    """For all brokers."""
    change = admin_pb2.ConfigChange(entity_type="broker", values={key: value})
    request = admin_pb2.IncrementalAlterConfigsRequest(changes=[change])
    (result,) = (await cluster.active.perform(INCREMENTAL_ALTER_CONFIGS, request)).results
    assert result.error_code == errors_pb2.NONE, result.error_message


async def test_e4_a_controller_that_left_office_balances_no_more() -> None:
    cluster = balancing()
    await cluster.start_brokers(1, 2, 3)
    await cluster.active.resign()
    await cluster.when(lambda: cluster.controller is not None)
    await cluster.at_rest()
    balancers = [task for task in asyncio.all_tasks() if task.get_name() == "leader-balance"]
    assert len(balancers) == 1, "that of the controller in office"
    await cluster.stop()
