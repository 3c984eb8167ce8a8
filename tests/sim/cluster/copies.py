"""Checks that what is committed is on every member of the ISR, and on enough disks."""

from collections import defaultdict
from typing import TYPE_CHECKING

from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.common.types import BrokerId, TopicIdPartition
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Partition
from tests.sim.cluster.lives import Lives
from tests.sim.cluster.truth import Truth
from tests.sim.world import Violation

if TYPE_CHECKING:
    from tests.sim.cluster.machine import Machine


class CopiesChecker:
    """Counts copies when something more is committed."""

    def __init__(self, machines: "dict[int, Machine]", lives: Lives) -> None:
        self._machines = machines
        self._lives = lives
        self._flushed_at_the_end: dict[int, dict[TopicIdPartition, int]] = defaultdict(dict)

    def committed(self, image: Image, hosted: HostedPartition, truth: Truth, who: str) -> None:
        """Check that what is committed is durable on every member of the true ISR, and on enough of
        them."""
        partition = _kept(image, hosted.tip)
        if partition is None:
            return
        mine = self._lives.of(hosted.tip, hosted.replica.leader_epoch)
        if mine != self._lives.of(hosted.tip, partition.leader_epoch):
            return
        copies = 0
        for member, machine in self._machines.items():
            process = machine.process
            other = None if process is None else process.hosted_at(hosted.tip)
            if process is None or other is None or process.store is None:
                copies += self._flushed_at_the_end[member].get(hosted.tip, 0) >= truth.end
                continue
            if process.store.log_may_be_lost or tuple(hosted.tip) in process.store.history.lost:
                copies += 1  # It may have had it when the leader counted it (rule 8).
                continue
            flushed = other.log.flushed_offset
            copies += flushed >= truth.end
            if member in partition.isr:
                self._check_member(hosted, truth, who, member, flushed)
        # A leader that has not heard of it yet may commit while replicas it had are being deleted.
        if copies < min(hosted.replica.effective_min_insync_replicas, len(partition.replicas)):
            raise Violation(
                f"{who} committed {hosted.tp} up to {truth.end} with {copies} copies; "
                f"min.insync.replicas is {hosted.replica.min_insync_replicas}"
            )

    def _check_member(
        self, hosted: HostedPartition, truth: Truth, who: str, member: int, flushed: int
    ) -> None:
        if flushed < truth.end:
            raise Violation(
                f"{who} committed {hosted.tp} up to {truth.end}; broker {member} is in the ISR "
                f"and durable up to {flushed} only"
            )

    def joined(self, image: Image, truth: Truth, members: list[BrokerId], where: str) -> None:
        """Check that new members of an ISR have all that is committed, since any may have to lead
        at once."""
        if truth.is_lossy or _kept(image, truth.tip) is None:
            return
        for member in members:
            process = self._machines[member].process
            registered = image.brokers.get(member)
            if process is None or registered is None:
                continue
            if process.shared.identity.epoch != registered.epoch:
                continue  # What that incarnation had when it was counted is gone with it.
            hosted = process.hosted_at(truth.tip)
            flushed = 0 if hosted is None else hosted.log.flushed_offset
            if flushed < truth.end:
                raise Violation(
                    f"broker {member} joined the ISR of {where} with a durable log end of "
                    f"{flushed}; committed is [0, {truth.end})"
                )

    def goes_down(self, machine: "Machine") -> None:
        """Remember what the disk has until the machine is up again."""
        process = machine.process
        if process is not None:
            self._flushed_at_the_end[machine.voter_id].update(
                (hosted.tip, hosted.log.flushed_offset) for hosted in process.hosted
            )


def _kept(image: Image, tip: TopicIdPartition) -> Partition | None:
    """Return the partition as it is decided; None if it is gone or going."""
    topic = image.topic_by_id(tip.topic_id)
    if topic is None or tip.partition >= image.kept(topic):
        return None
    return topic.partitions[tip.partition]
