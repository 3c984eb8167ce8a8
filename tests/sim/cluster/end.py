"""The end of a run: once nothing goes wrong any more, the cluster heals, and all copies agree."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.common.types import BrokerId, TopicIdPartition
from quorate.metadata_log.features import BROKER_HISTORY
from quorate.metadata_log.image import Image
from tests.sim.cluster.checkers import Checker, read_all
from tests.sim.cluster.clients import Clients
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.operator import Operator
from tests.sim.cluster.process import Process
from tests.sim.cluster.quorum import SimulatedQuorum
from tests.sim.world import Violation, World

WELL_WITHIN_S: Final = 30.0
CONSENT_AFTER_S: Final = 12.0
"""The time that an operator waits before losses are accepted for partitions that nobody can
lead."""

LOOK_EVERY_S: Final = 0.25

_LANES: Final = ("LeaderAndIsr-to-", "StopReplica-to-", "UpdateMetadata-to-")


class End:
    """Watches a cluster become well."""

    def __init__(
        self,
        world: World,
        quorum: SimulatedQuorum,
        machines: dict[int, Machine],
        clients: Clients,
        operator: Operator,
        checker: Checker,
    ) -> None:
        self._world = world
        self._quorum = quorum
        self._machines = machines
        self._clients = clients
        self._operator = operator
        self._checker = checker
        self.more_troubles: list[Callable[[], str | None]] = []
        """Each says what else has not come to rest, or returns None."""

    def come(self) -> None:
        """Raises ``Violation`` where it does not."""
        world = self._world
        world.run_until(world.now + 0.5)
        began = world.now
        self._clients.is_stopping = True
        consented = False
        while (trouble := self._trouble()) is not None:
            if world.now - began > WELL_WITHIN_S:
                raise Violation(f"{WELL_WITHIN_S:.0f} s after everything was healed: {trouble}")
            if not consented and world.now - began > CONSENT_AFTER_S:
                consented = True
                self._operator.allow_unclean(_lost_for_good)
            world.run_until(world.now + LOOK_EVERY_S)
        self._all_copies_agree()

    def _trouble(self) -> str | None:
        return next(self._troubles(), None)

    def _troubles(self) -> Iterator[str]:
        if not self._clients.are_idle:
            yield "a producer still waits"
        image = self._quorum.image
        yield from self._broker_troubles(image)
        if image.deletions:
            yield f"{sorted(image.deletions)} are still being deleted"
        if image.additions or image.removals:
            yield f"{sorted({*image.additions, *image.removals})} still change their partitions"
        if image.reassignments:
            yield f"{sorted(image.reassignments)} are still being moved"
        for name, topic in sorted(image.topics.items()):
            for number, partition in enumerate(topic.partitions):
                where = f"{name}-{number}"
                if partition.offline:
                    yield f"{where} is offline, ISR {list(partition.isr)}"
                elif set(partition.isr) != set(partition.replicas):
                    yield f"{where}: ISR {list(partition.isr)} of {list(partition.replicas)}"
        yield from self._replica_troubles(image)
        yield from filter(None, (trouble() for trouble in self.more_troubles))

    def _broker_troubles(self, image: Image) -> Iterator[str]:
        for broker_id, machine in self._machines.items():
            broker = image.brokers.get(BrokerId(broker_id))
            process = machine.process
            if broker is None or not broker.admitted or process is None or not process.is_up:
                yield f"broker {broker_id} is not registered and admitted"
                return
            serves = process.shared.active_controller.active is not None
            if serves != (image.controller_id == broker_id):
                yield f"broker {broker_id} {'serves' if serves else 'does not serve'} as controller"
            if not serves and (told_by := _lanes(process)):
                yield f"broker {broker_id} is not the controller, and still tells: {told_by}"
            told = process.shared.cache.topics
            wanted = {
                name: [(one.leader, one.leader_epoch) for one in topic.partitions]
                for name, topic in image.topics.items()
            }
            known = {
                name: [(one.leader, one.leader_epoch) for one in topic.partitions]
                for name, topic in told.items()
            }
            if known != wanted:
                yield f"broker {broker_id} tells clients {known}, not {wanted}"
        if image.controller is None:
            yield "there is no controller"

    def _replica_troubles(self, image: Image) -> Iterator[str]:
        for broker_id, machine in self._machines.items():
            assigned = {
                TopicIdPartition(topic.topic_id, number)
                for topic in image.topics.values()
                for number, partition in enumerate(topic.partitions)
                if broker_id in partition.replicas
            }
            process = machine.process
            assert process is not None
            assert process.store is not None
            strays = self._unprovable_strays(process, image) | machine.disk.mistaken
            held = set(process.store.logs)
            if lost := sorted(machine.disk.mistaken - held):
                raise Violation(f"broker {broker_id} has deleted {lost}, which nobody removed")
            held -= strays
            if held != assigned:
                yield (
                    f"broker {broker_id} holds {len(held - assigned)} replicas that are not its "
                    f"own, and lacks {len(assigned - held)}"
                )
            for hosted in process.hosted:
                if hosted.tip not in strays:
                    yield from self._hosted_troubles(broker_id, hosted)

    def _hosted_troubles(self, broker_id: int, hosted: HostedPartition) -> Iterator[str]:
        log, truth = hosted.log, self._checker.truths.of_replica(hosted)
        if log.flushed_offset != log.log_end_offset:
            yield f"broker {broker_id} has not flushed {hosted.tp}"
        if hosted.replica.high_watermark != log.log_end_offset:
            yield (
                f"broker {broker_id}: high watermark of {hosted.tp} is "
                f"{hosted.replica.high_watermark}, log end {log.log_end_offset}"
            )
        if self._begins_elsewhere(hosted):
            yield f"broker {broker_id}: {hosted.tp} begins elsewhere than at its leader"
        if hosted.last_stable_offset != log.log_end_offset and not truth.is_lossy:
            yield f"broker {broker_id}: a transaction of {hosted.tp} has not ended"
        if truth.end > log.log_end_offset and not truth.is_lossy:
            raise Violation(f"broker {broker_id} lacks the end of {hosted.tp}")

    def _begins_elsewhere(self, hosted: HostedPartition) -> bool:
        """Whether a replica begins at another offset than its leader, without a reason.

        It may begin later where a loss was accepted: the broker that was elected had missed what
        its predecessors deleted, and records that are deleted do not come back on other brokers.
        For the same reason it may begin at what a leader deleted by retention which its successor
        had not heard of. That leader may have been deposed without knowing it; what it deletes is
        committed.
        """
        leader = self._leader_of(hosted)
        if leader is None:
            return False
        start, leader_start = hosted.log.log_start_offset, leader.log.log_start_offset
        truth = self._checker.truths.of_replica(hosted)
        return start < leader_start or (
            start > max(leader_start, truth.retained_from) and not truth.is_lossy
        )

    def _unprovable_strays(self, process: Process, image: Image) -> set[TopicIdPartition]:
        """Return what a broker keeps for its operator: topics that were deleted while nobody
        remembered deletions (rule 7). A quorum that is new remembers them all.
        """
        if self._quorum.began_at >= BROKER_HISTORY or process.replicas is None:
            return set()
        strays = {hosted.tip for hosted in process.replicas.strays()}
        return {tip for tip in strays if tip.topic_id not in image.topic_names}

    def _leader_of(self, hosted: HostedPartition) -> HostedPartition | None:
        machine = self._machines.get(hosted.replica.leader)
        process = None if machine is None else machine.process
        return None if process is None else process.hosted_at(hosted.tip)

    def _all_copies_agree(self) -> None:
        copies: dict[TopicIdPartition, tuple[int, list[bytes]]] = {}
        for broker_id, machine in self._machines.items():
            process = machine.process
            assert process is not None
            self._checker.compare_transactions(machine)
            strays = self._unprovable_strays(process, self._quorum.image) | machine.disk.mistaken
            for hosted in (one for one in process.hosted if one.tip not in strays):
                batches = read_all(hosted)
                other, same = copies.setdefault(hosted.tip, (broker_id, batches))
                truth = self._checker.truths.of_replica(hosted)
                shorter = min(len(same), len(batches))
                if same[len(same) - shorter :] != batches[len(batches) - shorter :]:
                    raise Violation(f"brokers {other} and {broker_id} differ on {hosted.tp}")
                if not truth.is_lossy:
                    for batch in batches:
                        truth.check(batch, f"broker {broker_id}")


def _lanes(process: Process) -> list[str]:
    """Control requests that somebody in this process goes on to send."""
    names = (task.get_name() for task in asyncio.all_tasks(process.loop))
    return sorted(name for name in names if name.startswith(_LANES))


def _lost_for_good(image: Image) -> list[str]:
    return sorted(
        name
        for name, topic in image.topics.items()
        if any(partition.offline for partition in topic.partitions)
    )
