"""Topics as clients are shown them, and topics in the packed columns of UpdateMetadata.

A topic of the image can be shown as it is. One from a request stays packed until it is requested: a
broker that serves few of 200,000 partitions unpacks few.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from quorate.common.types import NO_BROKER, BrokerId, LeaderEpoch, TopicId
from quorate.metadata_log.partitions import interned
from quorate_proto.v1.control_pb2 import TopicMetadata


class KnownPartition(Protocol):
    """The leadership of one partition. The leader is ``NO_BROKER`` if the partition is offline."""

    @property
    def leader(self) -> BrokerId: ...

    @property
    def leader_epoch(self) -> LeaderEpoch: ...

    @property
    def replicas(self) -> tuple[BrokerId, ...]: ...

    @property
    def isr(self) -> tuple[BrokerId, ...]: ...


def offline_replicas(partition: KnownPartition, live: Container[BrokerId]) -> tuple[BrokerId, ...]:
    """Return the replicas that are of no use now: those of brokers that are away, and where nobody
    leads, those in the ISR, too. They would lead if their log directories worked (KIP-858).
    """
    useless = partition.isr if partition.leader == NO_BROKER else ()
    return tuple(one for one in partition.replicas if one not in live or one in useless)


class KnownTopic(Protocol):
    """A topic, with its partitions in the order of their numbers, from 0."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> TopicId: ...

    @property
    def partition_count(self) -> int: ...

    @property
    def partitions(self) -> Sequence[KnownPartition]: ...


class UnpackedPartition(msgspec.Struct, frozen=True, gc=False):
    """A partition that was unpacked."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


class PackedTopic:
    """A topic. Its partitions are unpacked on first use, and kept."""

    __slots__ = ("_packed", "_partitions", "name", "topic_id")

    def __init__(self, packed: TopicMetadata) -> None:
        self.name = packed.topic
        self.topic_id = TopicId(packed.topic_id)
        self._packed: TopicMetadata | None = packed
        self._partitions: tuple[UnpackedPartition, ...] = ()

    @property
    def partition_count(self) -> int:
        """The number of partitions. They need not be unpacked for it."""
        return len(self._partitions if self._packed is None else self._packed.leaders)

    @property
    def partitions(self) -> tuple[UnpackedPartition, ...]:
        """The partitions in the order of their numbers, from 0."""
        if self._packed is not None:
            self._partitions = tuple(_unpacked(self._packed))
            self._packed = None
        return self._partitions


def _unpacked(packed: TopicMetadata) -> Iterator[UnpackedPartition]:
    everyone, absentees = packed.replicas[:], packed.absent[:]
    replicas_at = absent_at = 0
    columns = zip(
        packed.leaders,
        packed.leader_epochs,
        packed.replica_counts,
        packed.absent_counts,
        strict=True,
    )
    for leader, epoch, replica_count, absent_count in columns:
        replicas = isr = _ids(everyone[replicas_at : replicas_at + replica_count])
        replicas_at += replica_count
        if absent_count:
            absent = absentees[absent_at : absent_at + absent_count]
            absent_at += absent_count
            isr = _ids(replica for replica in replicas if replica not in absent)
        yield UnpackedPartition(BrokerId(leader), LeaderEpoch(epoch), replicas, isr)


def _ids(numbers: Iterable[int]) -> tuple[BrokerId, ...]:
    return interned(tuple(map(BrokerId, numbers)))
