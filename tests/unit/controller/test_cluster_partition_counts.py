"""A controller among brokers: partitions added and removed, and every step survives it (C14)."""

import asyncio
from collections.abc import Callable

import pytest

from quorate.broker.changes.table import CREATE_PARTITIONS, ELECT_LEADERS, REMOVE_PARTITIONS
from quorate.broker.controller.channels.control_transport import ControlKind
from quorate.common.types import TopicPartition
from quorate.metadata_log.records import Transaction
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.controller.cluster import NO_CONTEXT, Cluster
from tests.unit.controller.fake_broker import FakeBroker


def more(name: str, count: int, *assignments: tuple[int, ...]) -> admin_pb2.NewPartitions:
    return admin_pb2.NewPartitions(
        name=name,
        count=count,
        assignments=[admin_pb2.Replicas(broker_ids=ids) for ids in assignments],
    )


def adding(
    *topics: admin_pb2.NewPartitions, timeout_ms: int = 0, validate_only: bool = False
) -> admin_pb2.CreatePartitionsRequest:
    context = admin_pb2.RequestContext(timeout_ms=timeout_ms)
    return admin_pb2.CreatePartitionsRequest(
        context=context, topics=topics, validate_only=validate_only
    )


def removing(
    name: str, *partitions: int, timeout_ms: int = 0, validate_only: bool = False
) -> admin_pb2.RemovePartitionsRequest:
    return admin_pb2.RemovePartitionsRequest(
        context=admin_pb2.RequestContext(timeout_ms=timeout_ms),
        topics=[admin_pb2.TopicPartitions(topic=name, partitions=partitions)],
        validate_only=validate_only,
    )


async def add(cluster: Cluster, *topics: admin_pb2.NewPartitions) -> list[int]:
    response = await cluster.active.perform(CREATE_PARTITIONS, adding(*topics))
    assert response.error_code == errors_pb2.NONE
    return [one.error_code for one in response.topics]


async def remove(cluster: Cluster, name: str, *partitions: int) -> int:
    (result,) = (
        await cluster.active.perform(REMOVE_PARTITIONS, removing(name, *partitions))
    ).topics
    return result.error_code


def count(cluster: Cluster, name: str) -> int:
    return len(cluster.image.topics[name].partitions)


def stopped(broker: FakeBroker) -> list[tuple[int, int, bool]]:
    """(partition, leader epoch, delete) of every StopReplica it got."""
    return [
        (one.partition, one.leader_epoch, one.delete_data)
        for request in broker.replicas.stopped
        for one in request.partitions
    ]


async def test_c14_added_partitions_are_led_and_told_when_it_is_answered(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (2, 3))
    assert await add(cluster, more("orders", 3, (3, 2), (2, 3))) == [errors_pb2.NONE]
    assert [one.leader for one in cluster.image.topics["orders"].partitions] == [2, 3, 2]
    assert not cluster.image.additions
    for broker_id in (2, 3):
        told = cluster.brokers[broker_id].replicas.led[-1].topics[0]
        assert [one.partition for one in told.partitions] == [1, 2]
    for broker in cluster.brokers.values():
        assert broker.cache.leader(TopicPartition("orders", 1)) == 3


async def test_c14_scenario_9_one_bad_topic_never_stops_its_siblings(cluster: Cluster) -> None:
    await cluster.create_topic("four", *[(1, 2)] * 4)
    await cluster.create_topic("two", *[(1, 2)] * 2)
    await cluster.create_topic("good", (1, 2))
    codes = await add(
        cluster,
        more("four", 3),
        more("two", 2),
        more("none", 2),
        more("good", 2),
    )
    assert codes == [
        errors_pb2.INVALID_PARTITIONS,
        errors_pb2.INVALID_PARTITIONS,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.NONE,
    ]
    assert await add(cluster, more("two", 4, (1, 2))) == [errors_pb2.INVALID_REPLICA_ASSIGNMENT]
    assert count(cluster, "good") == 2


async def test_c14_an_addition_is_answered_once_the_brokers_know_of_it(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (2, 3))
    gate = asyncio.Event()
    cluster.slow[3, ControlKind.LEADER_AND_ISR] = gate
    adding_them = asyncio.create_task(add(cluster, more("orders", 2)))
    await cluster.when(lambda: count(cluster, "orders") == 2)
    await pass_time(0.5)
    assert not adding_them.done()
    gate.set()
    assert await adding_them == [errors_pb2.NONE]


