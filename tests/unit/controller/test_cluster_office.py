"""A controller among brokers: elected, deposed, handed over, failing (E1 to E5)."""

import asyncio

import pytest

from quorate.broker.changes.table import ALLOCATE_PRODUCER_IDS, CREATE_TOPICS, DELETE_TOPICS
from quorate.broker.controller.channels.control_transport import ControlKind
from quorate.common.types import NO_BROKER, BrokerId, ControllerEpoch
from quorate.metadata_log.records import ControllerRemoved, Operation
from quorate_proto.v1 import admin_pb2, control_pb2, errors_pb2
from tests.unit.controller.cluster import Cluster, new_topic


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
    answer = await before.perform(
        CREATE_TOPICS, admin_pb2.CreateTopicsRequest(topics=[new_topic("late", (1,))])
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


async def test_e5_the_controller_hands_its_office_to_a_broker_that_is_named(
    cluster: Cluster,
) -> None:
    deposed = cluster.active
    answer = await deposed.hand_over(admin_pb2.MoveControllerRequest(broker_id=3))
    assert (answer.error_code, answer.controller_epoch) == (errors_pb2.NONE, 2)
    await cluster.when(lambda: cluster.brokers[3].controller is not None)
    assert (cluster.image.controller_id, cluster.image.controller_epoch) == (3, 2)
    assert cluster.brokers[1].controller is None
    assert cluster.image.controller is not None
    assert cluster.image.controller.session_id == cluster.brokers[3].quorum.session_id


async def test_e5_only_a_live_broker_can_be_handed_the_office(cluster: Cluster) -> None:
    answer = await cluster.active.hand_over(admin_pb2.MoveControllerRequest(broker_id=9))
    assert answer.error_code == errors_pb2.BROKER_ID_NOT_REGISTERED
    assert answer.error_message == "broker 9 is not registered; live brokers: 1, 2, 3"
    itself = await cluster.active.hand_over(admin_pb2.MoveControllerRequest(broker_id=1))
    assert (itself.error_code, itself.controller_epoch) == (errors_pb2.NONE, 1)
    assert cluster.image.controller_epoch == 1, "nothing has happened"


async def test_e5_a_broker_whose_session_ends_meanwhile_is_not_handed_the_office(
    cluster: Cluster,
) -> None:
    session = cluster.brokers[3].quorum.session_id
    controller = cluster.brokers[1]
    cluster.quorum.before_next(controller.quorum, lambda: cluster.quorum.expire(session))
    answer = await cluster.active.hand_over(admin_pb2.MoveControllerRequest(broker_id=3))
    assert answer.error_code == errors_pb2.STALE_BROKER_EPOCH
    assert "is closed" in answer.error_message
    assert controller.controller is not None, "and the office is not lost over it"


async def test_e4_a_controller_that_stood_still_gives_up_its_office(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SIGSTOP and SIGCONT: the clock jumps while nothing runs."""
    stalled, loop = cluster.active, asyncio.get_running_loop()
    stalled._guard.close()  # Its beat comes last in the loop.
    now_s = loop.time
    written = cluster.image.offset
    monkeypatch.setattr(loop, "time", lambda: now_s() + 6.1)
    answer = await stalled.perform(
        CREATE_TOPICS, admin_pb2.CreateTopicsRequest(topics=[new_topic("orders", (2,))])
    )
    assert answer.error_code == errors_pb2.NOT_CONTROLLER
    assert cluster.brokers[1].controller is None
    assert cluster.image.offset == written, "it did not write"
    await cluster.at_rest()
    assert cluster.image.controller_epoch == 2


async def test_e4_a_controller_that_stood_still_says_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At a level at which it sends ISR changes, which it has not written."""
    cluster = Cluster(**{"inter.broker.protocol.version": 2})
    await cluster.start_brokers(1, 2, 3)
    await cluster.create_topic("orders", (1, 2, 3))
    cluster.active._guard.close()  # Its beat comes last in the loop.
    loop = asyncio.get_running_loop()
    now_s = loop.time
    cluster.sent.clear()
    cluster.change_isr("orders", 0, (1, 2))
    monkeypatch.setattr(loop, "time", lambda: now_s() + 6.1)
    await cluster.when(lambda: cluster.image.controller_epoch == 2)
    await cluster.at_rest()
    assert cluster.sent
    assert {one.request.header.controller_epoch for one in cluster.sent} == {2}
    await cluster.stop()


async def test_e3_a_refused_write_tells_a_controller_that_its_time_is_over(
    cluster: Cluster,
) -> None:
    """It has not seen the handover: its watch is behind."""
    deposed = cluster.active
    cluster.brokers[1].quorum.watch_may_go_on.clear()
    cluster.hand_over(1, 3)
    request = admin_pb2.CreateTopicsRequest(topics=[new_topic("orders", (2,))])
    answer = await deposed.perform(CREATE_TOPICS, request)
    assert answer.error_code == errors_pb2.NOT_CONTROLLER
    assert cluster.brokers[1].controller is None
    assert "orders" not in cluster.image.topics


async def test_e4_a_controller_that_cannot_decide_gives_up_its_office(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = cluster.active
    monkeypatch.setattr(faulty._brokers, "_settle", lambda: 1 / 0)
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
    answer = await before.perform(ALLOCATE_PRODUCER_IDS, admin_pb2.AllocateProducerIdsRequest())
    assert answer.error_code == errors_pb2.NOT_CONTROLLER


async def test_e4_a_request_that_outlives_the_tenure_is_not_told_of(cluster: Cluster) -> None:
    """A deletion waits outside the queue; when it goes on, another controller is in office."""
    await cluster.create_topic("orders", (1, 2, 3))
    before = cluster.active
    cluster.slow[2, ControlKind.STOP_REPLICA] = gate = asyncio.Event()
    deletion = asyncio.create_task(
        before.perform(DELETE_TOPICS, admin_pb2.DeleteTopicsRequest(names=["orders"]))
    )
    await cluster.when(lambda: cluster.requests(ControlKind.STOP_REPLICA, 2))
    cluster.hand_over(1, 3)
    await cluster.when(lambda: cluster.brokers[3].controller is not None)
    gate.set()
    cluster.sent.clear()
    await deletion
    await cluster.at_rest()
    assert {one.request.header.controller_epoch for one in cluster.sent} <= {2}
    lanes = [one for one in asyncio.all_tasks() if one.get_name().startswith("StopReplica-to-")]
    assert len(lanes) == 3, "those of the controller in office"


async def test_e3_a_broker_that_knows_a_later_controller_deposes_this_one(cluster: Cluster) -> None:
    controller = cluster.active
    controller.observe_controller_epoch(ControllerEpoch(1))
    assert cluster.controller is not None, "its own epoch is no news"
    controller.observe_controller_epoch(ControllerEpoch(2))
    assert cluster.brokers[1].controller is None
    await cluster.at_rest()
    assert cluster.image.controller_epoch == 2


async def test_e4_a_controller_that_leaves_says_nothing_more_while_its_end_is_waited_for(
    cluster: Cluster,
) -> None:
    """Its lanes would go on to try again what brokers refuse, until the quorum answers."""
    cluster.silent.add(3)
    await cluster.create_topic("orders", (2, 3))
    leaving, elector = cluster.active, cluster.brokers[1].elector
    elector._on_session_lost()
    assert elector.active is None
    assert not leaving._channel_manager.channels
    sent = len(cluster.sent)
    cluster.silent.clear()
    await cluster.when(lambda: cluster.controller and cluster.active is not leaving)
    assert all(one.request.header.controller_epoch > 1 for one in cluster.sent[sent:])
