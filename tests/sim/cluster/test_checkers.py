"""Tests that the checkers accept what is right. They look after a step, and much can happen within
one."""

from collections.abc import Callable, Coroutine
from typing import Any, cast
from unittest.mock import Mock

import pytest

from quorate.broker.replication.commands.control_commands import DELETION_EPOCH
from quorate.broker.replication.partition.effects import ReplicaRole
from quorate.common.types import LeaderEpoch
from tests.sim.cluster.checkers import Checker
from tests.sim.cluster.machine import Machine
from tests.sim.world import Violation, World
from tests.support.broker_replicas import BrokerReplicas, tip_of
from tests.support.replica_cluster import batch


async def _checked_leader(broker: BrokerReplicas) -> tuple[Checker, Machine]:
    process = Mock()
    process.shared.active_controller.active = None
    process.hosted = broker.manager.table
    process.hosted_at = broker.manager.table.get
    process.when_hosting = []
    machine = cast("Machine", Mock(voter_id=1, process=process))
    machine.disk.mistaken = frozenset()
    checker = Checker(World(1), {1: machine})
    checker.watch_drops(machine, process)
    for action in process.when_hosting:
        action(broker.manager)
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    checker.after(machine)
    return checker, machine


async def _see_newer_epoch(broker: BrokerReplicas) -> None:
    hosted = broker.hosted("orders")
    broker.manager.table.run(hosted, hosted.replica.saw_newer_epoch(LeaderEpoch(1)))


async def _follow(broker: BrokerReplicas) -> None:
    await broker.command("orders", leader=2, epoch=1, isr=(1, 2), replicas=(1, 2))


async def _delete(broker: BrokerReplicas) -> None:
    assert await broker.stop("orders", epoch=DELETION_EPOCH, delete=True) == 0


@pytest.mark.parametrize(
    ("step_down", "role"),
    [
        (_see_newer_epoch, ReplicaRole.SUSPENDED),
        (_follow, ReplicaRole.FOLLOWER),
        (_delete, ReplicaRole.IDLE),
    ],
    ids=["saw a newer epoch", "was told to follow", "was told to delete its replica"],
)
async def test_what_a_leader_commits_in_the_step_that_ends_its_leadership_is_committed(
    step_down: Callable[[BrokerReplicas], Coroutine[Any, Any, None]], role: ReplicaRole
) -> None:
    broker = await BrokerReplicas().start()
    checker, machine = await _checked_leader(broker)
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


async def test_what_a_leader_commits_before_it_deletes_its_replica_is_compared() -> None:
    broker = await BrokerReplicas().start()
    checker, machine = await _checked_leader(broker)
    other = batch("b")
    checker.truths.of(tip_of("orders"), 1).extend(other, "another leader", 0)
    await broker.produce("orders", batch("a"), acks=0)
    broker.store.flush()
    broker.follower(2).send("orders", fetch=1)
    await _delete(broker)
    with pytest.raises(Violation, match="another batch at offset 0"):
        checker.after(machine)
    await broker.close()


@pytest.mark.parametrize("committed_in", [0, 1, 2])
async def test_a_new_leader_is_held_to_what_was_committed_up_to_its_epoch(
    committed_in: int,
) -> None:
    """One that was stopped takes up epoch 1 late, and lacks what the leader of epoch 2 commits."""
    broker = await BrokerReplicas().start()
    checker, machine = await _checked_leader(broker)
    truth = checker.truths.of(tip_of("orders"), committed_in)
    truth.extend(batch("a"), "another leader", committed_in)
    await broker.produce("orders", batch("b"), acks=0)
    broker.store.flush()
    await broker.lead("orders", epoch=1, isr=(1, 2), replicas=(1, 2))
    if committed_in == 2:
        checker.after(machine)
    else:
        with pytest.raises(Violation, match="another batch at offset 0"):
            checker.after(machine)
    assert broker.hosted("orders").replica.leader_epoch == 1
    await broker.close()


async def test_a_new_leader_that_lacks_what_was_committed_before_its_epoch_is_noticed() -> None:
    broker = await BrokerReplicas().start()
    checker, machine = await _checked_leader(broker)
    checker.truths.of(tip_of("orders"), 0).extend(batch("a"), "another leader", 0)
    await broker.lead("orders", epoch=1, isr=(1, 2), replicas=(1, 2))
    with pytest.raises(Violation, match=r"durable log end of 0; committed is \[0, 1\)"):
        checker.after(machine)
    await broker.close()


async def test_what_is_committed_in_the_step_that_ends_an_epoch_was_committed_in_that_epoch() -> (
    None
):
    broker = await BrokerReplicas().start()
    checker, machine = await _checked_leader(broker)
    await broker.produce("orders", batch("a"), acks=0)
    broker.store.flush()
    broker.follower(2).send("orders", fetch=1)
    await _follow(broker)
    checker.after(machine)
    assert checker.truths.of(tip_of("orders"), 0).end_by(0) == 1
    await broker.close()


@pytest.mark.parametrize("lossy_from", [1, 2])
async def test_the_first_leader_since_an_unclean_election_says_what_is_lost(
    lossy_from: int,
) -> None:
    """It may first lead in a newer epoch than that of the election."""
    broker = await BrokerReplicas().start()
    checker, machine = await _checked_leader(broker)
    truth = checker.truths.of(tip_of("orders"), 0)
    truth.extend(batch("a"), "another leader", 0)
    truth.lossy_from = LeaderEpoch(lossy_from)
    await broker.lead("orders", epoch=2, isr=(1,), replicas=(1, 2))
    checker.after(machine)
    await broker.produce("orders", batch("b"), acks=0)
    broker.store.flush()
    checker.after(machine)
    assert b"b" in (truth.batch_at(0) or b"")
    await broker.close()


async def test_later_leaders_are_held_to_what_the_first_since_an_unclean_election_committed() -> (
    None
):
    broker = await BrokerReplicas().start()
    checker, machine = await _checked_leader(broker)
    truth = checker.truths.of(tip_of("orders"), 0)
    truth.lossy_from = LeaderEpoch(1)
    truth.forget_from(0)
    truth.extend(batch("a"), "another leader", 1)
    await broker.lead("orders", epoch=2, isr=(1,), replicas=(1, 2))
    checker.after(machine)
    await broker.produce("orders", batch("b"), acks=0)
    broker.store.flush()
    with pytest.raises(Violation, match="another batch at offset 0"):
        checker.after(machine)
    await broker.close()