async def test_c14_validation_alone_changes_nothing(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 1))
    offset = cluster.image.offset
    added = await cluster.active.perform(
        CREATE_PARTITIONS, adding(more("orders", 5), validate_only=True)
    )
    removed = await cluster.active.perform(
        REMOVE_PARTITIONS, removing("orders", 1, validate_only=True)
    )
    assert [one.error_code for one in [*added.topics, *removed.topics]] == [errors_pb2.NONE] * 2
    assert cluster.image.offset == offset


async def test_c14_removal_stops_the_live_replicas_then_the_topic_is_smaller(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 3), (3, 2))
    seen: list[int] = []
    gate = asyncio.Event()
    cluster.slow[3, ControlKind.STOP_REPLICA] = gate
    removal = asyncio.create_task(remove(cluster, "orders", 1, 2))
    await cluster.when(lambda: cluster.requests(ControlKind.STOP_REPLICA, to=3))
    seen.append(count(cluster, "orders"))
    gate.set()
    assert await removal == errors_pb2.NONE
    assert seen == [3], "the topic changes once its replicas are stopped"
    assert count(cluster, "orders") == 1
    assert not cluster.image.removals
    assert not stopped(cluster.brokers[1])
    for broker_id in (2, 3):
        assert sorted(stopped(cluster.brokers[broker_id])) == [(1, 0, True), (2, 0, True)]
    for broker in cluster.brokers.values():
        assert len(broker.cache.topics["orders"].partitions) == 1


async def test_c14_only_the_highest_partitions_can_be_removed(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 3), (3, 2))
    assert await remove(cluster, "orders", 0) == errors_pb2.INVALID_PARTITIONS
    assert await remove(cluster, "orders", 1) == errors_pb2.INVALID_PARTITIONS
    assert count(cluster, "orders") == 3
    assert not any(stopped(broker) for broker in cluster.brokers.values())


async def test_c14_a_silent_broker_does_not_hold_a_removal_up(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 3))
    cluster.silent.add(3)
    assert await remove(cluster, "orders", 1) == errors_pb2.NONE
    assert count(cluster, "orders") == 1
    cluster.silent.clear()
    await cluster.when(lambda: stopped(cluster.brokers[3]))


async def test_c7_c14_a_broker_that_comes_back_during_a_removal_is_told_all_that_stays(
    cluster: Cluster,
) -> None:
    """It was not there to be told to stop: what an INIT leaves out is set aside and deleted."""
    await cluster.create_topic("orders", (1, 3), (2, 3))
    gate = asyncio.Event()
    cluster.slow[2, ControlKind.STOP_REPLICA] = gate
    removal = asyncio.create_task(remove(cluster, "orders", 1))
    await cluster.when(lambda: cluster.image.removals)
    await cluster.bounce(3)
    await cluster.at_rest()
    assert count(cluster, "orders") == 2
    (first, *_) = cluster.brokers[3].replicas.led
    assert first.is_init
    assert [one.partition for one in first.topics[0].partitions] == [0]
    gate.set()
    assert await removal == errors_pb2.NONE


async def test_c14_what_is_being_removed_is_neither_led_nor_elected_nor_told(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 3))
    gate = asyncio.Event()
    cluster.slow[3, ControlKind.STOP_REPLICA] = gate
    removal = asyncio.create_task(remove(cluster, "orders", 1))
    await cluster.when(lambda: cluster.image.removals)
    await cluster.bounce(2)
    await cluster.at_rest()
    going = cluster.partition("orders", 1)
    assert (going.leader, going.leader_epoch) == (2, 0)
    told = [
        one.partition
        for request in cluster.brokers[2].replicas.led
        for topic in request.topics
        for one in topic.partitions
    ]
    assert told == [0]
    election = admin_pb2.ElectLeadersRequest(
        topics=[admin_pb2.TopicPartitions(topic="orders", partitions=[1])]
    )
    (result,) = (await cluster.active.perform(ELECT_LEADERS, election)).partitions
    assert result.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    gate.set()
    assert await removal == errors_pb2.NONE


