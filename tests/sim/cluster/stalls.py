"""A stall is bounded: what a majority of brokers sees takes acks=all again in time.

Looked at in a cluster that is well but for one cut between brokers. Runs in which everything goes
wrong at once promise nothing about time before they are healed.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.common.types import TopicIdPartition
from quorate.metadata_log.image import Image
from tests.sim.cluster.quorum import SimulatedQuorum
from tests.sim.world import Violation, World

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Machine

BOUND_S: Final = 10.0
COMMITS_WITHIN_S: Final = 1.5
"""The time in seconds after which what a leader has on disk is committed, if nothing stalls."""

WELL_WITHIN_S: Final = 8.0
LOOK_EVERY_S: Final = 0.25


class _Led(NamedTuple):
    """The state of a leader when it was looked at: its epoch, and what it had on disk."""

    broker_id: int
    leader_epoch: int
    flushed_offset: int


class StallCheck:
    """Waits for a cluster to be well; says which partitions still stall after a cut."""

    def __init__(
        self, world: World, quorum: SimulatedQuorum, machines: "dict[int, Machine]"
    ) -> None:
        self._world = world
        self._quorum = quorum
        self._machines = machines

    def becomes_well(self) -> bool:
        """Let time pass until everything is in sync; False: it took too long."""
        until = self._world.now + WELL_WITHIN_S
        while not self._is_well(self._quorum.image):
            if self._world.now > until:
                return False
            self._world.run_until(self._world.now + LOOK_EVERY_S)
        return True

    def boots(self) -> list[int]:
        """Return how often each broker was started. Nothing is promised if one of them starts
        again."""
        return [machine.boots for machine in self._machines.values()]

    def in_charge(self) -> list[int]:
        """The brokers whose loss is felt most: the controller, and each that leads anything."""
        image = self._quorum.image
        leaders = {hosted.replica.broker_id for _, hosted in self._leaders(image)}
        return sorted({int(one) for one in (image.controller_id, *leaders)} & set(self._machines))

    def owed(self, visible: frozenset[int]) -> frozenset[TopicIdPartition]:
        """The partitions that brokers which see each other must serve without the others."""
        return frozenset(
            tip for tip, hosted in self._leaders(self._quorum.image) if _is_owed(hosted, visible)
        )

    def wait(self, visible: frozenset[int], owed: frozenset[TopicIdPartition]) -> None:
        """Let the time pass that a stall may take; raises ``Violation`` where it takes longer."""
        boots = self.boots()
        self._world.run_until(self._world.now + BOUND_S)
        had = {
            tip: _Led(hosted.replica.leader, hosted.replica.leader_epoch, hosted.log.flushed_offset)
            for tip, hosted in self._leaders(self._quorum.image)
        }
        self._world.run_until(self._world.now + COMMITS_WITHIN_S)
        if boots != self.boots():
            return
        image = self._quorum.image
        serves = dict(self._leaders(image))
        for tip in sorted(owed):
            topic = image.topic_by_id(tip.topic_id)
            if topic is None or tip.partition >= image.kept(topic) or image.reassignments:
                continue
            trouble = _trouble(had.get(tip), serves.get(tip))
            if trouble is not None:
                raise Violation(
                    f"{topic.name}-{tip.partition} {trouble}, {BOUND_S:.0f} s after a cut between "
                    f"brokers; {sorted(visible)} see each other and the quorum"
                )

    def _leaders(self, image: Image) -> list[tuple[TopicIdPartition, HostedPartition]]:
        """The partitions that are led by whom the quorum says, and enough replicas."""
        found = []
        for topic in image.topics.values():
            for number, leaf in enumerate(topic.partitions):
                machine = self._machines.get(leaf.leader)
                process = None if machine is None else machine.process
                tip = TopicIdPartition(topic.topic_id, number)
                hosted = None if process is None else process.hosted_at(tip)
                if hosted is None or not hosted.leads:
                    continue
                replica = hosted.replica
                if replica.leader_epoch == leaf.leader_epoch and replica.has_enough_replicas:
                    found.append((tip, hosted))
        return found

    def _is_well(self, image: Image) -> bool:
        if image.controller is None or image.deletions or image.additions or image.removals:
            return False
        if image.reassignments or not self._quorum.leads:
            return False
        partitions = [one for topic in image.topics.values() for one in topic.partitions]
        return (
            all(self._is_up(image, broker_id) for broker_id in self._machines)
            and all(set(one.isr) == set(one.replicas) for one in partitions)
            and len(self._leaders(image)) == len(partitions)
        )

    def _is_up(self, image: Image, broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)  # type: ignore[call-overload]
        machine = self._machines[broker_id]
        process = machine.process
        return broker is not None and broker.admitted and process is not None and process.is_up


def _is_owed(hosted: HostedPartition, visible: frozenset[int]) -> bool:
    replica = hosted.replica
    left = visible.intersection(replica.replicas)
    needed = max(replica.effective_min_insync_replicas, len(replica.replicas) // 2 + 1)
    return len(left) >= needed


def _trouble(had: _Led | None, hosted: HostedPartition | None) -> str | None:
    """Why a partition takes no acks=all; None: it does."""
    if hosted is None:
        return "is led by nobody with enough replicas"
    replica = hosted.replica
    if had is None or (had.broker_id, had.leader_epoch) != (replica.leader, replica.leader_epoch):
        return None
    if replica.high_watermark >= had.flushed_offset:
        return None
    return (
        f"has not committed offset {replica.high_watermark}, its leader {replica.leader} counts "
        f"on {sorted(replica.isr.maximal)}"
    )
