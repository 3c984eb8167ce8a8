"""Topics and their partitions as an image holds them, with the pending changes of both.

Leaves share their replica and ISR tuples, and are outside the cyclic garbage collector: 200,000
partitions take tens of megabytes.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from quorate.common.invariants import BrokenInvariant
from quorate.common.types import (
    NO_BROKER,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    MetadataOffset,
    TopicId,
    TopicPartition,
)


@functools.lru_cache(maxsize=65_536)
def interned(members: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """Return the one shared copy of a replica list. A cluster has few distinct ones."""
    return members


class Partition(msgspec.Struct, frozen=True, gc=False):
    """/brokers/topics/T/P/leaderAndISR, together with the partition's assigned replicas."""

    replicas: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    version: int = 0

    @property
    def preferred_leader(self) -> BrokerId:
        return self.replicas[0]

    @property
    def offline(self) -> bool:
        return self.leader == NO_BROKER

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


class RemovedPartitions(NamedTuple):
    """Partitions from this number on were removed at this metadata offset."""

    first_partition: int
    offset: MetadataOffset


class Topic(msgspec.Struct, frozen=True, gc=False):
    """/brokers/topics/T. ``version`` is the metadata offset of its creation, or of the last change
    of its number of partitions.

    A partition that is removed may be added again, under the same topic id and number. Nothing of
    the old partition may be taken for the new one's (C14). So the leadership of an added partition
    begins at ``leader_epoch_floor``, above every epoch of what was removed; and ``removals`` says
    up to which offset a broker may have been given the old one. Numbers and offsets both grow in
    it: a removal that a later one covers is dropped.
    """

    name: str
    topic_id: TopicId
    partitions: Sequence[Partition]
    """A tuple, or on voters ``PackedPartitions``. Nobody changes it."""
    version: MetadataOffset
    leader_epoch_floor: LeaderEpoch = LeaderEpoch(0)
    removals: tuple[RemovedPartitions, ...] = ()

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    def removed_at(self, number: int) -> MetadataOffset:
        """Return the offset at which a partition of this number was last removed, or 0 if it never
        was.
        """
        covering = [one.offset for one in self.removals if one.first_partition <= number]
        return covering[-1] if covering else MetadataOffset(0)


class TopicDeletion(msgspec.Struct, frozen=True, gc=False):
    """/admin/delete_topics/T: a pending deletion of a topic."""

    topic_id: TopicId
    version: MetadataOffset


class PartitionAddition(msgspec.Struct, frozen=True, gc=False):
    """/admin/partitions_add/T/P for all new partitions of a topic, with the replicas that they get
    (C14).
    """

    topic_id: TopicId
    first_partition: int
    replicas: tuple[tuple[BrokerId, ...], ...]
    version: MetadataOffset


class PartitionRemoval(msgspec.Struct, frozen=True, gc=False):
    """/admin/partitions_remove/T/P for all partitions that go: ``first_partition`` and
    above (C14).
    """

    topic_id: TopicId
    first_partition: int
    version: MetadataOffset


class Reassignment(msgspec.Struct, frozen=True, gc=False):
    """/admin/partitions_reassigned/T/P: the partition's replicas are being moved (C11).

    Meanwhile its assigned replicas are those of ``original`` and of ``target``.
    """

    target: tuple[BrokerId, ...]
    original: tuple[BrokerId, ...]
    version: MetadataOffset

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        """The replicas that are being added (Kafka: adding_replicas)."""
        return tuple(one for one in self.target if one not in self.original)

    @property
    def removing(self) -> tuple[BrokerId, ...]:
        """The replicas that are removed once the target is in sync."""
        return tuple(one for one in self.original if one not in self.target)


def check_partition(tp: TopicPartition, before: Partition | None, after: Partition) -> None:
    """Check a leaf by itself, and against the one that it replaces, however it came there.

    The rules refuse records that would break this. So a check that fails here shows a fault of the
    rules or of memory, and the process ends: a refusal here alone would make its image differ from
    that of every other one.

    Raises:
        BrokenInvariant: the image must not be written.
    """
    isr = after.isr
    if before is None or isr is not before.isr or after.replicas is not before.replicas:
        replicas = after.replicas
        if not all(member in replicas for member in isr):
            raise _broken(tp, "an ISR has assigned replicas alone (C1)", before, after)
    if after.leader != NO_BROKER and after.leader not in isr:
        raise _broken(tp, "a leader is in its ISR (C1)", before, after)
    if before is None:
        return
    if after.version <= before.version or after.leader_epoch < before.leader_epoch:
        raise _broken(tp, "versions grow and leader epochs never fall (rule 5)", before, after)
    if after.leader != before.leader and after.leader_epoch == before.leader_epoch:
        raise _broken(tp, "a leader epoch has one leader (C6)", before, after)
    if after.controller_epoch < before.controller_epoch:
        raise _broken(tp, "controllers of earlier epochs decide nothing (rule 1)", before, after)


def _broken(
    tp: TopicPartition, invariant: str, before: Partition | None, after: Partition
) -> BrokenInvariant:
    return BrokenInvariant(f"metadata of {tp}", invariant, written=after, before=before)