async def test_c14_a_partition_added_again_goes_on_in_later_epochs(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 3))
    await cluster.bounce(2)
    await cluster.at_rest()
    ended = cluster.partition("orders", 1).leader_epoch
    assert ended == 1
    assert await remove(cluster, "orders", 1) == errors_pb2.NONE
    removed_at = cluster.image.topics["orders"].version
    assert await add(cluster, more("orders", 2, (3, 2))) == [errors_pb2.NONE]
    again = cluster.partition("orders", 1)
    assert (again.leader, again.leader_epoch) == (3, ended + 1)
    for broker_id in (2, 3):
        told = cluster.brokers[broker_id].replicas.led[-1].topics[0].partitions[0]
        assert (told.partition, told.leader_epoch, told.removed_at) == (1, ended + 1, removed_at)
    last = cluster.brokers[2].replicas.stopped[-1].partitions[0]
    assert last.leader_epoch <= ended, "a late stop must not hit the new partition"


async def test_c14_without_a_quorum_nothing_is_claimed(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 3))
    cluster.quorum.available = False
    assert await remove(cluster, "orders", 1) == errors_pb2.REQUEST_TIMED_OUT
    assert await add(cluster, more("orders", 3)) == [errors_pb2.REQUEST_TIMED_OUT]
    cluster.quorum.available = True
    await cluster.at_rest()
    assert count(cluster, "orders") == 2


async def test_c14_what_takes_longer_than_its_request_goes_on(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 3))
    cluster.silent.add(3)
    request = removing("orders", 1, timeout_ms=1_000)
    (result,) = (await cluster.active.perform(REMOVE_PARTITIONS, request)).topics
    assert result.error_code == errors_pb2.REQUEST_TIMED_OUT
    assert count(cluster, "orders") == 2
    await cluster.when(lambda: count(cluster, "orders") == 1)


async def test_c14_what_the_quorum_was_away_for_is_done_when_it_is_back(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 3))
    gate = asyncio.Event()
    cluster.slow[3, ControlKind.STOP_REPLICA] = gate
    removal = asyncio.create_task(remove(cluster, "orders", 1))
    await cluster.when(lambda: cluster.image.removals)
    cluster.quorum.available = False
    gate.set()
    await cluster.at_rest()
    assert count(cluster, "orders") == 2
    cluster.quorum.available = True
    assert await removal == errors_pb2.NONE
    assert count(cluster, "orders") == 1
    assert cluster.image.controller_epoch == 1, "it took no other controller"


async def test_c14_a_removal_that_tries_again_does_not_end_the_next_one(cluster: Cluster) -> None:
    """Its answer was lost, the topic's next removal is pending, and its replicas still serve."""
    await cluster.create_topic("orders", (1, 2), (2, 3), (2, 3))
    controller = cluster.brokers[1].quorum

    def lose_the_next_answer() -> None:
        asyncio.get_running_loop().call_soon(cluster.quorum.lose_answers, controller, 1)

    cluster.quorum.before_next(controller, lose_the_next_answer)
    removal = asyncio.create_task(remove(cluster, "orders", 2))
    await cluster.when(lambda: count(cluster, "orders") == 2)
    cluster.slow[3, ControlKind.STOP_REPLICA] = asyncio.Event()
    request = removing("orders", 1, timeout_ms=1_000)
    (result,) = (await cluster.active.perform(REMOVE_PARTITIONS, request)).topics
    assert result.error_code == errors_pb2.REQUEST_TIMED_OUT
    assert count(cluster, "orders") == 2
    cluster.slow.pop((3, ControlKind.STOP_REPLICA)).set()
    await removal
    await cluster.when(lambda: count(cluster, "orders") == 1)


async def test_f2_who_is_not_the_controller_changes_no_topic(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 3))
    other = cluster.brokers[2].admin
    added = await other.perform(CREATE_PARTITIONS, adding(more("orders", 3)), NO_CONTEXT)
    removed = await other.perform(REMOVE_PARTITIONS, removing("orders", 1), NO_CONTEXT)
    assert (added.error_code, removed.error_code) == (errors_pb2.NOT_CONTROLLER,) * 2


# --- the controller dies at every step ------------------------------------------------------------


