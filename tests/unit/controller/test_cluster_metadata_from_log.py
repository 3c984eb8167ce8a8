"""A controller at inter_broker_protocol 3 says how new the metadata is, not what it is."""

import asyncio

import pytest

from quorate.broker.changes.table import UPDATE_FEATURES
from quorate.broker.controller.channels.control_transport import ControlKind
from quorate.common.types import TopicPartition
from quorate.metadata_log.image import INTER_BROKER_PROTOCOL
from quorate_proto.v1 import admin_pb2
from tests.support.virtual_time import pass_time
from tests.unit.controller.cluster import Cluster

ORDERS = TopicPartition("orders", 0)
CONSTANT_BYTES = 64


async def raise_or_lower(cluster: Cluster, level: int) -> None:
    update = admin_pb2.FeatureUpdate(name=INTER_BROKER_PROTOCOL, level=level, allow_downgrade=True)
    answer = await cluster.active.perform(
        UPDATE_FEATURES, admin_pb2.UpdateFeaturesRequest(updates=[update])
    )
    assert answer.results[0].error_code == 0


async def test_b1_c9_a_new_controller_sends_as_much_whatever_the_cluster_holds(
    cluster: Cluster,
) -> None:
    for number in range(20):
        await cluster.create_topic(f"topic-{number}", *[(1, 2, 3)] * 10)
    cluster.sent.clear()
    await cluster.active.resign()
    await cluster.at_rest()
    inits = [one for one in cluster.requests(ControlKind.LEADER_AND_ISR) if one.request.is_init]  # type: ignore[union-attr]
    updates = cluster.requests(ControlKind.UPDATE_METADATA)
    for sent in (inits, updates):
        assert {one.to for one in sent} == {1, 2, 3}
        (body,) = {one.body for one in sent}
        assert len(body) <= CONSTANT_BYTES
    for broker in cluster.brokers.values():
        led = broker.replicas.led[-1]
        assert sum(len(topic.partitions) for topic in led.topics) == 200
        assert broker.cache.controller_id == cluster.image.controller_id


@pytest.mark.parametrize("level", [1, 2, 3])
async def test_e6_isr_changes_of_leaders_are_told_to_all(level: int) -> None:
    """By requests or, at level 3, by the metadata log alone."""
    cluster = Cluster(**{"inter.broker.protocol.version": level})
    await cluster.start_brokers(1, 2, 3)
    await cluster.create_topic("orders", (2, 3))
    before = len(cluster.brokers[3].replicas.led)
    cluster.sent.clear()
    cluster.change_isr("orders", 0, isr=(2,))
    await cluster.at_rest()
    assert len(cluster.sent) == (0 if level == 3 else 3)
    for broker in cluster.brokers.values():
        assert broker.cache.topics["orders"].partitions[0].isr == (2,)
    assert len(cluster.brokers[3].replicas.led) == before, "nobody has to lead or follow anew"
    await cluster.stop()


async def test_c19_a_change_is_answered_once_the_brokers_have_followed_the_log(
    cluster: Cluster,
) -> None:
    """Read-after-write through the controller, at whichever broker is read."""
    late = cluster.brokers[3]
    late.quorum.watch_may_go_on.clear()
    created = asyncio.create_task(cluster.create_topic("orders", (1, 2)))
    await pass_time(0.5)
    assert not created.done()
    late.quorum.watch_may_go_on.set()
    await created
    assert "orders" in late.cache.topics


async def test_c18_a_broker_that_does_not_follow_the_log_raises_an_alert(cluster: Cluster) -> None:
    cluster.brokers[3].quorum.watch_may_go_on.clear()
    await cluster.create_topic("orders", (1, 2))
    await pass_time(40)
    (alert,) = cluster.active.alerts
    assert alert == "UpdateMetadata to broker 3 was refused: REQUEST_TIMED_OUT"
    cluster.brokers[3].quorum.watch_may_go_on.set()
    await pass_time(40)
    assert not cluster.active.alerts


async def test_c21_a_leader_that_an_init_cannot_make_is_replaced(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (1, 2, 3))
    cluster.brokers[1].replicas.broken = {"orders"}
    await cluster.active.resign()
    await cluster.at_rest()
    assert cluster.partition("orders").leader != 1


@pytest.mark.parametrize("beginning", [2, 3])
async def test_b4_the_level_changes_while_metadata_changes(beginning: int) -> None:
    cluster = Cluster(**{"inter.broker.protocol.version": beginning})
    await cluster.start_brokers(1, 2, 3)
    cluster.configure()
    for broker_id in (1, 2, 3):
        await cluster.bounce(broker_id)
        await cluster.at_rest()
    levels = [3, 2, 3] if beginning == 2 else [2, 3, 2]
    for number, level in enumerate(levels):
        await cluster.create_topic(f"before-{number}", (1, 2, 3))
        changed = asyncio.create_task(raise_or_lower(cluster, level))
        await cluster.create_topic(f"during-{number}", (1, 2, 3))
        await changed
        await cluster.at_rest()
        for broker in cluster.brokers.values():
            assert set(broker.cache.topics) == set(cluster.image.topics)
            assert broker.cache.controller_id == cluster.image.controller_id
        cluster.change_isr(f"during-{number}", 0, (cluster.partition(f"during-{number}").leader,))
        await cluster.at_rest()
        for broker in cluster.brokers.values():
            partition = broker.cache.partition(TopicPartition(f"during-{number}", 0))
            assert partition is not None
            assert len(partition.isr) == 1
    await cluster.stop()


async def test_b4_a_broker_behind_in_the_log_misses_nothing_when_the_level_is_lowered(
    cluster: Cluster,
) -> None:
    """It applies the last change at level 3 together with the end of that level."""
    await cluster.create_topic("orders", (1, 2, 3))
    late = cluster.brokers[3]
    late.quorum.watch_may_go_on.clear()
    cluster.change_isr("orders", 0, (1, 2))
    await raise_or_lower(cluster, 2)
    late.quorum.watch_may_go_on.set()
    await pass_time(5)
    partition = late.cache.partition(ORDERS)
    assert partition is not None
    assert partition.isr == (1, 2)
