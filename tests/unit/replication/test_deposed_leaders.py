"""Leaders that the metadata log has deposed step down though no controller tells them (rule 6)."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.broker.replication.commands.deposed_leaders import DeposedLeaders
from quorate.broker.replication.partition.effects import ReplicaRole
from quorate.common.types import BrokerId, LeaderEpoch
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.replica_cluster import batch
from tests.unit.replication.test_produce import settle

SESSION_TIMEOUT_MS = 6_000


class Told:
    """What the image says of partition 0 of every topic."""

    def __init__(self, leader: int, epoch: int) -> None:
        partition = SimpleNamespace(leader=BrokerId(leader), leader_epoch=LeaderEpoch(epoch))
        self.topic = SimpleNamespace(partitions=[partition])

    @property
    def image(self) -> Any:  # noqa: ANN401 - as much of it as is looked at
        return SimpleNamespace(topic_by_id=lambda _: self.topic)


async def leader_without_peers(broker: BrokerReplicas) -> None:
    """Leads, and hears nothing of its follower."""
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    for _ in range(24):
        broker.now_ms += 250
        broker.manager.table.notice_silence()
    assert broker.manager.table.silent_peers()


def role(broker: BrokerReplicas) -> ReplicaRole:
    return broker.hosted("orders").replica.role


def deposed_by(
    broker: BrokerReplicas, told: Told, *, last_keep_alive_ms: int = 1 << 40
) -> DeposedLeaders:
    session = SimpleNamespace(
        last_keep_alive_ms=last_keep_alive_ms, session_timeout_ms=SESSION_TIMEOUT_MS
    )
    return DeposedLeaders(
        broker.manager.table, cast("Any", told), cast("Any", session), broker.limits
    )


async def test_rule_6_a_deposed_leader_that_hears_nobody_answers_its_producers(
    broker: BrokerReplicas,
) -> None:
    await leader_without_peers(broker)
    waiting = asyncio.ensure_future(broker.produce("orders", batch("a"), acks=-1))
    await settle()
    leaders = deposed_by(broker, Told(leader=2, epoch=1))
    leaders.look()
    assert role(broker) is ReplicaRole.LEADER, "a command may be on its way"
    leaders.look()
    assert role(broker) is ReplicaRole.SUSPENDED
    outcome = await asyncio.wait_for(waiting, 5)
    assert outcome.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


async def test_producers_wait_on_if_the_newer_epoch_is_this_brokers_own(
    broker: BrokerReplicas,
) -> None:
    await leader_without_peers(broker)
    waiting = asyncio.ensure_future(broker.produce("orders", batch("a"), acks=-1))
    await settle()
    leaders = deposed_by(broker, Told(leader=1, epoch=1))
    leaders.look()
    leaders.look()
    assert role(broker) is ReplicaRole.SUSPENDED
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize("epoch", [0, -1])
async def test_an_image_that_is_no_newer_deposes_nobody(broker: BrokerReplicas, epoch: int) -> None:
    await leader_without_peers(broker)
    leaders = deposed_by(broker, Told(leader=2, epoch=epoch))
    leaders.look()
    leaders.look()
    assert role(broker) is ReplicaRole.LEADER


async def test_while_all_are_heard_only_commands_count(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    leaders = deposed_by(broker, Told(leader=2, epoch=1))
    leaders.look()
    leaders.look()
    assert role(broker) is ReplicaRole.LEADER


async def test_rule_6_a_leader_that_stepped_down_by_a_conflict_answers_its_producers_too(
    broker: BrokerReplicas,
) -> None:
    await leader_without_peers(broker)
    waiting = asyncio.ensure_future(broker.produce("orders", batch("a"), acks=-1))
    await settle()
    hosted = broker.hosted("orders")
    broker.manager.table.run(hosted, hosted.replica.saw_newer_epoch(LeaderEpoch(1)))
    assert not waiting.done()
    leaders = deposed_by(broker, Told(leader=2, epoch=1))
    leaders.look()
    leaders.look()
    outcome = await asyncio.wait_for(waiting, 5)
    assert outcome.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("session_ended", "follower_left", "answered"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
async def test_producers_are_sent_away_once_the_session_may_have_ended_and_followers_have_left(
    broker: BrokerReplicas, *, session_ended: bool, follower_left: bool, answered: bool
) -> None:
    broker.limits.min_insync = 2
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    stream = broker.follower(2)
    stream.send("orders", ack_only=True)
    waiting = asyncio.ensure_future(broker.produce("orders", batch("a"), acks=-1))
    await settle()
    if follower_left:
        stream.send("orders", forget=True)
    keep_alive_ms = broker.now_ms - SESSION_TIMEOUT_MS + (0 if session_ended else 1)
    leaders = deposed_by(broker, Told(leader=1, epoch=0), last_keep_alive_ms=keep_alive_ms)
    leaders.look()
    await settle()
    assert not waiting.done(), "it may be about to come back"
    leaders.look()
    await settle()
    assert waiting.done() == answered
    assert role(broker) is ReplicaRole.LEADER, "it goes on if the followers come back"
    waiting.cancel()