class Crash:
    """Kills the controller's process when it is about to write, or has just written.

    ``transaction``: which one of those that follow, counted from 0. ``applied``: the transaction
    still takes effect, and the controller never learns of it.
    """

    def __init__(self, cluster: Cluster, transaction: int, *, applied: bool) -> None:
        self.happened = False
        self._cluster = cluster
        self._left = transaction
        self._applied = applied
        broker = cluster.controller
        assert broker is not None
        self._client = broker.quorum
        self._apply: Callable[[Transaction], object] = cluster.quorum.apply
        self._watch()

    def _watch(self) -> None:
        self._cluster.quorum.before_next(self._client, self._before)

    def _before(self) -> None:
        if self._left > 0:
            self._left -= 1
            asyncio.get_running_loop().call_soon(self._watch)
            return
        self.happened = True
        if self._applied:
            self._cluster.quorum.lose_answers(self._client, 1)
            asyncio.get_running_loop().call_soon(self._kill)
        else:
            self._kill()

    def _kill(self) -> None:
        """Its session is gone, so nothing more of it is accepted."""
        (broker_id,) = (
            number for number, one in self._cluster.brokers.items() if one.quorum is self._client
        )
        asyncio.get_running_loop().create_task(self._cluster.kill(broker_id))
        self._cluster.quorum.expire(self._client.session_id, tell=False)


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("transaction", range(3))
async def test_c9_c14_an_addition_survives_its_controller_at_every_step(
    cluster: Cluster, transaction: int, applied: bool
) -> None:
    await cluster.create_topic("orders", (2, 3))
    crash = Crash(cluster, transaction, applied=applied)
    asking = asyncio.create_task(
        cluster.active.perform(CREATE_PARTITIONS, adding(more("orders", 3, (3, 2), (2, 3))))
    )
    await cluster.at_rest()
    assert crash.happened == (transaction < 2), "two transactions: accepted, done"
    await cluster.when(lambda: cluster.controller is not None)
    await cluster.at_rest()
    assert not cluster.image.additions, "what was pending is done"
    accepted = transaction > 0 or applied
    assert count(cluster, "orders") == (3 if accepted else 1)
    if accepted:
        assert [one.leader for one in cluster.image.topics["orders"].partitions] == [2, 3, 2]
        for broker_id in (2, 3):
            cache = cluster.brokers[broker_id].cache
            assert cache.leader(TopicPartition("orders", 1)) == 3
            led = [
                one.partition
                for request in cluster.brokers[broker_id].replicas.led
                for topic in request.topics
                for one in topic.partitions
            ]
            assert {0, 1, 2} <= set(led)
    asking.cancel()


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("transaction", range(3))
async def test_c9_c14_a_removal_survives_its_controller_at_every_step(
    cluster: Cluster, transaction: int, applied: bool
) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 3), (3, 2))
    crash = Crash(cluster, transaction, applied=applied)
    asking = asyncio.create_task(
        cluster.active.perform(REMOVE_PARTITIONS, removing("orders", 1, 2))
    )
    await cluster.at_rest()
    assert crash.happened == (transaction < 2), "two transactions: accepted, done"
    await cluster.when(lambda: cluster.controller is not None)
    await cluster.at_rest()
    assert not cluster.image.removals, "what was pending is done"
    accepted = transaction > 0 or applied
    assert count(cluster, "orders") == (1 if accepted else 3)
    for broker_id in (2, 3):
        partitions = cluster.brokers[broker_id].cache.topics["orders"].partitions
        assert len(partitions) == (1 if accepted else 3)
        if accepted:
            numbers = {number for number, *_ in stopped(cluster.brokers[broker_id])}
            assert numbers == {1, 2}
    asking.cancel()


async def test_c9_c14_a_removal_whose_stops_got_nowhere_is_carried_out_by_the_next_controller(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 3))
    cluster.silent.add(3)
    request = removing("orders", 1, timeout_ms=1_000)
    (result,) = (await cluster.active.perform(REMOVE_PARTITIONS, request)).topics
    assert result.error_code == errors_pb2.REQUEST_TIMED_OUT
    await cluster.kill(1)
    cluster.silent.clear()
    await cluster.at_rest()
    assert count(cluster, "orders") == 1
    assert cluster.brokers[3].replicas.stopped[-1].header.controller_epoch == 2


async def test_c14_a_lost_answer_of_the_quorum_changes_nothing(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2), (2, 3))
    controller = cluster.brokers[1].quorum
    for lost in (1, 2):
        cluster.quorum.lose_answers(controller, lost)
        await add(cluster, more("orders", 3))
        await cluster.at_rest()
        assert count(cluster, "orders") == 3
        cluster.quorum.lose_answers(controller, lost)
        await remove(cluster, "orders", 2)
        await cluster.at_rest()
        assert count(cluster, "orders") == 2
        assert not cluster.image.removals
        assert not cluster.image.additions
