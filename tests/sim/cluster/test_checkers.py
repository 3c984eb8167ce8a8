"""What the checkers must not say: they look after a step, and much can happen within one."""

from collections.abc import Callable, Coroutine
from typing import Any, cast
from unittest.mock import Mock

import pytest

from broker.replication.partition.effects import Role
from metadata_log.types import LeaderEpoch
from tests.sim.cluster.checkers import Checker
from tests.sim.cluster.machine import Machine
from tests.sim.world import World
from tests.support.broker_replicas import BrokerReplicas, tip_of
from tests.support.replica_cluster import batch


async def _see_newer_epoch(broker: BrokerReplicas) -> None:
    hosted = broker.hosted("orders")
    broker.manager.table.run(hosted, hosted.replica.saw_newer_epoch(LeaderEpoch(1)))


async def _follow(broker: BrokerReplicas) -> None:
    await broker.command("orders", leader=2, epoch=1, isr=(1, 2), replicas=(1, 2))


@pytest.mark.parametrize(
    ("step_down", "role"),
    [(_see_newer_epoch, Role.SUSPENDED), (_follow, Role.FOLLOWER)],
    ids=["saw a newer epoch", "was told to follow"],
)
async def test_what_a_leader_commits_in_the_step_that_ends_its_leadership_is_committed(
    step_down: Callable[[BrokerReplicas], Coroutine[Any, Any, None]], role: Role
) -> None:
    broker = await BrokerReplicas().start()
    process = Mock()
    process.node._elector = None
    process.node._replicas.table = broker.manager.table
    machine = cast("Machine", Mock(voter_id=1, process=process))
    checker = Checker(World(1), {1: machine})
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    checker.after(machine)
    hosted = broker.hosted("orders")
    await broker.produce("orders", batch("a"), acks=0)
    broker.store.flush()
    broker.follower(2).send("orders", fetch=1)
    assert hosted.replica.high_watermark == 1
    await step_down(broker)
    assert hosted.replica.role is role
    checker.after(machine)
    assert checker.truths.of(tip_of("orders"), 1).end == 1
    await broker.close()
